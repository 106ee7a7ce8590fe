import pytest

from tests.model.conftest import MODEL, SPEC, SYMBOL_COUNT, make_network
from xtts_pipeline.cache.format.schema import RecordSpec
from xtts_pipeline.config.load import load_config
from xtts_pipeline.model.architecture import NetworkSizes, parameter_count


@pytest.mark.parametrize(
    "change", [{}, {"voice_latents": 0}, {"flow_layers": 0}, {"frames_per_step": 1}, {"voice_layers": 2, "heads": 4}]
)
@pytest.mark.parametrize("names", [(1, 1), (3, 2)])
def test_the_parameter_count_equals_the_networks(change: dict[str, int], names: tuple[int, int]) -> None:
    network = make_network(**change, speakers=names[0], languages=names[1])
    sizes = NetworkSizes(SPEC, SYMBOL_COUNT, *names)
    assert parameter_count(MODEL.model_copy(update=change), sizes) == network.parameter_count


@pytest.mark.parametrize(("preset", "millions"), [("tiny", 2), ("small", 9), ("base", 28), ("large", 107)])
def test_presets_have_about_the_parameters_that_they_name(preset: str, millions: int) -> None:
    config = load_config(["ljspeech", preset])
    spec = RecordSpec(config.limits.max_text_length, config.limits.max_mel_frames, config.audio.mel_bins, -11.5)
    assert parameter_count(config.model, NetworkSizes(spec, 60)) == pytest.approx(millions * 1e6, rel=0.1)
