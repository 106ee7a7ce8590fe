import re

import pytest

from tests.model.conftest import MODEL, SPEC, SYMBOL_COUNT, make_network
from xtts_pipeline.cache.format.schema import RecordSpec
from xtts_pipeline.config.load import describe_preset, load_config
from xtts_pipeline.model.architecture import NetworkSizes, parameter_count


@pytest.mark.parametrize(
    "change", [{}, {"voice_latents": 0}, {"flow_layers": 0}, {"frames_per_step": 1}, {"voice_layers": 2, "heads": 4}]
)
@pytest.mark.parametrize("names", [(1, 1), (3, 2)])
def test_the_parameter_count_equals_the_networks(change: dict[str, int], names: tuple[int, int]) -> None:
    network = make_network(**change, speakers=names[0], languages=names[1])
    sizes = NetworkSizes(SPEC, SYMBOL_COUNT, *names)
    assert parameter_count(MODEL.model_copy(update=change), sizes) == network.parameter_count


@pytest.mark.parametrize("preset", ["tiny", "small", "base", "large"])
def test_presets_have_the_parameters_that_they_name_for_several_speakers_and_for_one(preset: str) -> None:
    config = load_config(["ljspeech", preset])
    spec = RecordSpec(config.limits.max_text_length, config.limits.max_mel_frames, config.audio.mel_bins, -11.5)
    models = config.model, config.model.model_copy(update={"voice_latents": 0})
    named = [float(number) for number in re.findall(r"([\d.]+) M ", describe_preset(preset))]
    assert [parameter_count(model, NetworkSizes(spec, 60)) / 1e6 for model in models] == pytest.approx(named, rel=0.04)
