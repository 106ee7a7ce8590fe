"""A run and a vocoder of random weights, as exports take them; each module has its own."""

from pathlib import Path

import pytest

from tests.speaking import make_run, make_vocoder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("run"), token_frames=1.5)


@pytest.fixture(scope="module")
def vocoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_vocoder(tmp_path_factory.mktemp("vocoder"))
