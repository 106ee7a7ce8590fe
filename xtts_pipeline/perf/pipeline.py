"""Time the training input pipeline and its stages apart from the step.

The cost of a stage is the time of the pipeline up to it minus the time of the pipeline up to the stage before.
"""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from xtts_pipeline.config.schema import AugmentationConfig, Config, DataConfig
from xtts_pipeline.data.batching import bucket_signatures
from xtts_pipeline.data.cached import CachedSource
from xtts_pipeline.data.order import TrainingOrder
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

    def to_json(self) -> dict[str, Any]:
        """Return the stage as `--json` prints it."""
        return asdict(self)


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
        data = DataConfig.model_validate({**self.config.data.model_dump(), **changed})
        return replace(self, config=self.config.model_copy(update={"data": data}))

    @property
    def is_in_memory(self) -> bool:
        """Whether the records are read once, before the first batch, and kept."""
        return self.source.manifest.is_kept_in_memory(self.config.data)

    @property
    def batches_per_epoch(self) -> int:
        """Number of whole batches in the bucket."""
        return self.source.manifest.split_records("train", self.bucket) // self.batch_size

    @property
    def files(self) -> list[Path]:
        """The shards that it reads."""
        return [self.source.folder / name for name in self.source.manifest.shard_names("train", self.bucket)]

    @property
    def held_bytes(self) -> int:
        """Bytes in memory beside the batches: all training records if they are kept, else the full shuffle buffer."""
        if self.is_in_memory:
            return self.source.manifest.split_bytes("train")
        records = self.source.manifest.split_records("train", self.bucket)
        return min(self.config.data.shuffle_records, records) * self.record_bytes

    @property
    def record_bytes(self) -> int:
        """Mean size of a record in the bucket's shards."""
        shards = self.source.manifest.shards_of("train", self.bucket)
        return sum(shard.bytes for shard in shards) // max(sum(shard.records for shard in shards), 1)

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
        found: dict[str, Stage] = {}
        before = 0.0
        for name, dataset in self.prefixes().items():
            rows = 1 if name in {"read", "shuffle"} else self.batch_size
            measured = _measure_dataset(dataset, rows, batches * self.batch_size, most_seconds)
            ms = 1e3 * self.batch_size / measured.records_per_second
            found[name] = Stage(measured.records_per_second, max(ms - before, 0.0), measured.busy_cores)
            before = ms
        return found

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


def measure_inputs(
    source: CachedSource, config: Config, inputs: Sequence[dict[str, Any]], seconds: float
) -> list[float]:
    """Return the records per second of the largest bucket's pipeline with each of these `data` settings."""
    pipeline, rates = Pipeline.of_largest_bucket(source, config), []
    for changed in inputs:
        batches = pipeline.with_data(**changed).whole()
        rates.append(measure_throughput((pipeline.batch_size for _ in batches), seconds).records_per_second)
    return rates


def _measure_dataset(dataset: tf.data.Dataset, rows: int, records: int, most_seconds: float) -> Throughput:
    """Time a dataset of elements of `rows` records in ten windows: Python does not run for each element."""
    windows = dataset.window(max(records // rows // 10, 1)).map(lambda *parts: _count(parts))
    counts = (rows * int(count.numpy()) for count in windows)
    return measure_throughput(counts, most_seconds, max_records=records)


def _count(parts: Any) -> tf.Tensor:
    """Return the number of elements in a window, each of which is made."""
    first = next(iter(parts[0].values())) if isinstance(parts[0], dict) else parts[0]
    return first.reduce(np.int64(0), lambda count, _: count + 1)
