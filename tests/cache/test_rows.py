"""Several workers read one cache: each the rows of its own, and together what one reads."""

from collections.abc import Callable
from pathlib import Path

import pytest

from xtts_pipeline.cache.dataset import EpochPlace, cached_left_out, cached_records, training_dataset
from xtts_pipeline.cache.example import decode_example
from xtts_pipeline.cache.manifest import Manifest, bucket_specs
from xtts_pipeline.cache.records import record_starts
from xtts_pipeline.config import DataConfig
from xtts_pipeline.errors import CacheError

BATCH, EPOCHS = 6, 3
DATA = DataConfig(shuffle_records=7)
BUCKETS = ((9, 12), (16, 24))


def place(epoch: int, rows: range | None = None, skip_batches: int = 0) -> EpochPlace:
    return EpochPlace(3, BATCH, epoch, skip_batches, epochs=1, rows=rows)


class Reader:
    """Reads the ids of a cache's clips."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder, self.manifest = folder, manifest

    def read(self, bucket: int, where: EpochPlace) -> list[str]:
        return self._ids(bucket, cached_records(self.folder, self.manifest, bucket, where, DATA))

    def left_out(self, bucket: int, where: EpochPlace) -> list[str]:
        return self._ids(bucket, cached_left_out(self.folder, self.manifest, bucket, where, DATA))

    def _ids(self, bucket: int, records: object) -> list[str]:
        return [str(decode_example(record.numpy(), bucket_specs(self.manifest)[bucket])["id"]) for record in records]  # type: ignore[attr-defined]

    def split(self, bucket: int) -> set[str]:
        return set(self._ids(bucket, cached_records(self.folder, self.manifest, bucket, EpochPlace(0, 1, epochs=1), DATA)))


@pytest.mark.parametrize(("workers", "shards"), [(2, 3), (3, 5)])
def test_workers_read_what_one_reads_and_nothing_twice(
    tmp_path: Path, write_cache: Callable[..., Manifest], workers: int, shards: int
) -> None:
    # Shards of unequal length, in two buckets of unequal size.
    reader = Reader(tmp_path, write_cache(tmp_path, train=47, shards=shards, buckets=BUCKETS))
    share, remainders = BATCH // workers, set()
    for bucket in range(len(BUCKETS)):
        everything = reader.split(bucket)
        for epoch in range(EPOCHS):
            whole, left_out = reader.read(bucket, place(epoch)), reader.left_out(bucket, place(epoch))
            parts = [reader.read(bucket, place(epoch, range(worker * share, (worker + 1) * share))) for worker in range(workers)]
            read = [clip for part in parts for clip in part]
            assert len(read) == len(set(read))
            assert set(read) | set(left_out) == everything
            assert not set(read) & set(left_out)
            # Row by row the batches of one worker alone.
            batches = range(0, len(parts[0]), share)
            assert [clip for first in batches for part in parts for clip in part[first : first + share]] == whole
            remainders.add(tuple(left_out))
    assert len(remainders) > len(BUCKETS)


def test_a_worker_goes_on_where_it_was(tmp_path: Path, write_cache: Callable[..., Manifest]) -> None:
    reader = Reader(tmp_path, write_cache(tmp_path))
    rows = range(2, 4)
    assert reader.read(0, place(1, rows, skip_batches=2)) == reader.read(0, place(1, rows))[2 * len(rows) :]


def test_batches_hold_the_rows_alone(tmp_path: Path, write_cache: Callable[..., Manifest]) -> None:
    manifest = write_cache(tmp_path)
    batches = list(training_dataset(tmp_path, manifest, batch_size=BATCH, seed=3, data=DATA, epochs=1, rows=range(4, 6)))
    assert [batch["mel"].shape.as_list() for batch in batches] == [[2, 24, 4]] * (29 // BATCH)


def test_a_cut_file_is_named(tmp_path: Path, write_cache: Callable[..., Manifest]) -> None:
    write_cache(tmp_path)
    path = next(tmp_path.glob("train-*"))
    starts = record_starts(path)
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(CacheError, match=rf"record {len(starts) - 1} at byte {starts[-1]} is cut"):
        record_starts(path)
