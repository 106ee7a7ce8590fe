"""Training records that are kept in memory: the same batches as from the files, which are read once."""

from collections.abc import Callable
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.data.reading import training_dataset
from xtts_pipeline.cache.format import manifest as manifests
from xtts_pipeline.cache.format.manifest import Manifest, load_manifest
from xtts_pipeline.config.schema import DataConfig
from xtts_pipeline.errors import CacheError

Batches = list[dict[str, np.ndarray]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, write_cache: Callable[..., Manifest]) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    write_cache(folder, train=60, buckets=((9, 12), (16, 24)))
    return folder


def read(folder: Path, *, is_kept: bool, **place: int) -> Batches:
    data = DataConfig(cache_records=is_kept, shuffle_records=16)
    dataset = training_dataset(folder, load_manifest(folder), batch_size=4, seed=3, data=data, **{"epochs": 2, **place})
    return list(dataset.as_numpy_iterator())


@pytest.mark.parametrize("place", [{"bucket": 0}, {"bucket": 1}, {"bucket": 1, "start_epoch": 5, "skip_batches": 3}])
def test_batches_equal_those_from_files_bit_for_bit(folder: Path, place: dict[str, int]) -> None:
    kept, files = read(folder, is_kept=True, **place), read(folder, is_kept=False, **place)
    assert len(kept) == len(files) > 2
    for ours, theirs in zip(kept, files, strict=True):
        assert ours.keys() == theirs.keys()
        for name, value in theirs.items():
            assert (ours[name].dtype, ours[name].tobytes()) == (value.dtype, value.tobytes())


def test_the_files_are_not_read_again(folder: Path, tmp_path: Path, write_cache: Callable[..., Manifest]) -> None:
    gone = tmp_path / "gone"
    manifest = write_cache(gone, train=24)
    kept, files = (
        iter(
            training_dataset(
                gone, manifest, batch_size=8, data=DataConfig(cache_records=is_kept, prefetch_buffer_size=1)
            )
        )
        for is_kept in (True, False)
    )
    next(kept), next(files)
    for shard in gone.glob("*.tfrecord"):
        shard.unlink()
    for _ in range(9):
        next(kept)
    with pytest.raises(tf.errors.NotFoundError):
        list(islice(files, 9))


def test_auto_keeps_what_is_small(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = load_manifest(folder)
    assert manifest.is_kept_in_memory(DataConfig())
    assert not manifest.is_kept_in_memory(DataConfig(cache_records=False))
    monkeypatch.setattr(manifests, "SMALL_BYTES", manifest.split_bytes("train") - 1)
    assert not manifest.is_kept_in_memory(DataConfig())
    assert manifest.is_kept_in_memory(DataConfig(cache_records=True))


def test_fewer_records_than_a_batch_are_the_same_error(folder: Path) -> None:
    with pytest.raises(CacheError, match="fewer than one batch of 64"):
        training_dataset(folder, load_manifest(folder), batch_size=64, data=DataConfig(cache_records=True))


def test_a_shard_that_has_lost_records_is_an_error(tmp_path: Path, write_cache: Callable[..., Manifest]) -> None:
    manifest = write_cache(tmp_path / "cache", train=24)
    shard = tmp_path / "cache" / manifest.shard_names("train")[0]
    shard.write_bytes(b"")
    with pytest.raises(tf.errors.FailedPreconditionError):
        next(iter(training_dataset(tmp_path / "cache", manifest, batch_size=8, data=DataConfig(cache_records=True))))
