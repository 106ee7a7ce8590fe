"""The real training step on the real batches, without a run: nothing is validated, saved or written."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import tensorflow as tf

from xtts_pipeline.cache.format.manifest import Manifest
from xtts_pipeline.config.schema import Config
from xtts_pipeline.data.batching import bucket_signatures
from xtts_pipeline.data.cached import CachedSource
from xtts_pipeline.model.network import Batch
from xtts_pipeline.system.runtime import NativeLog
from xtts_pipeline.training.checkpoints.files import build_network
from xtts_pipeline.training.monitoring.compilations import CompilationMonitor
from xtts_pipeline.training.step import TrainStep


@dataclass(frozen=True)
class Verdict:
    """What a diagnosis found, in one word and one line, and what to do about it."""

    name: str
    is_healthy: bool
    finding: str
    remedy: str

    def to_json(self) -> dict[str, Any]:
        """Return it as the beginning of what `--json` prints of a diagnosis."""
        return {"verdict": self.name, "healthy": self.is_healthy, "finding": self.finding, "remedy": self.remedy}

    def __str__(self) -> str:
        return f"{self.name}: {self.finding}" + (f"; {self.remedy}" if self.remedy else "")


class StepTime(NamedTuple):
    """Where the seconds of one step went: waiting for its batch, in the host's call, and waiting for the device to end.

    On a CPU the call is the computation, so that host is 0.
    """

    started: float
    wait: float
    host: float
    compute: float
    rows: int
    is_compiling: bool

    @property
    def seconds(self) -> float:
        """All of the step."""
        return self.wait + self.host + self.compute


class Trial:
    """A network, its optimizer and a stream of batches, as `xtts train` would make them."""

    def __init__(self, source: CachedSource, config: Config, monitor: CompilationMonitor) -> None:
        precision, identity = tf.dtypes.as_dtype(config.training.precision), source.identity()
        network, average = (build_network(identity, config, precision) for _ in range(2))
        self.signatures = bucket_signatures(identity, source.specs, config.training)
        self.step = TrainStep(network, average, config.training, self.signatures)
        monitor.watch(*self.step.compiled.functions, calls=self.step.compiled)
        self.batches = source.training_batches(config, self.signatures)
        self.is_asynchronous = bool(tf.config.list_physical_devices("GPU"))
        self.source, self.monitor = source, monitor
        self._steps = 0

    @classmethod
    def of_cache(cls, log: NativeLog, cache: Path, manifest: Manifest, config: Config) -> "Trial":
        """Return the trial of a training on a cache, as strict and as compiled as `config` says."""
        training = config.training
        monitor = CompilationMonitor(log, is_strict=training.strict_shapes, is_compiled=training.jit_compile)
        return cls(CachedSource(cache, manifest), config, monitor)

    def take_step(self) -> StepTime:
        """Fetch a batch, run the step on it to its end, and return where the time went."""
        started = time.perf_counter()
        return self.run(next(self.batches), started)

    def run(self, batch: Batch, started: float | None = None) -> StepTime:
        """Run the step on a batch that was asked for at `started`. Raises TrainingError if strict and something is traced again."""
        fetched = time.perf_counter()
        began = fetched if started is None else started
        result = self.step(batch)
        called = time.perf_counter()
        result.numpy()
        ended = time.perf_counter()
        self._steps += 1
        self.monitor.check(self._steps)
        host = called - fetched if self.is_asynchronous else 0.0
        return StepTime(
            began,
            fetched - began,
            host,
            ended - fetched - host,
            batch.mel.shape[0],
            self.step.compiled.is_new_shape,
        )
