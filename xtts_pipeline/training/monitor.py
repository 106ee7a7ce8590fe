"""What a run knows about its own speed: step times, data wait, traces and XLA compilations.

Counting costs a clock read and a file read now and then; nothing is synchronised for it.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from xtts_pipeline.errors import TrainingError
from xtts_pipeline.runtime import NativeLog

WARMUP_STEPS = 5


class CompilationMonitor:
    """Counts traces and XLA compilations of the functions it watches, and stops a run that has more than one of each.

    The two differ: a function with a `[None]` signature is traced once and compiled again for every shape.
    """

    def __init__(self, log: NativeLog, is_strict: bool) -> None:
        self._log, self._is_strict = log, is_strict
        self._functions: dict[str, Any] = {}

    def watch(self, function: Any) -> None:
        """Count this tf.function from now on, under its Python name; one trace and one compilation are expected."""
        self._functions[function.python_function.__name__.lstrip("_")] = function

    def counts(self) -> dict[str, dict[str, int]]:
        """Return `{function: {"traces": n, "compilations": n}}`."""
        compiled = {name.lstrip("_"): count for name, count in self._log.compilations().items()}
        return {
            name: {"traces": function.experimental_get_tracing_count(), "compilations": compiled.get(name, 0)}
            for name, function in self._functions.items()
        }

    def check(self, step: int) -> None:
        """Raise TrainingError if strict and any watched function was traced or compiled more than once."""
        if not self._is_strict:
            return
        for name, count in self.counts().items():
            if max(count.values()) > 1:
                raise TrainingError(
                    f"step {step}: {name} has {count['traces']} traces and {count['compilations']} compilations, expected 1 of each; "
                    "a shape or dtype changed (training.strict_shapes=false goes on all the same)"
                )


@dataclass
class StepTimer:
    """Splits a run's time into waiting for data and the step itself.

    On a CPU each step's time is its own. On a GPU the call returns before the work is done, so times are means over the windows
    between readbacks.
    """

    is_asynchronous: bool = False
    wait_seconds: list[float] = field(default_factory=list)
    step_seconds: list[float] = field(default_factory=list)
    mel_frames: int = 0
    _window_start: float | None = None
    _window_steps: int = 0

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Time what happens inside as waiting for data."""
        started = time.perf_counter()
        self._window_start = self._window_start or started
        yield
        self.wait_seconds.append(time.perf_counter() - started)

    @contextmanager
    def stepping(self) -> Iterator[None]:
        """Time what happens inside as the step."""
        started = time.perf_counter()
        yield
        self._window_steps += 1
        if not self.is_asynchronous:
            self.step_seconds.append(time.perf_counter() - started)

    def read_back(self) -> None:
        """Say that everything queued is done: closes a window on an asynchronous device."""
        if self.is_asynchronous and self._window_steps and self._window_start is not None:
            waited = sum(self.wait_seconds[-self._window_steps :])
            mean = max(time.perf_counter() - self._window_start - waited, 0.0) / self._window_steps
            self.step_seconds.extend([mean] * self._window_steps)
        self._window_start, self._window_steps = None, 0

    def recent(self, steps: int) -> dict[str, float]:
        """Return mean step time in ms and data wait share over the last `steps` steps that have been timed."""
        step, wait = sum(self.step_seconds[-steps:]), sum(self.wait_seconds[-steps:])
        return {"step_ms": 1e3 * step / max(len(self.step_seconds[-steps:]), 1), "data_wait_share": wait / max(step + wait, 1e-9)}

    def summary(self, batch_size: int) -> dict[str, Any]:
        """Return step time statistics in ms, the share of time spent waiting for data, and throughput, after warm-up."""
        skipped = WARMUP_STEPS if len(self.step_seconds) > 2 * WARMUP_STEPS else min(1, len(self.step_seconds) - 1)
        step = np.array(self.step_seconds[skipped:]) * 1e3
        wait = np.array(self.wait_seconds[skipped : skipped + len(step)]) * 1e3
        if not len(step):
            return {"step_ms": None, "data_wait_share": None, "examples_per_second": None, "mel_frames_per_second": None}
        seconds = float(step.sum() + wait.sum()) / 1e3
        frames_per_step = self.mel_frames / max(len(self.step_seconds), 1)
        return {
            "step_ms": {
                "mean": float(step.mean()),
                "std": float(step.std()),
                "p50": float(np.percentile(step, 50)),
                "p95": float(np.percentile(step, 95)),
            },
            "data_wait_share": float(wait.sum() / 1e3 / seconds),
            "examples_per_second": batch_size * len(step) / seconds,
            "mel_frames_per_second": frames_per_step * len(step) / seconds,
        }


def total_counts(by_function: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    """Return traces and compilations summed, with the counts by function beside them."""
    return {
        "traces": sum(count["traces"] for count in by_function.values()),
        "compilations": sum(count["compilations"] for count in by_function.values()),
        "by_function": {name: dict(count) for name, count in by_function.items()},
    }
