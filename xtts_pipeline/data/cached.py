"""The cached path: the shards of a cache as batches of static shape, by TensorFlow operations alone.

It trusts the manifest; `xtts verify-cache` proves it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from xtts_pipeline.cache.format.example import decode_example, empty_record
from xtts_pipeline.cache.format.listings import read_utterances
from xtts_pipeline.cache.format.manifest import (
    MANIFEST_NAME,
    MAX_MANIFEST_BYTES,
    UTTERANCES_NAME,
    Manifest,
    manifest_bytes,
)
from xtts_pipeline.cache.format.problems import refuse, verify_command
from xtts_pipeline.cache.format.schema import RecordField, RecordSpec
from xtts_pipeline.cache.format.tfrecord import record_starts
from xtts_pipeline.cache.verify.verify import verify_cache
from xtts_pipeline.config.schema import DataConfig
from xtts_pipeline.data.augment import MelAugmentation
from xtts_pipeline.data.order import ShardReader, TrainingOrder, hash_of, parallel_calls, prefetch_size, prefetched
from xtts_pipeline.data.source import Fields, Source
from xtts_pipeline.errors import CacheError, TrainingError, XttsError, first_line_of
from xtts_pipeline.system.memory import keep_freed_memory
from xtts_pipeline.system.regular_files import read_regular_file
from xtts_pipeline.system.storage import is_stored
from xtts_pipeline.system.terminal import shell_word

# 0 reads a record straight to its place, without a copy through TensorFlow's buffer; records are large and the kernel
# reads ahead.
_READ_BUFFER_BYTES = 0
# Reading this much again to find a fault takes seconds.
_QUICKLY_READ_BYTES = 2 << 30
# Each request to an object store is a round trip.
_STORED_READ_BUFFER_BYTES = 8 << 20


class CachedSource(Source):
    """A cache, verified before it is read."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        super().__init__(folder, manifest)
        self._content, self._seen = manifest_bytes(manifest), tuple[int, ...]()
        self._readers: dict[int, RecordReader] = {}

    def clip_voices(self) -> Iterable[tuple[str, str]]:
        """Return speaker and language of each utterance of the cache."""
        entries = read_utterances(self.folder, self.manifest.files[UTTERANCES_NAME].bytes)
        return ((entry.speaker, entry.language) for entry in entries)

    def training_dataset(self, order: TrainingOrder) -> tf.data.Dataset:
        """Return shuffled, augmented batches of one bucket, as `Source.training_dataset` documents.

        The batches are the same whether `data.cache_records` keeps the records in memory or not.
        """
        config, data, spec = order.config, order.config.data, self.specs[order.bucket]
        keep_freed_memory()
        if self.manifest.is_kept_in_memory(data):
            # Checked here: an error inside the pipeline's function would lose its message.
            order.check_fills_a_batch()
            # Read the whole bucket into one tensor when the first batch is asked for, then shuffle record numbers.
            serialized = shard_records(tf.constant(self._paths(order.bucket)), self._buffer_bytes)
            serialized = serialized.apply(tf.data.experimental.assert_cardinality(order.records))
            batches = serialized.batch(order.records, drop_remainder=True).flat_map(
                lambda stored: _parse_batches(self.record_numbers(order), spec, order.rows_read, data, stored)
            )
        else:
            batches = _parse_batches(self.records(order), spec, order.rows_read, data)
        batches = prefetched(batches, data)
        if not config.augmentation.is_on:
            return batches

        augment = MelAugmentation(config.augmentation, config.audio, spec)
        # The seed of a batch's changes depends on its place in the endless stream alone, so a resumed run draws the
        # same.
        first = order.position.epoch * order.batches_per_epoch + order.position.batch
        stream = f"bucket {order.bucket}" + ("" if order.rows is None else f" from row {order.rows.start}")
        changed = batches.enumerate(first).map(
            lambda place, fields: augment(dict(fields), hash_of(config.training.seed, stream, place)),
            num_parallel_calls=parallel_calls(data),
            deterministic=True,
        )
        return changed.prefetch(prefetch_size(data))

    def validation_dataset(self, bucket: int, batch_size: int, split: str = "val") -> tf.data.Dataset:
        """Return each record of one bucket of a split once, in the order of the shards.

        The last batch is filled with rows of length 0, of pad tokens and silence. Raises CacheError if there is no
        record.
        """
        records, spec, buffer_bytes = self.manifest.split_records(split, bucket), self.specs[bucket], self._buffer_bytes
        if not records:
            where = f"bucket {bucket} of " if self.manifest.bucket_count > 1 else ""
            raise CacheError(
                f"{self.folder}: there are 0 clips in {where}the {split} split; "
                "raise the split's share and preprocess again"
            )
        shards = tf.data.Dataset.from_tensor_slices(self._paths(bucket, split))
        serialized = shards.flat_map(lambda path: shard_records(path, buffer_bytes)).apply(
            tf.data.experimental.assert_cardinality(records)
        )
        filling = tf.data.Dataset.from_tensors(empty_record(spec)).repeat(-records % batch_size)
        data = DataConfig()
        return prefetched(_parse_batches(serialized.concatenate(filling), spec, batch_size, data), data)

    def records(self, order: TrainingOrder) -> tf.data.Dataset:
        """Return the serialized records of `training_dataset`, in its order.

        With `rows` they are read one by one, since the order of record numbers is known without reading.
        """
        if order.rows is not None:
            read, workers = self._record_reader(order.bucket).read, parallel_calls(order.config.data)
            return self.record_numbers(order).map(read, num_parallel_calls=workers, deterministic=True)
        names, buffer_bytes = self._paths(order.bucket), self._buffer_bytes
        return order.elements(lambda shard, _epoch: shard_records(tf.gather(names, shard), buffer_bytes))

    def record_numbers(self, order: TrainingOrder) -> tf.data.Dataset:
        """Return the record numbers of `training_dataset` in its order, int64; they count through the shards."""
        return order.elements(self._number_reader(order.bucket))

    def bucket_clips(self, order: TrainingOrder, batches: int) -> list[tuple[str, bool]]:
        """Return id and finiteness of each clip of the stream's next `batches` batches.

        Records are read by number, so earlier ones of the epoch cost nothing; from a store, in one sequential read.
        """
        if not is_stored(self.folder):
            order = replace(order, rows=range(order.batch_size))
        records = self.records(order).take(batches * order.batch_size)
        clips = (decode_example(record.numpy(), self.specs[order.bucket]) for record in records)
        return [(str(clip["id"]), bool(np.isfinite(clip["mel"]).all())) for clip in clips]

    def bucket_left_out(self, order: TrainingOrder) -> list[str]:
        """Return the ids of the clips that no batch of the position's epoch holds."""
        read = self._record_reader(order.bucket).read
        records = order.left_out(self._number_reader(order.bucket)).map(read)
        return [str(decode_example(record.numpy(), self.specs[order.bucket])["id"]) for record in records]

    def _record_reader(self, bucket: int) -> "RecordReader":
        """Return the bucket's only reader: making one goes through all of its files."""
        if bucket not in self._readers:
            self._readers[bucket] = RecordReader(self.shard_paths(bucket))
        return self._readers[bucket]

    @property
    def wait_advice(self) -> str:
        """The remedy if training waits for this source."""
        return f"xtts diagnose input --cache {shell_word(self.folder)} says why"

    def explain(self, error: tf.errors.OpError) -> XttsError:
        """Return the error for records that TensorFlow could not read: a CacheError only if the cache is at fault.

        A cache that takes more than seconds to read is checked by names and sizes alone.
        """
        self.check_unchanged()
        size = sum(entry.bytes for entry in self.manifest.all_files.values())
        level: Literal["quick", "full"] = "quick" if is_stored(self.folder) or size > _QUICKLY_READ_BYTES else "full"
        try:
            refuse(self.folder, verify_cache(self.folder, level, jobs=1).problems)
        except OSError as problem:
            found = f"{problem.filename or self.folder}: cannot be read ({problem.strerror})"
            return CacheError(f"{found}; mend that, and go on with --resume")
        verify = verify_command(self.folder)
        if isinstance(error, tf.errors.DataLossError):
            return CacheError(f"{self.folder}: a record cannot be read ({first_line_of(error.message)}); run {verify}")
        proved = "its files are valid" if level == "full" else f"its files have the right sizes; {verify} reads them"
        return TrainingError(f"TensorFlow cannot read {self.folder} ({first_line_of(error.message)}), but {proved}")

    def check_unchanged(self) -> None:
        """Raise TrainingError if the cache's manifest on disk is no longer the one that was loaded.

        It is read only if its time, size or file has changed since the last call.
        """
        path = self.folder / MANIFEST_NAME
        try:
            status = path.stat()
            seen = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
            if seen == self._seen and not is_stored(path):  # a store gives no times
                return
            if read_regular_file(path, MAX_MANIFEST_BYTES) == self._content:
                self._seen = seen
                return
            change = "has another content than when the run started"
        except FileNotFoundError:
            change = "is gone"
        except OSError as error:
            change = f"cannot be read ({error.strerror})"
        raise TrainingError(
            f"{path}: {change}; the last checkpoint is from before: "
            "restore the cache and use --resume, or train on the new one with another --output"
        )

    @property
    def _buffer_bytes(self) -> int:
        return _STORED_READ_BUFFER_BYTES if is_stored(self.folder) else _READ_BUFFER_BYTES

    def shard_paths(self, bucket: int, split: str = "train") -> list[Path]:
        """Return the files of a bucket's records, in order."""
        return [self.folder / name for name in self.manifest.shard_names(split, bucket)]

    def _paths(self, bucket: int, split: str = "train") -> list[str]:
        return list(map(str, self.shard_paths(bucket, split)))

    def _number_reader(self, bucket: int) -> ShardReader:
        """Return a reader of the record numbers of a bucket's training shards."""
        sizes = [shard.records for shard in self.manifest.shards_of("train", bucket)]
        ends = np.cumsum(sizes)
        return lambda shard, _epoch: tf.data.Dataset.range(tf.gather(ends - sizes, shard), tf.gather(ends, shard))


