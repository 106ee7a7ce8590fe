import pytest

from tests.model.conftest import MODEL, SPEC, SYMBOL_COUNT
from xtts_pipeline.model.architecture import NetworkSizes, parameter_count
from xtts_pipeline.model.networks import NETWORKS


@pytest.mark.parametrize(
    "change", [{}, {"voice_latents": 0}, {"postnet_layers": 0}, {"postnet_layers": 1}, {"voice_layers": 2, "heads": 4}]
)
@pytest.mark.parametrize("names", [(1, 1), (3, 2)])
@pytest.mark.parametrize("decoder", NETWORKS)
def test_the_parameter_count_equals_the_networks(change: dict[str, int], names: tuple[int, int], decoder: str) -> None:
    model = MODEL.model_copy(update={"decoder": decoder, **change})
    network = NETWORKS[decoder](model, SPEC, SYMBOL_COUNT, *names)
    assert parameter_count(model, NetworkSizes(SPEC, SYMBOL_COUNT, *names)) == network.parameter_count
