"""The training pipeline and its beginnings, run and timed apart from the step.

What a stage costs is what the pipeline takes with it less what it takes without.
"""

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from xtts_pipeline.cache.dataset import EpochPlace, cached_records, training_dataset
from xtts_pipeline.cache.manifest import Manifest
from xtts_pipeline.config import DataConfig

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
    """One bucket's training pipeline as `xtts train` makes it."""

    folder: Path
    manifest: Manifest
    bucket: int
    batch_size: int
    seed: int
    data: DataConfig

    def whole(self) -> tf.data.Dataset:
        """Return the pipeline, with its batches parsed and prefetched."""
        return training_dataset(self.folder, self.manifest, batch_size=self.batch_size, seed=self.seed, data=self.data, bucket=self.bucket)

    def records(self, data: DataConfig) -> tf.data.Dataset:
        """Return the pipeline up to the shuffle, one record at a time."""
        return cached_records(self.folder, self.manifest, self.bucket, EpochPlace(self.seed, self.batch_size), data)

    def stages(self, batches: int, most_seconds: float) -> dict[str, Stage]:
        """Time the pipeline up to reading, shuffling, copying into batches and parsing, over so many batches or seconds each."""
        unshuffled = self.data.model_copy(update={"shuffle_records": 1})
        prefixes = {
            "read": self.records(unshuffled),
            "shuffle": self.records(self.data),
            "copy": self.records(self.data).batch(self.batch_size, drop_remainder=True),
            "parse": self.whole(),
        }
        found: dict[str, Stage] = {}
        before = 0.0
        for name, dataset in prefixes.items():
            per_element = 1 if name in {"read", "shuffle"} else self.batch_size
            records, seconds, cpu = _time(dataset, batches * self.batch_size // per_element, most_seconds, per_element)
            ms = 1e3 * seconds / records * self.batch_size
            found[name] = Stage(records / seconds, max(ms - before, 0.0), cpu / seconds)
            before = ms
        return found

    def python_operations(self) -> list[str]:
        """Return the names of operations that call Python, which holds a lock and one core, in the pipeline's graph."""
        serialized = tf.raw_ops.DatasetToGraphV2(input_dataset=self.whole()._variant_tensor, external_state_policy=_IGNORE_STATE)  # noqa: SLF001
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

    @property
    def buffered_bytes(self) -> int:
        """Most that the shuffle buffer holds."""
        records = self.manifest.split_records("train", self.bucket)
        return min(self.data.shuffle_records, records) * self.record_bytes

    @property
    def record_bytes(self) -> int:
        """Mean size of a record of this bucket's shards."""
        shards = [shard for shard in self.manifest.shards if shard.name in set(self.manifest.shard_names("train", self.bucket))]
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
