"""Run and time the real training step on the real batches, without validation, checkpoints or metrics."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import tensorflow as tf

from xtts_pipeline.cache.format.manifest import Manifest
from xtts_pipeline.config.schema import Config
from xtts_pipeline.data.batch_stream import CopiedBatchStream, open_stream
from xtts_pipeline.data.batching import rows_of
from xtts_pipeline.data.cached import CachedSource
from xtts_pipeline.data.schedule import mean_batch_size
from xtts_pipeline.data.waves import WaveSource
from xtts_pipeline.system.runtime import NativeLog
from xtts_pipeline.training.checkpoints.state import NetworkKind
from xtts_pipeline.training.distributed.strategy import SINGLE_DEVICE
from xtts_pipeline.training.loop import TASKS
from xtts_pipeline.training.monitoring.compilations import CompilationMonitor, echo_compilation, peak_bytes
from xtts_pipeline.training.step import TrainStep

# The fewest timed steps of `measure_step`: another program may disturb one of them.
_LEAST_STEPS = 3


class StepTime(NamedTuple):
    """The seconds of one step: waiting for its batch, and all others.

    The call and the wait for its end are not told apart: on a GPU with a full queue the call itself waits.
    """

    started: float
    wait: float
    busy: float
    is_compiling: bool

    @property
    def parts(self) -> dict[str, float]:
        """The seconds by what they were spent on."""
        return {"data": self.wait, "step": self.busy}

    @property
    def seconds(self) -> float:
        """All seconds."""
        return self.wait + self.busy


def has_device() -> bool:
    """Return whether TensorFlow computes on a GPU, where a call returns before the computation ends."""
    return bool(tf.config.list_physical_devices("GPU"))


def time_step(
    step: TrainStep,
    batch: Any,
    started: float | None = None,
    *,
    await_device: Callable[[tf.Tensor], object] = lambda result: result.numpy(),
) -> StepTime:
    """Run the step on a batch and wait for the device, by default for this step's end.

    started: the time at which the batch was requested. await_device: is given the step's result.
    """
    fetched = time.perf_counter()
    await_device(step(batch))
    ended = time.perf_counter()
    began = fetched if started is None else started
    return StepTime(began, fetched - began, ended - fetched, step.compiled.is_new_shape)


class Trial:
    """The step of a run and its stream of batches, as `xtts train` or `xtts train-vocoder` would make them.

    phase_starts: a step of each phase: the first of the run, and the last. The trial begins in the last one's phase.
    """

    def __init__(
        self, source: CachedSource, config: Config, monitor: CompilationMonitor, network: NetworkKind = "acoustic"
    ) -> None:
        task = TASKS[network](config, source, SINGLE_DEVICE)
        self.step, self.signatures = task.step, task.signatures
        for program in self.step.programs:
            monitor.watch(*program.functions, calls=program)
        self.phase_starts = (0, config.training.steps - 1)[-len(self.step.programs) :]
        self.step.begin(self.phase_starts[-1])
        self.batches = open_stream(source.training_batches(config, self.signatures), config.data)
        self.source, self.monitor = source, monitor
        self._steps = 0
        self._result: tf.Tensor | None = None

    @classmethod
    def of_cache(
        cls, log: NativeLog, cache: Path, manifest: Manifest, config: Config, network: NetworkKind = "acoustic"
    ) -> "Trial":
        """Return the trial of a training on a cache, as strict and as compiled as `config` says."""
        training = config.training
        monitor = CompilationMonitor(
            log,
            is_strict=training.strict_shapes,
            is_compiled=training.jit_compile,
            compiling=echo_compilation,
        )
        is_vocoder = network == "vocoder"
        source = WaveSource(cache, manifest, config) if is_vocoder else CachedSource(cache, manifest)
        return cls(source, config, monitor, network)

    def take_step(self) -> StepTime:
        """Fetch a batch and run the step on it; a GPU has work at any time, as in training. Raises as `run` does."""
        started = time.perf_counter()
        batch = next(self.batches)
        taken = self._check(time_step(self.step, batch, started, await_device=self._await_device))
        wait = self.batches.wait_seconds
        # The rest of the time until the batch came: its copy waited for the device.
        return taken._replace(wait=wait, busy=taken.seconds - wait)

    def run(self, batch: Any) -> StepTime:
        """Run the step on a batch and wait for its end. Raises TrainingError if strict and anything is traced again."""
        return self._check(time_step(self.step, batch))

    def _check(self, taken: StepTime) -> StepTime:
        self._steps += 1
        self.monitor.check(self._steps)
        return taken

    def _await_device(self, result: tf.Tensor) -> None:
        if isinstance(self.batches, CopiedBatchStream):
            # The next batches come when their copies end, which wait for the device.
            return
        # The first step, which compiles, waits for nothing: else the second would wait for it again, and seem short.
        before, self._result = self._result, result
        if before is not None:
            before.numpy()

    def take_steps(self, seconds: float, least: int = 1) -> list[StepTime]:
        """Run steps for `seconds`, and at least `least` of them; return those that compiled nothing."""
        warm: list[StepTime] = []
        end = time.perf_counter() + seconds
        while len(warm) < least or time.perf_counter() < end:
            step = self.take_step()
            if not step.is_compiling:
                warm.append(step)
        return warm


def measure_step(log: NativeLog, source: CachedSource, config: Config, seconds: float) -> dict[str, Any]:
    """Run the step for `seconds` and return its rate, times and peak memory, or `{"fits": False}` without memory."""
    try:
        monitor = CompilationMonitor(log, is_strict=False, is_compiled=config.training.jit_compile)
        trial = Trial(source, config, monitor)
        first = trial.take_step()
        warm = trial.take_steps(seconds, _LEAST_STEPS)
    except tf.errors.ResourceExhaustedError:
        return {"fits": False}
    busy = [step.busy for step in warm]
    # The steps of all buckets take about as long, with more or fewer clips: which bucket comes is chance.
    clips = mean_batch_size(source.manifest, [rows_of(signature) for signature in trial.signatures])
    return {
        "fits": True,
        "examples_per_second": clips * len(busy) / sum(busy),
        "step_ms": 1e3 * sorted(busy)[len(busy) // 2],
        "first_step_seconds": first.seconds,
        "steps": len(warm),
        "peak_bytes": peak_bytes(),
        "on_gpu": has_device(),
    }
