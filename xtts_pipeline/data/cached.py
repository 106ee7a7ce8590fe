"""Stream a cache's shards into static-shape batches with TensorFlow operations alone.

The only module of the cache that imports TensorFlow. It trusts the manifest; verify.py proves it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from xtts_pipeline.cache.format.example import encode_example
from xtts_pipeline.cache.format.manifest import Manifest, record_spec
from xtts_pipeline.cache.format.schema import Example, RecordSpec
from xtts_pipeline.cache.format.tfrecord import record_starts
from xtts_pipeline.config.schema import DataConfig
from xtts_pipeline.errors import CacheError
from xtts_pipeline.system.storage import is_stored

# A fixed number: with AUTOTUNE the order of records would depend on the machine's cores.
_SHARDS_AT_ONCE = 8
# None: a record is large, so it is read straight to its place, and a copy through TensorFlow's buffer is saved. The kernel reads ahead.
_READ_BUFFER_BYTES = 0
# From a store each request is a round trip.
_STORED_READ_BUFFER_BYTES = 8 << 20
# Any number but 0; it takes the place of the program-wide seed.
_GRAPH_SEED = 1


def parse_batch(serialized: tf.Tensor, spec: RecordSpec, batch_size: int) -> dict[str, tf.Tensor]:
    """Return the batch fields of `batch_size` serialized records: each `[batch_size, *shape]`, all dimensions static.

    Raises tf.errors.InvalidArgumentError if a record is not of the spec's size.
    """
    features = {
        field.name: tf.io.FixedLenFeature([], tf.int64 if field.storage == "int64" else tf.string)
        for field in spec.batch_fields
    }
    values = tf.io.parse_example(serialized, features)
    batch = {}
    for field in spec.batch_fields:
        value = values[field.name]
        if field.storage == "raw":
            # Not `fixed_length=`: that pads and cuts what has another size without a word, and knows no float16.
            value = tf.io.decode_raw(value, field.dtype)
        batch[field.name] = tf.cast(tf.reshape(value, [batch_size, *field.shape]), field.dtype)
    return batch


def training_dataset(
    folder: Path,
    manifest: Manifest,
    *,
    batch_size: int,
    seed: int,
    data: DataConfig,
    bucket: int = 0,
    start_epoch: int = 0,
    skip_batches: int = 0,
    epochs: int | None = None,
    rows: range | None = None,
) -> tf.data.Dataset:
    """Return shuffled batches of one bucket of the train split, from `start_epoch` on, endless unless `epochs` says how many.

    An epoch has `records // batch_size` batches. Its order depends on (seed, bucket, epoch) alone, so each epoch leaves out another
    remainder, and a run that stopped after `skip_batches` batches of `start_epoch` continues exactly there. The batches are the same
    whether `data.cache_records` keeps the records or not. With `rows` each batch holds those rows of it alone; from
    files the others are not read, but what is kept in memory is the whole bucket, whose rows are other ones in each epoch.
    Raises CacheError if the bucket has fewer records than one batch.
    """
    place = EpochPlace(seed, batch_size, start_epoch, skip_batches, epochs, rows)
    if manifest.is_kept_in_memory(data):
        return _batches_from_memory(folder, manifest, bucket, place, data)
    return _batches(
        cached_records(folder, manifest, bucket, place, data), record_spec(manifest, bucket), place.rows_read, data
    )


@dataclass(frozen=True)
class EpochPlace:
    """Where in the endless stream of training records a dataset begins, and after how many epochs it ends (None for never).

    rows are those of each batch that this process trains on; None for all of them.
    """

    seed: int
    batch_size: int
    start_epoch: int = 0
    skip_batches: int = 0
    epochs: int | None = None
    rows: range | None = None

    @property
    def rows_read(self) -> int:
        """How many rows of each batch are read here."""
        return self.batch_size if self.rows is None else len(self.rows)


def cached_records(
    folder: Path, manifest: Manifest, bucket: int, place: EpochPlace, data: DataConfig
) -> tf.data.Dataset:
    """Return the serialized training records of a bucket, as `training_records` orders them.

    Those of some rows alone are read one by one: their order is that of their numbers, which costs no reading.
    """
    paths = [folder / name for name in manifest.shard_names("train", bucket)]
    if place.rows is not None:
        files, numbers = _NumberedRecords(paths), record_numbers(folder, manifest, bucket, place, data)
        return numbers.map(files.read, num_parallel_calls=auto_or(data.num_workers), deterministic=True)
    names, buffer_bytes = [str(path) for path in paths], read_buffer_bytes(folder)

    def read_shard(shard: tf.Tensor, _epoch: tf.Tensor) -> tf.data.Dataset:
        return shard_records(tf.gather(names, shard), buffer_bytes)

    return training_records(folder, manifest, bucket, read_shard, place, data)


def looked_up_records(
    folder: Path, manifest: Manifest, bucket: int, place: EpochPlace, data: DataConfig, batches: int
) -> tf.data.Dataset:
    """Return the serialized records of so many batches from a place on, for a look at them while training goes on elsewhere.

    By their numbers, so that what comes before them in the epoch is not read; from a store, where each record would be a round trip, in one
    stroke.
    """
    if not is_stored(folder):
        place = replace(place, rows=range(place.batch_size))
    return cached_records(folder, manifest, bucket, place, data).take(batches * place.batch_size)


def record_numbers(
    folder: Path, manifest: Manifest, bucket: int, place: EpochPlace, data: DataConfig
) -> tf.data.Dataset:
    """Return the numbers of a bucket's training records, int64, counted through its shards, in the order of `training_records`."""
    return training_records(folder, manifest, bucket, _number_reader(manifest, bucket), place, data)


