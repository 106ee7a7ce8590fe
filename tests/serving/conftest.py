from collections.abc import Iterator

import pytest

from tests.serving.running import Running, running
from tests.speaking import make_run
from xtts_pipeline.inference.synthesizer import Synthesizer


@pytest.fixture(scope="session")
def voice(tmp_path_factory: pytest.TempPathFactory) -> Synthesizer:
    """A voice of two speakers that takes references."""
    synthesizer = Synthesizer.load(make_run(tmp_path_factory.mktemp("served") / "tiny"))
    # As `xtts serve` does: otherwise the first request of the tests waits for the compilation.
    synthesizer.warm_up()
    return synthesizer


@pytest.fixture(scope="session")
def server(voice: Synthesizer) -> Iterator[Running]:
    with running({"tiny": voice}) as served:
        yield served
