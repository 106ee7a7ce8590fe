"""Corpora and caches that tests may change."""

import shutil
from pathlib import Path

import pytest

from tests.cache.corpora import write_corpus


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A corpus of 40 clips."""
    return write_corpus(tmp_path / "data")


@pytest.fixture
def root(pristine: Path, tmp_path: Path) -> Path:
    """A copy of the corpus and the cache that the test's module makes once."""
    return Path(shutil.copytree(pristine, tmp_path / "copy"))
