"""The training pipeline and its beginnings, run and timed apart from the step.

What a stage costs is what the pipeline takes with it less what it takes without.
"""

import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from xtts_pipeline.config.schema import AugmentationConfig, Config, DataConfig
from xtts_pipeline.data.cached import CachedSource

_PYTHON_OPS = ("PyFunc", "PyFuncStateless", "EagerPyFunc")
# The states of the shuffle and of the shards are of no interest: the graph is read, never run.
_IGNORE_STATE = 1


@dataclass(frozen=True)
class Stage:
    """A pipeline up to one of its stages: how fast it is, what the stage itself costs, and how many cores were busy."""

    records_per_second: float
    ms_per_batch: float
    busy_cores: float

    def to_json(self) -> dict[str, Any]:
        """Return it as `--json` prints it."""
        return asdict(self)


@dataclass(frozen=True)
class Pipeline:
    """One bucket's training pipeline as `xtts train` makes it, augmentation included."""

    source: CachedSource
    config: Config
    bucket: int
    batch_size: int

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
        """How many batches go once through the bucket's records."""
        return self.source.manifest.split_records("train", self.bucket) // self.batch_size

    @property
    def files(self) -> list[Path]:
        """The shards that it reads."""
        return [self.source.folder / name for name in self.source.manifest.shard_names("train", self.bucket)]

    def whole(self) -> tf.data.Dataset:
        """Return the pipeline, with its batches parsed, changed and prefetched."""
        return self.source.training_dataset(self.config, self.bucket, self.batch_size)

    def prefixes(self) -> dict[str, tf.data.Dataset]:
        """Return the pipeline up to each of its stages: reading, shuffling, copying into batches, parsing, augmenting if it does.

        Of records in memory none is read, what is shuffled is numbers, and copying is part of parsing.
        """
        source, config, bucket, rows = self.source, self.config, self.bucket, self.batch_size
        if self.is_in_memory:
            stages = {"shuffle": source.record_numbers(config, bucket, rows)}
        else:
            unshuffled = self.with_data(shuffle_records=1).config
            shuffled = source.records(config, bucket, rows)
            stages = {
                "read": source.records(unshuffled, bucket, rows),
                "shuffle": shuffled,
                "copy": shuffled.batch(self.batch_size, drop_remainder=True),
            }
        if self.config.augmentation.is_on:
            plain = self.config.model_copy(update={"augmentation": AugmentationConfig()})
            return {**stages, "parse": replace(self, config=plain).whole(), "augment": self.whole()}
        return {**stages, "parse": self.whole()}

    def stages(self, batches: int, most_seconds: float) -> dict[str, Stage]:
        """Time the pipeline up to each of its stages, over so many batches or seconds each."""
        found: dict[str, Stage] = {}
        before = 0.0
        for name, dataset in self.prefixes().items():
            per_element = 1 if name in {"read", "shuffle"} else self.batch_size
            records, seconds, cpu = _time(dataset, batches * self.batch_size // per_element, most_seconds, per_element)
            ms = 1e3 * seconds / records * self.batch_size
            found[name] = Stage(records / seconds, max(ms - before, 0.0), cpu / seconds)
            before = ms
        return found

    def python_operations(self) -> list[str]:
        """Return the names of operations that call Python, which holds a lock and one core, in the pipeline's graph."""
        serialized = tf.raw_ops.DatasetToGraphV2(
            input_dataset=self.whole()._variant_tensor, external_state_policy=_IGNORE_STATE
        )  # noqa: SLF001
        graph = tf.compat.v1.GraphDef.FromString(serialized.numpy())
        nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
        return sorted(f"{node.op} {node.name}" for node in nodes if node.op in _PYTHON_OPS)

    def batch_seconds(self, batches: int) -> list[float]:
        """Return how long each batch took to come; the first makes the iterator and fills the shuffle."""
        times, started = [], time.perf_counter()
        iterator = iter(self.whole())
        for _ in range(batches):
            next(iterator)
            now = time.perf_counter()
            times.append(now - started)
            started = now
        return times

    def paced_waits(self, batches: int, step_seconds: float) -> list[float]:
        """Return how long a step that lasts so long waits for each batch, while more are made ahead; the first is left out."""
        waits: list[float] = []
        iterator = iter(self.whole())
        next(iterator)
        for _ in range(batches):
            time.sleep(step_seconds)
            started = time.perf_counter()
            next(iterator)
            waits.append(time.perf_counter() - started)
        return waits

    @property
    def held_bytes(self) -> int:
        """Most that is held beside the batches: all training records if they are kept in memory, else what the shuffle buffer holds."""
        if self.is_in_memory:
            return self.source.manifest.split_bytes("train")
        records = self.source.manifest.split_records("train", self.bucket)
        return min(self.config.data.shuffle_records, records) * self.record_bytes

    @property
    def record_bytes(self) -> int:
        """Mean size of a record of this bucket's shards."""
        shards = self.source.manifest.shards_of("train", self.bucket)
        return sum(shard.bytes for shard in shards) // max(sum(shard.records for shard in shards), 1)


def _time(dataset: tf.data.Dataset, elements: int, most_seconds: float, per_element: int) -> tuple[int, float, float]:
    """Return records, seconds and processor seconds of running a dataset from its second piece on, in pieces that Python does not see."""
    piece = max(elements // 10, 1)
    pieces = iter(dataset.window(piece).map(lambda *parts: _drain(parts)))
    next(pieces)
    done, started, cpu = 0, time.perf_counter(), time.process_time()
    while done < elements and (not done or time.perf_counter() - started < most_seconds):
        done += int(next(pieces).numpy())
    return done * per_element, max(time.perf_counter() - started, 1e-9), time.process_time() - cpu


def _drain(parts: Any) -> tf.Tensor:
    """Return how many elements a window holds, having made each of them."""
    first = next(iter(parts[0].values())) if isinstance(parts[0], dict) else parts[0]
    return first.reduce(np.int64(0), lambda count, _: count + 1)
