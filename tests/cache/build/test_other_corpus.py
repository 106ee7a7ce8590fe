"""A cache is not replaced by one of another corpus: what counts as another, in finished and unfinished caches."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cache.corpora import build, disk_full_after, make_config, write_clip, write_corpus, write_metadata
from xtts_pipeline.cache.build.build import refuse_other_corpus
from xtts_pipeline.cache.build.plan import index_corpora
from xtts_pipeline.cache.format.manifest import MANIFEST_NAME
from xtts_pipeline.corpus.read import read_corpus
from xtts_pipeline.errors import CacheError

CLIPS = 20
OTHER_TEXTS = {number: f"other words {number}" for number in range(CLIPS)}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_corpus(tmp_path / "data", CLIPS)


@pytest.fixture
def cache(tmp_path: Path, data: Path) -> Path:
    build(data, tmp_path / "cache")
    return tmp_path / "cache"


def refuse(cache: Path, data: Path) -> None:
    refuse_other_corpus(cache, index_corpora([read_corpus(data)], make_config()))


def with_other_clips(data: Path) -> None:
    """Give every clip another sound and another text under its old id."""
    for number in range(CLIPS):
        write_clip(data, f"clip-{number:03d}", seconds=0.6 + 0.005 * number)
    write_metadata(data, CLIPS, changed=OTHER_TEXTS)


def with_other_ids(data: Path) -> None:
    (data / "wavs").rename(data / "old")
    (data / "wavs").mkdir()
    lines = (data / "metadata.csv").read_text(encoding="utf-8").replace("clip-", "line-")
    (data / "metadata.csv").write_text(lines, encoding="utf-8")
    for path in (data / "old").iterdir():
        path.rename(data / "wavs" / path.name.replace("clip-", "line-"))


@pytest.mark.parametrize("change", [with_other_clips, with_other_ids])
def test_a_corpus_without_a_clip_of_the_cache_is_refused(
    data: Path, cache: Path, change: Callable[[Path], None]
) -> None:
    change(data)
    with pytest.raises(CacheError, match=r"cache: holds 20 clips of another corpus, and .*/data has none of them"):
        refuse(cache, data)


def test_an_unfinished_cache_is_kept_too(data: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with disk_full_after(15), pytest.raises(CacheError, match="No space left"):
        build(data, cache)
    assert not (cache / MANIFEST_NAME).exists()
    refuse(cache, data)
    with_other_clips(data)
    with pytest.raises(CacheError, match=r"holds \d+ clips of another corpus"):
        refuse(cache, data)


def test_a_cache_without_receipts_is_kept_too(data: Path, cache: Path) -> None:
    shutil.rmtree(cache / "receipts")
    refuse(cache, data)
    with_other_clips(data)
    with pytest.raises(CacheError, match="another corpus"):
        refuse(cache, data)


def test_new_texts_of_the_same_sounds_are_the_same_corpus(data: Path, cache: Path) -> None:
    write_metadata(data, CLIPS, changed=OTHER_TEXTS)
    refuse(cache, data)


def test_new_sounds_of_the_same_texts_are_the_same_corpus(data: Path, cache: Path) -> None:
    for number in range(CLIPS):
        write_clip(data, f"clip-{number:03d}", seconds=0.6 + 0.005 * number)
    refuse(cache, data)


def test_one_common_clip_is_enough(data: Path, cache: Path) -> None:
    with_other_clips(data)
    write_metadata(data, CLIPS, changed={number: text for number, text in OTHER_TEXTS.items() if number != CLIPS - 1})
    refuse(cache, data)


@pytest.mark.parametrize("exists", [True, False])
def test_a_folder_without_clips_takes_any_corpus(data: Path, tmp_path: Path, exists: bool) -> None:
    if exists:
        (tmp_path / "cache").mkdir()
    refuse(tmp_path / "cache", data)
    assert (tmp_path / "cache").exists() == exists