def _number_reader(manifest: Manifest, bucket: int) -> Callable[[tf.Tensor, tf.Tensor], tf.data.Dataset]:
    """Return a function that has the numbers of a training shard's records."""
    sizes = [shard.records for shard in manifest.shards_of("train", bucket)]
    ends = np.cumsum(sizes)

    def number_shard(shard: tf.Tensor, _epoch: tf.Tensor) -> tf.data.Dataset:
        return tf.data.Dataset.range(tf.gather(ends - sizes, shard), tf.gather(ends, shard))

    return number_shard


def _batches_from_memory(
    folder: Path, manifest: Manifest, bucket: int, place: EpochPlace, data: DataConfig
) -> tf.data.Dataset:
    """Return the batches of `training_dataset`; the files are read when the first batch is asked for, and what is shuffled is numbers."""
    records, spec = manifest.split_records("train", bucket), record_spec(manifest, bucket)

    def batches_of(stored: tf.Tensor) -> tf.data.Dataset:
        numbers = record_numbers(folder, manifest, bucket, place, data)
        return numbers.batch(place.rows_read, drop_remainder=True).map(
            lambda chosen: parse_batch(tf.gather(stored, chosen), spec, place.rows_read),
            num_parallel_calls=auto_or(data.num_workers),
            deterministic=True,
        )

    # Here, and not in the pipeline's own function, which would change the error's words.
    _check_a_batch_is_filled(folder, manifest, bucket, place.batch_size)
    files = [str(folder / name) for name in manifest.shard_names("train", bucket)]
    read = shard_records(tf.constant(files), read_buffer_bytes(folder)).apply(
        tf.data.experimental.assert_cardinality(records)
    )
    whole = read.batch(records, drop_remainder=True)
    return whole.flat_map(batches_of).prefetch(auto_or(data.prefetch_buffer_size)).with_options(pipeline_options())


def cached_left_out(
    folder: Path, manifest: Manifest, bucket: int, place: EpochPlace, data: DataConfig
) -> tf.data.Dataset:
    """Return the serialized training records of a bucket that no batch of the epoch of a place holds: fewer than one batch."""
    files = _NumberedRecords([folder / name for name in manifest.shard_names("train", bucket)])
    return left_out(manifest, bucket, _number_reader(manifest, bucket), place, data).map(files.read)


class _NumberedRecords:
    """The records of some files numbered from 0, the first of each file after the last of the one before; each can be read by itself."""

    def __init__(self, paths: Sequence[Path]) -> None:
        starts = [record_starts(path) for path in paths]
        self._paths = tf.constant([str(path) for path in paths], tf.string)
        self._starts = tf.constant(list(chain.from_iterable(starts)), tf.int64)
        self._first = tf.constant([0, *accumulate(map(len, starts))], tf.int64)

    def read(self, number: tf.Tensor) -> tf.Tensor:
        """Return the serialized record of a number, string []."""
        path = self._paths[tf.searchsorted(self._first, number[None], side="right")[0] - 1]
        # TFRecordDataset without its Python class, which does not know where to begin.
        from_there = tf.raw_ops.TFRecordDatasetV2(
            filenames=path[None],
            compression_type="",
            buffer_size=_READ_BUFFER_BYTES,
            byte_offsets=self._starts[number][None],
        )
        records = tf.data.experimental.from_variant(from_there, tf.TensorSpec([], tf.string))
        return records.take(1).get_single_element()


