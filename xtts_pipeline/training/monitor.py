"""What a run knows about its own speed: step times, data wait, traces and XLA compilations.

Counting costs a clock read and a file read now and then; nothing is synchronised for it.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from xtts_pipeline.errors import TrainingError
from xtts_pipeline.runtime import NativeLog

WARMUP_STEPS = 5


class CompilationMonitor:
    """Counts traces and XLA compilations of the functions it watches, and stops a run if one of them has more than one of each.

    The two differ: a function with a `[None]` signature is traced once and compiled again for every shape.
    """

    def __init__(self, log: NativeLog, *, is_strict: bool, is_compiled: bool) -> None:
        self._log, self._is_strict = log, is_strict
        self._is_compiled = is_compiled
        self._functions: dict[str, tuple[Any, ...]] = {}

    def watch(self, *functions: Any) -> None:
        """Count these tf.functions of one Python function under its name; of each, one trace and one compilation are expected."""
        name = functions[0].python_function.__name__
        if name in self._functions:
            raise ValueError(f"a function named {name} is watched already; XLA's log tells functions apart by name only")
        self._functions[name] = functions

    def counts(self) -> dict[str, dict[str, int]]:
        """Return `{function: {"traces": n, "compilations": n}}`, without the leading underscores of private names."""
        compiled = self._log.compilations()
        return {
            name.lstrip("_"): {"traces": sum(_traces(functions)), "compilations": compiled.get(name, 0)}
            for name, functions in self._functions.items()
        }

    def check(self, step: int) -> None:
        """Raise TrainingError if strict and a watched function that has run has not exactly one trace and one compilation."""
        if not self._is_strict:
            return
        for functions, (name, count) in zip(self._functions.values(), self.counts().items(), strict=True):
            have_run = sum(traces > 0 for traces in _traces(functions))
            if not have_run:
                continue
            found = f"step {step}: {name} has {count['traces']} traces and {count['compilations']} compilations"
            expected_compilations = have_run if self._is_compiled else 0
            expected = f"expected {have_run} and {expected_compilations}"
            if max(count.values()) > have_run:
                raise TrainingError(f"{found}, {expected}; a shape or dtype changed (training.strict_shapes=false goes on all the same)")
            if count["compilations"] != expected_compilations:
                raise TrainingError(
                    f"{found}, {expected}; XLA's compilations cannot be counted in this process (training.strict_shapes=false goes on)"
                )


def _traces(functions: Sequence[Any]) -> list[int]:
    return [function.experimental_get_tracing_count() for function in functions]


@dataclass
class StepTimer:
    """Splits a run's time into waiting for data and the step itself.

    On a CPU each step's time is its own. On a GPU a call returns before its work is done, so a step's time is the wall time of the
    window between two readbacks over its steps, and the wait is an upper bound: the device may be busy while the host waits.
    examples are the rows of each step's batch.
    """

    is_asynchronous: bool = False
    clock: Callable[[], float] = time.perf_counter
    wait_seconds: list[float] = field(default_factory=list)
    step_seconds: list[float] = field(default_factory=list)
    examples: list[int] = field(default_factory=list)
    mel_frames: int = 0
    _compiling_steps: set[int] = field(default_factory=set)
    _window_start: float = 0.0
    _window_steps: int = 0

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Time what happens inside as waiting for data."""
        started = self.clock()
        if not self._window_steps:
            self._window_start = started
        yield
        self.wait_seconds.append(self.clock() - started)

    @contextmanager
    def stepping(self, examples: int, *, is_compiling: bool = False) -> Iterator[None]:
        """Time what happens inside as the step; one that compiles, the first of its shape, is left out of the summary."""
        started = self.clock()
        yield
        if is_compiling:
            self._compiling_steps.add(len(self.examples))
        self.examples.append(examples)
        self._window_steps += 1
        if not self.is_asynchronous:
            self.step_seconds.append(self.clock() - started)

    def close_window(self, mel_frames: int) -> dict[str, float]:
        """Say that everything queued is done and read back; return the window's mean step time in ms and its data wait share."""
        steps, self._window_steps = self._window_steps, 0
        wait = sum(self.wait_seconds[-steps:])
        if self.is_asynchronous:
            wall = self.clock() - self._window_start
            window = range(len(self.step_seconds), len(self.step_seconds) + steps)
            if self._compiling_steps.intersection(window):
                self._compiling_steps.update(window)
            self.step_seconds.extend([max(wall - wait, 0.0) / steps] * steps)
        self.mel_frames += mel_frames
        step = sum(self.step_seconds[-steps:])
        busy = step + wait
        return {"step_ms": 1e3 * (busy if self.is_asynchronous else step) / steps, "data_wait_share": wait / max(busy, 1e-9)}

    def summary(self) -> dict[str, Any]:
        """Return step time statistics in ms, the share of time spent waiting for data, and throughput, after warm-up."""
        steps = len(self.step_seconds)
        if not steps:
            return {"step_ms": None, "data_wait_share": None, "examples_per_second": None, "mel_frames_per_second": None}
        warm = range(WARMUP_STEPS if steps > 2 * WARMUP_STEPS else min(1, steps - 1), steps)
        kept = [index for index in warm if index not in self._compiling_steps] or list(warm)
        wait, step = np.array(self.wait_seconds)[kept] * 1e3, np.array(self.step_seconds)[kept] * 1e3
        total = step + wait
        shown = total if self.is_asynchronous else step
        seconds = float(total.sum()) / 1e3
        frames_per_step = self.mel_frames / steps
        return {
            "step_ms": {
                "mean": float(shown.mean()),
                "std": float(shown.std()),
                "p50": float(np.percentile(shown, 50)),
                "p95": float(np.percentile(shown, 95)),
            },
            "data_wait_share": float(wait.sum() / 1e3 / seconds),
            "examples_per_second": sum(self.examples[index] for index in kept) / seconds,
            "mel_frames_per_second": frames_per_step * len(step) / seconds,
        }


def total_counts(by_function: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    """Return traces and compilations summed, with the counts by function beside them."""
    return {
        "traces": sum(count["traces"] for count in by_function.values()),
        "compilations": sum(count["compilations"] for count in by_function.values()),
        "by_function": {name: dict(count) for name, count in by_function.items()},
    }