def parse_batch(serialized: tf.Tensor, spec: RecordSpec, batch_size: int) -> Fields:
    """Return the batch fields of `batch_size` serialized records: each `[batch_size, *shape]`, all dimensions static.

    Raises tf.errors.InvalidArgumentError if a record is not of the spec's size.
    """
    values = tf.io.parse_example(serialized, {field.name: feature_of(field) for field in spec.batch_fields})
    batch = {}
    for field in spec.batch_fields:
        value = array_of(values[field.name], field) if field.is_array else values[field.name]
        batch[field.name] = tf.cast(tf.reshape(value, [batch_size, *field.shape]), field.dtype)
    return batch


def feature_of(field: RecordField, *, is_any_bucket: bool = False) -> Any:
    """Return what TensorFlow's parser is told of a field; its array has any size with `is_any_bucket`."""
    if field.storage != "float32_bits":
        return tf.io.FixedLenFeature([], tf.int64 if field.storage == "int64" else tf.string)
    if is_any_bucket:
        return tf.io.FixedLenSequenceFeature([], tf.float32, allow_missing=True)
    return tf.io.FixedLenFeature([field.array_bytes // tf.float32.size], tf.float32)


def array_of(value: tf.Tensor, field: RecordField) -> tf.Tensor:
    """Return the numbers of an array that the parser gave, in the order of the field's shape, for a reshape to it.

    `value` is string [...], or float32 [..., n] of `float32_bits`; the result [..., count], or [..., n, 2].
    """
    if field.storage == "float32_bits":
        return tf.bitcast(value, field.dtype)
    # Not `fixed_length=`: it pads and cuts other sizes silently, and does not support float16.
    return tf.io.decode_raw(value, field.dtype)


def _parse_batches(
    records: tf.data.Dataset, spec: RecordSpec, batch_size: int, data: DataConfig, stored: tf.Tensor | None = None
) -> tf.data.Dataset:
    """Return parsed batches of serialized records, or of the numbers of records in `stored`."""
    return records.batch(batch_size, drop_remainder=True).map(
        lambda rows: parse_batch(rows if stored is None else tf.gather(stored, rows), spec, batch_size),
        num_parallel_calls=parallel_calls(data),
        deterministic=True,
    )


def shard_records(path: tf.Tensor, buffer_bytes: int = _READ_BUFFER_BYTES) -> tf.data.Dataset:
    """Return the serialized records of a shard: the one place where training reads whole files."""
    return tf.data.TFRecordDataset(path, buffer_size=buffer_bytes)


class RecordReader:
    """Read single records of some files by number; numbers count from 0 through the files in turn."""

    def __init__(self, paths: Sequence[Path]) -> None:
        starts = list(map(record_starts, paths))
        self._paths = tf.constant(list(map(str, paths)), tf.string)
        self._starts = tf.constant(list(chain.from_iterable(starts)), tf.int64)
        self._first = tf.constant([0, *accumulate(map(len, starts))], tf.int64)

    def read(self, number: tf.Tensor) -> tf.Tensor:
        """Return the serialized record, string []."""
        path = self._paths[tf.searchsorted(self._first, number[None], side="right")[0] - 1]
        # The raw operation, because the class TFRecordDataset takes no offsets.
        dataset = tf.raw_ops.TFRecordDatasetV2(
            filenames=path[None],
            compression_type="",
            buffer_size=_READ_BUFFER_BYTES,
            byte_offsets=self._starts[number][None],
        )
        records = tf.data.experimental.from_variant(dataset, tf.TensorSpec([], tf.string))
        return records.take(1).get_single_element()