def training_records(
    folder: Path,
    manifest: Manifest,
    bucket: int,
    read_shard: Callable[[tf.Tensor, tf.Tensor], tf.data.Dataset],
    place: EpochPlace,
    data: DataConfig,
) -> tf.data.Dataset:
    """Return the training records of a bucket, epoch after epoch, in the order that `training_dataset` documents.

    `read_shard(shard, epoch)` returns the elements, one a record, of the shard at that place in `manifest.shard_names`; whatever they
    are, their order is the same. Raises CacheError if the bucket has fewer records than one batch.
    """
    records, batch_size = manifest.split_records("train", bucket), place.batch_size
    _check_a_batch_is_filled(folder, manifest, bucket, batch_size)
    batches = records // batch_size

    def epoch_records(epoch: tf.Tensor) -> tf.data.Dataset:
        shuffled = _in_order_of_epoch(manifest, bucket, read_shard, place.seed, epoch, data)
        # Skipped before anything is made of them: what is not parsed costs a tenth of a step at most.
        skipped = tf.where(epoch == place.start_epoch, place.skip_batches * batch_size, 0)
        return shuffled.take(batches * batch_size).skip(tf.cast(skipped, tf.int64))

    last_epoch = tf.int64.max if place.epochs is None else place.start_epoch + place.epochs
    chosen = tf.data.Dataset.range(place.start_epoch, last_epoch).flat_map(epoch_records)
    return chosen if place.rows is None else _rows_of_batches(chosen, batch_size, place.rows)


def left_out(
    manifest: Manifest,
    bucket: int,
    read_shard: Callable[[tf.Tensor, tf.Tensor], tf.data.Dataset],
    place: EpochPlace,
    data: DataConfig,
) -> tf.data.Dataset:
    """Return what of `training_records` no batch of the epoch of a place holds."""
    batches = manifest.split_records("train", bucket) // place.batch_size

    def epoch_records(epoch: tf.Tensor) -> tf.data.Dataset:
        return _in_order_of_epoch(manifest, bucket, read_shard, place.seed, epoch, data).skip(
            batches * place.batch_size
        )

    return tf.data.Dataset.range(place.start_epoch, place.start_epoch + 1).flat_map(epoch_records)


def _in_order_of_epoch(
    manifest: Manifest,
    bucket: int,
    read_shard: Callable[[tf.Tensor, tf.Tensor], tf.data.Dataset],
    seed: int,
    epoch: tf.Tensor,
    data: DataConfig,
) -> tf.data.Dataset:
    """Return all training records of a bucket in the order of one epoch, which is a tensor of a graph."""
    # A seed that is set inside a graph stays there: the order must not depend on the program's tf.random.set_seed.
    tf.random.set_seed(_GRAPH_SEED)
    records, order_name = manifest.split_records("train", bucket), f"order-{bucket}" if bucket else "order"
    shards = tf.data.Dataset.from_tensor_slices(tf.argsort(_hash(manifest.shard_names("train", bucket), seed, epoch)))

    def shard_of_epoch(shard: tf.Tensor) -> tf.data.Dataset:
        return read_shard(shard, epoch)

    read = shards.interleave(
        shard_of_epoch,
        cycle_length=_SHARDS_AT_ONCE,
        num_parallel_calls=auto_or(data.num_workers),
        deterministic=True,
    )
    return read.apply(tf.data.experimental.assert_cardinality(records)).shuffle(
        min(data.shuffle_records, records), seed=_hash(order_name, seed, epoch), reshuffle_each_iteration=False
    )


def _rows_of_batches(elements: tf.data.Dataset, batch_size: int, rows: range) -> tf.data.Dataset:
    """Return of every `batch_size` elements those at `rows`, one by one as before."""

    def cut(*parts: Any) -> Any:
        return tf.nest.map_structure(
            lambda tensor: tensor[rows.start : rows.stop], parts[0] if len(parts) == 1 else parts
        )

    return elements.batch(batch_size, drop_remainder=True).map(cut).unbatch()


