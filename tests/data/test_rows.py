"""Several workers read one cache: each its own rows, together the same clips as one worker."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cache.corpora import records_of
from tests.data.reading import training_dataset
from xtts_pipeline.cache.format.manifest import Manifest, bucket_specs
from xtts_pipeline.cache.format.tfrecord import record_starts
from xtts_pipeline.config.schema import Config, DataConfig, TrainingConfig
from xtts_pipeline.data.cached import CachedSource
from xtts_pipeline.data.schedule import StreamPosition
from xtts_pipeline.errors import CacheError

BATCH, EPOCHS, SEED = 12, 3, 3
BUCKETS = ((9, 12), (16, 24))


class Reader:
    """Reads the ids of a cache's clips as training does: in batches, from the files or from memory."""

    def __init__(self, folder: Path, manifest: Manifest, *, cache_records: bool = False) -> None:
        self.folder, self.manifest = folder, manifest
        self.data = DataConfig(shuffle_records=7, cache_records=cache_records)
        self.names: list[dict[bytes, str]] = [{} for _ in bucket_specs(manifest)]
        for shard, record in records_of(folder):
            if shard.split == "train":
                self.names[shard.bucket or 0][record["mel"].tobytes()] = record["id"]

    def read(self, bucket: int, rows: range | None = None, start_epoch: int = 0, skip_batches: int = 0) -> list[str]:
        batches = training_dataset(
            self.folder,
            self.manifest,
            batch_size=BATCH,
            seed=SEED,
            data=self.data,
            bucket=bucket,
            start_epoch=start_epoch,
            skip_batches=skip_batches,
            epochs=EPOCHS,
            rows=rows,
        )
        return [self.names[bucket][mel.tobytes()] for batch in batches for mel in batch["mel"].numpy()]

    def left_out(self, bucket: int, epoch: int) -> list[str]:
        config = Config(training=TrainingConfig(seed=SEED), data=self.data)
        source = CachedSource(self.folder, self.manifest)
        return source.bucket_left_out(source.order(config, bucket, BATCH, StreamPosition(epoch)))


@pytest.mark.parametrize(("workers", "shards", "cache_records"), [(2, 3, False), (4, 5, False), (4, 3, True)])
def test_workers_together_read_what_one_worker_reads(
    tmp_path: Path, write_cache: Callable[..., Manifest], workers: int, shards: int, *, cache_records: bool
) -> None:
    # Shards of unequal length, in two buckets of unequal size.
    manifest = write_cache(tmp_path, train=70, shards=shards, buckets=BUCKETS)
    reader, share, remainders = Reader(tmp_path, manifest, cache_records=cache_records), BATCH // workers, set()
    for bucket in range(len(BUCKETS)):
        everything, whole = set(reader.names[bucket].values()), reader.read(bucket)
        parts = [reader.read(bucket, range(worker * share, (worker + 1) * share)) for worker in range(workers)]
        # Row by row the batches of one worker alone.
        assert [
            clip for first in range(0, len(parts[0]), share) for part in parts for clip in part[first : first + share]
        ] == whole
        mine = len(parts[0]) // EPOCHS
        for epoch in range(EPOCHS):
            read, left_out = (
                [clip for part in parts for clip in part[epoch * mine : (epoch + 1) * mine]],
                reader.left_out(bucket, epoch),
            )
            assert len(read) == len(set(read))
            assert set(read) | set(left_out) == everything
            assert not set(read) & set(left_out)
            remainders.add(tuple(left_out))
    assert len(remainders) > len(BUCKETS)


@pytest.mark.parametrize("cache_records", [False, True])
def test_a_worker_resumes_at_its_position(
    tmp_path: Path, write_cache: Callable[..., Manifest], *, cache_records: bool
) -> None:
    reader, rows = Reader(tmp_path, write_cache(tmp_path), cache_records=cache_records), range(3, 6)
    assert reader.read(0, rows, start_epoch=1, skip_batches=1) == reader.read(0, rows, start_epoch=1)[len(rows) :]


def test_batches_hold_the_rows_alone(tmp_path: Path, write_cache: Callable[..., Manifest]) -> None:
    manifest, data = write_cache(tmp_path), DataConfig(shuffle_records=7)
    batches = list(training_dataset(tmp_path, manifest, batch_size=6, seed=SEED, data=data, epochs=1, rows=range(4, 6)))
    assert [batch["mel"].shape.as_list() for batch in batches] == [[2, 24, 4]] * (29 // 6)


def test_a_cut_file_is_named(tmp_path: Path, write_cache: Callable[..., Manifest]) -> None:
    write_cache(tmp_path)
    path = next(tmp_path.glob("train-*"))
    starts = record_starts(path)
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(CacheError, match=rf"record {len(starts) - 1} at byte {starts[-1]} is cut"):
        record_starts(path)
