"""The order of training records, and the options that all pipelines share.

The order is a function of seed, bucket and epoch, the same for a cache and for its corpus. What an element holds is up
to the reader.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

from xtts_pipeline.cache.format.manifest import Manifest
from xtts_pipeline.config.schema import Config, DataConfig
from xtts_pipeline.data.schedule import START, StreamPosition
from xtts_pipeline.errors import CacheError

# Return the elements, one a record, of the shard with this index in `manifest.shard_names`; the second argument is the
# epoch.
ShardReader = Callable[[tf.Tensor, tf.Tensor], tf.data.Dataset]

# A fixed number: with AUTOTUNE the order of records would depend on the number of cores.
_SHARDS_AT_ONCE = 8
# More calls at once only hold more clips in memory; the largest machines have as many cores.
_MOST_CALLS = 256
# Any number but 0; it replaces the program's global seed.
_GRAPH_SEED = 1


@dataclass(frozen=True)
class TrainingOrder:
    """One bucket's training stream: its settings, and the order of its records.

    An epoch has `records // batch_size` batches. Its order depends on (seed, bucket, epoch) alone, so each epoch leaves
    out another remainder, and a run that stopped at a position continues exactly there. `position.batch` counts batches
    of this bucket. With `rows` the stream has only these rows of each batch. It is endless.
    """

    folder: Path
    manifest: Manifest
    config: Config
    bucket: int
    batch_size: int
    position: StreamPosition = START
    rows: range | None = None

    @property
    def records(self) -> int:
        """The number of training records in the bucket."""
        return self.manifest.split_records("train", self.bucket)

    @property
    def rows_read(self) -> int:
        """The number of rows of each batch that this process reads."""
        return self.batch_size if self.rows is None else len(self.rows)

    @property
    def batches_per_epoch(self) -> int:
        """The number of whole batches in an epoch."""
        return self.records // self.batch_size

    def elements(self, read_shard: ShardReader) -> tf.data.Dataset:
        """Return the elements of the stream. Raises CacheError if the bucket has fewer records than one batch."""
        self.check_fills_a_batch()
        start = self.position

        def read_epoch(epoch: tf.Tensor) -> tf.data.Dataset:
            # Skip before anything is parsed: a skipped record costs a tenth of a step at most.
            skipped = tf.where(epoch == start.epoch, start.batch * self.batch_size, 0)
            whole_batches = self._shuffled(read_shard, epoch).take(self.batches_per_epoch * self.batch_size)
            return whole_batches.skip(tf.cast(skipped, tf.int64))

        chosen = tf.data.Dataset.range(start.epoch, tf.int64.max).flat_map(read_epoch)
        return chosen if self.rows is None else rows_of_batches(chosen, self.batch_size, self.rows)

    def left_out(self, read_shard: ShardReader) -> tf.data.Dataset:
        """Return the elements that no batch of the position's epoch holds."""
        first = self.position.epoch
        return tf.data.Dataset.range(first, first + 1).flat_map(
            lambda epoch: self._shuffled(read_shard, epoch).skip(self.batches_per_epoch * self.batch_size)
        )

    def check_fills_a_batch(self) -> None:
        """Raise CacheError if the bucket has fewer records than one batch."""
        found, rows, buckets = self.records, self.batch_size, self.manifest.buckets
        if found < rows:
            where = f"bucket {self.bucket} {list(buckets[self.bucket])}: " if buckets else ""
            remedy = "set a smaller training.batch_size, or preprocess with other data.buckets or a larger corpus"
            problem = f"{where}{found} training clips are fewer than one batch of {rows}, and would never be trained"
            raise CacheError(f"{self.folder}: {problem}; {remedy}")

    def _shuffled(self, read_shard: ShardReader, epoch: tf.Tensor) -> tf.data.Dataset:
        """Return the elements of all training records in the order of an epoch, a tensor of a graph."""
        # A seed that is set inside a graph stays there: the order must not depend on the program's tf.random.set_seed.
        tf.random.set_seed(_GRAPH_SEED)
        names = self.manifest.shard_names("train", self.bucket)
        shards = tf.data.Dataset.from_tensor_slices(tf.argsort(hash_of(names, self.config.training.seed, epoch)))
        elements = shards.interleave(
            lambda shard: read_shard(shard, epoch),
            cycle_length=_SHARDS_AT_ONCE,
            num_parallel_calls=parallel_calls(self.config.data, _SHARDS_AT_ONCE),
            deterministic=True,
        )
        order_name = f"order-{self.bucket}" if self.bucket else "order"
        return elements.apply(tf.data.experimental.assert_cardinality(self.records)).shuffle(
            min(self.config.data.shuffle_records, self.records),
            seed=hash_of(order_name, self.config.training.seed, epoch),
            reshuffle_each_iteration=False,
        )


def rows_of_batches(elements: tf.data.Dataset, batch_size: int, rows: range) -> tf.data.Dataset:
    """Return the elements at `rows` of each `batch_size` elements, one by one."""

    def cut(*parts: Any) -> Any:
        return tf.nest.map_structure(
            lambda tensor: tensor[rows.start : rows.stop], parts[0] if len(parts) == 1 else parts
        )

    return elements.batch(batch_size, drop_remainder=True).map(cut).unbatch()


def hash_of(*parts: Any) -> tf.Tensor:
    """Return an int64 hash of strings and integers: stateless, and the same in every version of TensorFlow.

    A list of strings gives a hash for each.
    """
    # TensorFlow takes a Python integer for an int32, which may be too small for it.
    texts = [str(part) if isinstance(part, int) else tf.strings.as_string(part) for part in parts]
    return tf.strings.to_hash_bucket_fast(tf.strings.join(texts, separator=":"), 2**62)


def parallel_calls(data: DataConfig, most: int = _MOST_CALLS) -> int:
    """Return `data.num_workers` as tf.data takes it for an operation that allows at most this many calls at once."""
    return tf.data.AUTOTUNE if data.num_workers == "auto" else min(data.num_workers, most)


def prefetch_size(data: DataConfig) -> int:
    """Return `data.prefetch_buffer_size` as tf.data takes it."""
    return tf.data.AUTOTUNE if data.prefetch_buffer_size == "auto" else data.prefetch_buffer_size


def prefetched(batches: tf.data.Dataset, data: DataConfig) -> tf.data.Dataset:
    """Return the end of each pipeline: batches in order, made ahead, each operation on one thread."""
    options = tf.data.Options()
    options.deterministic = True
    # Each operation here copies one batch: threads inside one would only take cores from other batches and the step.
    options.threading.max_intra_op_parallelism = 1
    return batches.prefetch(prefetch_size(data)).with_options(options)
