"""Time the training input pipeline and its stages apart from the step.

The cost of a stage is the time of the pipeline up to it minus the time of the pipeline up to the stage before.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tensorflow as tf

from xtts_pipeline.config.schema import AugmentationConfig, Config
from xtts_pipeline.data.batching import bucket_signatures, rows_of
from xtts_pipeline.data.cached import CachedSource
from xtts_pipeline.data.order import TrainingOrder
from xtts_pipeline.data.schedule import mean_batch_size
from xtts_pipeline.perf.timing import Throughput, measure_throughput

_PYTHON_OPS = ("PyFunc", "PyFuncStateless", "EagerPyFunc")
# The graph is read, never run, so the state of shuffle and shards does not matter.
_IGNORE_STATE = 1


@dataclass(frozen=True)
class Stage:
    """A pipeline up to one of its stages: its rate, the cost of the stage alone, and the busy cores."""

    records_per_second: float
    ms_per_batch: float
    busy_cores: float


@dataclass(frozen=True)
class Pipeline:
    """One bucket's training pipeline as `xtts train` makes it, augmentation included."""

    source: CachedSource
    config: Config
    bucket: int
    batch_size: int

    @classmethod
    def of_largest_bucket(cls, source: CachedSource, config: Config) -> "Pipeline":
        """Return the pipeline of the bucket with the most training records."""
        signatures = bucket_signatures(source.identity(), source.specs, config.training)
        bucket = max(range(len(signatures)), key=lambda number: source.manifest.split_records("train", number))
        return cls(source, config, bucket, signatures[bucket].tokens.shape[0])

    def with_data(self, **changed: Any) -> "Pipeline":
        """Return the pipeline with other settings of `data`."""
        return replace(self, config=self.config.with_settings("data", **changed))

    @property
    def is_in_memory(self) -> bool:
        """Whether the records are read once, before the first batch, and kept."""
        return self.source.manifest.is_kept_in_memory(self.config.data)

    @property
    def held_bytes(self) -> int:
        """Bytes beside the batches: all training records if they are kept, else the full buffers of all buckets."""
        if self.is_in_memory:
            return self.source.manifest.split_bytes("train")
        return sum(
            min(self.config.data.shuffle_records, self.source.manifest.split_records("train", bucket)) * record_bytes
            for bucket, record_bytes in enumerate(self.record_bytes)
        )

    @property
    def record_bytes(self) -> list[int]:
        """Mean size of a training record of each bucket in its shards."""
        manifest = self.source.manifest
        buckets = range(manifest.bucket_count)
        sizes = [sum(shard.bytes for shard in manifest.shards_of("train", bucket)) for bucket in buckets]
        return [size // max(manifest.split_records("train", bucket), 1) for bucket, size in enumerate(sizes)]

    def whole(self) -> tf.data.Dataset:
        """Return the whole pipeline: parsed, augmented and prefetched batches."""
        return self.source.training_dataset(self.order)

    def prefixes(self) -> dict[str, tf.data.Dataset]:
        """Return the pipeline up to each stage: read, shuffle, copy into batches, parse, augment if it is on.

        With records in memory nothing is read, shuffling is of record numbers, and copying is part of parsing.
        """
        if self.is_in_memory:
            stages = {"shuffle": self.source.record_numbers(self.order)}
        else:
            shuffled = self.source.records(self.order)
            stages = {
                "read": self.source.records(self.with_data(shuffle_records=1).order),
                "shuffle": shuffled,
                "copy": shuffled.batch(self.batch_size, drop_remainder=True),
            }
        if self.config.augmentation.is_on:
            plain = self.config.model_copy(update={"augmentation": AugmentationConfig()})
            return {**stages, "parse": replace(self, config=plain).whole(), "augment": self.whole()}
        return {**stages, "parse": self.whole()}

    @property
    def order(self) -> TrainingOrder:
        """The order of the training records, by the settings."""
        return self.source.order(self.config, self.bucket, self.batch_size)

    def stages(self, batches: int, most_seconds: float) -> dict[str, Stage]:
        """Time the pipeline up to each stage, over `batches` batches or `most_seconds` seconds each."""
        measured = {
            name: _measure_dataset(
                dataset, 1 if name in {"read", "shuffle"} else self.batch_size, batches * self.batch_size, most_seconds
            )
            for name, dataset in self.prefixes().items()
        }
        costs = stage_costs([1e3 * self.batch_size / up_to.records_per_second for up_to in measured.values()])
        return {
            name: Stage(up_to.records_per_second, cost, up_to.busy_cores)
            for (name, up_to), cost in zip(measured.items(), costs, strict=True)
        }

    def python_operations(self) -> list[str]:
        """Return the operations of the pipeline's graph that call Python, which holds a lock and uses one core."""
        serialized = tf.raw_ops.DatasetToGraphV2(
            input_dataset=self.whole()._variant_tensor,  # noqa: SLF001
            external_state_policy=_IGNORE_STATE,
        )
        graph = tf.compat.v1.GraphDef.FromString(serialized.numpy())
        nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
        return sorted(f"{node.op} {node.name}" for node in nodes if node.op in _PYTHON_OPS)

    def batch_waits(self, batches: int, step_seconds: float = 0.0) -> list[float]:
        """Return the seconds until each batch came, for a step that takes `step_seconds` between two batches.

        The first wait includes making the iterator and filling the shuffle buffer.
        """
        waits: list[float] = []
        started = time.perf_counter()
        iterator = iter(self.whole())
        for _ in range(batches):
            next(iterator)
            waits.append(time.perf_counter() - started)
            if step_seconds:
                time.sleep(step_seconds)
            started = time.perf_counter()
        return waits


def stage_costs(milliseconds: Sequence[float]) -> list[float]:
    """Return the cost of each stage alone from the times of the pipeline up to each stage; the sum is the last time.

    The pipeline up to a stage is a part of the pipeline up to the next, so it counts as no slower than that one.
    """
    up_to = np.minimum.accumulate(milliseconds[::-1])[::-1]
    return [float(cost) for cost in np.diff(up_to, prepend=0.0)]


def measure_inputs(
    source: CachedSource, config: Config, inputs: Sequence[dict[str, Any]], seconds: float
) -> list[float]:
    """Return the records per second with each of these `data` settings.

    The pipeline of the largest bucket is timed. The others bring as many batches, each with its own number of records.
    """
    pipeline, rates = Pipeline.of_largest_bucket(source, config), []
    signatures = bucket_signatures(source.identity(), source.specs, config.training)
    records = mean_batch_size(source.manifest, [rows_of(signature) for signature in signatures])
    for changed in inputs:
        batches = pipeline.with_data(**changed).whole()
        batch_rate = measure_throughput((1 for _ in batches), seconds).records_per_second
        rates.append(records * batch_rate)
    return rates


def _measure_dataset(dataset: tf.data.Dataset, rows: int, records: int, most_seconds: float) -> Throughput:
    """Time a dataset of elements of `rows` records in ten windows: neither Python nor a function runs for each element.

    A window holds its elements, so they are made before it comes.
    """
    size = max(records // rows // 10, 1)
    counts = (rows * size for _ in dataset.window(size, drop_remainder=True))
    return measure_throughput(counts, most_seconds, max_records=records)