def _check_a_batch_is_filled(folder: Path, manifest: Manifest, bucket: int, batch_size: int) -> None:
    records = manifest.split_records("train", bucket)
    if records < batch_size:
        raise CacheError(f"{folder}: {_too_few(records, batch_size, bucket, manifest)}")


def _too_few(records: int, batch_size: int, bucket: int, manifest: Manifest) -> str:
    """Return what is wrong and what to do where not even one batch can be filled."""
    if manifest.bucket_count > 1:
        found = f"bucket {bucket} {list(manifest.buckets[bucket])} holds {records} training clips, fewer than one batch of {batch_size}"
        return f"{found}, so they would never be trained; preprocess with other data.buckets, or set a smaller training.batch_size"
    if records:
        return f"{records} training clips are fewer than one batch of {batch_size}; set training.batch_size to {records} or less"
    return f"there are 0 training clips for batches of {batch_size}; preprocess a larger corpus"


def validation_dataset(
    folder: Path, manifest: Manifest, split: str, batch_size: int, bucket: int = 0
) -> tf.data.Dataset:
    """Return every record of one bucket of the split once, in the order of the shards.

    The last batch is filled with rows of length 0: pad tokens and silence that weigh nothing. Raises CacheError if there is no record.
    """
    records = manifest.split_records(split, bucket)
    if not records:
        where = f"bucket {bucket} of " if manifest.bucket_count > 1 else ""
        raise CacheError(
            f"{folder}: there are 0 clips in {where}the {split} split; raise the split's share and preprocess again"
        )
    spec = record_spec(manifest, bucket)
    shards = tf.data.Dataset.from_tensor_slices([str(folder / name) for name in manifest.shard_names(split, bucket)])
    buffer_bytes = read_buffer_bytes(folder)
    serialized = shards.flat_map(lambda path: shard_records(path, buffer_bytes)).apply(
        tf.data.experimental.assert_cardinality(records)
    )
    nothing = Example("", np.empty(0, np.int32), np.empty((0, spec.mel_bins), np.float16))
    filling = tf.data.Dataset.from_tensors(encode_example(nothing, spec)).repeat(-records % batch_size)
    return _batches(serialized.concatenate(filling), spec, batch_size, DataConfig())


def _batches(serialized: tf.data.Dataset, spec: RecordSpec, batch_size: int, data: DataConfig) -> tf.data.Dataset:
    batches = serialized.batch(batch_size, drop_remainder=True)
    workers = auto_or(data.num_workers)
    parsed = batches.map(
        lambda batch: parse_batch(batch, spec, batch_size), num_parallel_calls=workers, deterministic=True
    )
    return parsed.prefetch(auto_or(data.prefetch_buffer_size)).with_options(pipeline_options())


def read_buffer_bytes(folder: Path) -> int:
    """Return how much of a shard is read at a time."""
    return _STORED_READ_BUFFER_BYTES if is_stored(folder) else _READ_BUFFER_BYTES


def shard_records(path: tf.Tensor, buffer_bytes: int = _READ_BUFFER_BYTES) -> tf.data.Dataset:
    """Return the serialized records of a shard: the one place where training reads files."""
    return tf.data.TFRecordDataset(path, buffer_size=buffer_bytes)


def _hash(name: Any, seed: int, epoch: tf.Tensor) -> tf.Tensor:
    """Return an int64 for each name: stateless, and the same in every version of TensorFlow."""
    key = tf.strings.join([name, str(seed), tf.strings.as_string(epoch)], separator=":")
    return tf.strings.to_hash_bucket_fast(key, 2**62)


def auto_or(value: int | str) -> int:
    """Return a number of `data`, or what tf.data takes for `auto`."""
    return tf.data.AUTOTUNE if value == "auto" else int(value)


def pipeline_options() -> tf.data.Options:
    """Return the options of every pipeline: the order is that of the arguments, and operations do not part their work."""
    options = tf.data.Options()
    options.deterministic = True
    # Each operation here is a copy of one batch: threads within one only take cores from the other batches and from the step.
    options.threading.max_intra_op_parallelism = 1
    return options
