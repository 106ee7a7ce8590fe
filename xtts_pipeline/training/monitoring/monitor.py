"""What a run knows about its own speed: step times, data wait, traces and XLA compilations.

Counting costs a clock read and a file read now and then; nothing is synchronised for it.
"""

import math
import resource
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from xtts_pipeline.errors import TrainingError
from xtts_pipeline.system.runtime import NativeLog
from xtts_pipeline.training.compiled import CompiledByShape

WARMUP_STEPS = 5
MOST_WARNINGS = 5


@dataclass(frozen=True)
class Event:
    """The traces and compilations of a function that came in a step."""

    step: int
    function: str
    traces: int
    compilations: int
    is_expected: bool

    def to_json(self) -> dict[str, Any]:
        """Return it as summary.json has it."""
        return asdict(self)


@dataclass
class _Watched:
    """The tf.functions of one Python function, and what is known of them so far."""

    functions: tuple[Any, ...]
    calls: CompiledByShape | None
    devices: int = 1
    traces: int = 0
    compilations: int = 0
    changes_told: int = 0

    def traces_of_each(self) -> list[int]:
        return [function.experimental_get_tracing_count() for function in self.functions]

    def expected(self) -> int:
        """Return how many traces what has run so far should have."""
        shapes = sum(traces > 0 for traces in self.traces_of_each()) if self.calls is None else self.calls.shapes_seen
        return shapes * self.devices


class CompilationMonitor:
    """Counts traces and XLA compilations of the functions it watches, and the step at which each came.

    The two differ: a function with a `[None]` signature is traced once and compiled again for every shape.
    A strict one stops the run at what was not to be expected; else it has a warning for it.
    """

    def __init__(self, log: NativeLog, *, is_strict: bool, is_compiled: bool) -> None:
        self._log, self._is_strict = log, is_strict
        self._is_compiled = is_compiled
        self._functions: dict[str, _Watched] = {}
        self.events: list[Event] = []

    def watch(self, *functions: Any, calls: CompiledByShape | None = None, devices: int = 1) -> None:
        """Count these tf.functions of one Python function under its name; of each, one trace and one compilation a device are expected.

        calls knows with what they were called, and so which argument is behind a trace too many. Without functions, as with
        `training.debug_eager`, there is nothing to count.
        """
        if not functions:
            return
        name = functions[0].python_function.__name__
        if name in self._functions:
            raise ValueError(
                f"a function named {name} is watched already; XLA's log tells functions apart by name only"
            )
        self._functions[name] = _Watched(functions, calls, devices)

    def counts(self) -> dict[str, dict[str, int]]:
        """Return `{function: {"traces": n, "compilations": n}}`, without the leading underscores of private names."""
        compiled = self._log.compilations()
        return {
            name.lstrip("_"): {"traces": sum(watched.traces_of_each()), "compilations": compiled.get(name, 0)}
            for name, watched in self._functions.items()
        }

    def compile_seconds(self, function: str) -> float:
        """Return how long XLA has worked on the tf.functions of a Python function, by its name."""
        return self._log.compile_seconds(function)

    def memory(self, function: str, estimated_bytes: int | None) -> dict[str, int | None]:
        """Return an estimate made before the run, what XLA gave the largest program of a Python function, and the most in use, in bytes.

        The program's are None if XLA compiled none, as where it came from the compile cache.
        """
        program_bytes = self._log.program_bytes(function)
        return {"estimated_bytes": estimated_bytes, "program_bytes": program_bytes, "peak_bytes": peak_bytes()}

    @property
    def unexpected_shapes(self) -> int:
        """How many shapes, dtypes or types functions were called with that they were not made for."""
        return sum(len(watched.calls.mismatches) for watched in self._functions.values() if watched.calls is not None)

    def look(self, step: int) -> list[str]:
        """Note what has been traced and compiled since the last look; return a warning for each thing that was not to be expected.

        Raises TrainingError instead if strict.
        """
        warnings = []
        for watched, (name, count) in zip(self._functions.values(), self.counts().items(), strict=True):
            traces, compilations = count["traces"] - watched.traces, count["compilations"] - watched.compilations
            if not traces and not compilations:
                continue
            watched.traces, watched.compilations = count["traces"], count["compilations"]
            problem = self._problem(watched)
            self.events.append(Event(step, name, traces, compilations, is_expected=problem is None))
            if problem is not None:
                found = f"{name} has {count['traces']} traces and {count['compilations']} compilations, {problem}"
                if self._is_strict:
                    raise TrainingError(f"step {step}: {found} (training.strict_shapes=false goes on)")
                warnings += _without_flood(watched, found)
        return warnings

    def _problem(self, watched: _Watched) -> str | None:
        """Return what is wrong with the counts and why, or None."""
        expected = watched.expected()
        compilations = expected if self._is_compiled else 0
        is_too_many = watched.traces > expected or watched.compilations > compilations
        if not is_too_many and watched.compilations == compilations:
            return None
        wanted = f"expected {expected} and {compilations}"
        if not is_too_many:
            return f"{wanted}; XLA's compilations cannot be counted in this process"
        if watched.calls is not None and watched.calls.mismatches:
            return f"{wanted}: {watched.calls.mismatches[-1]}"
        return f"{wanted}; no argument changed its shape, dtype or type: a Python value or the shape of a variable that it uses did"


def _without_flood(watched: _Watched, found: str) -> list[str]:
    """Return the warning, or a last one, or none where there have been many of this function."""
    watched.changes_told += 1
    if watched.changes_told == MOST_WARNINGS:
        return [f"{found}; what follows of this kind is only counted (unexpected_shapes in summary.json)"]
    return [found] if watched.changes_told < MOST_WARNINGS else []


@dataclass
class StepTimer:
    """Splits a run's time into waiting for data and the step itself.

    On a CPU each step's time is its own. On a GPU a call returns before its work is done, so a step's time is the wall time of the
    window between two readbacks over its steps, and the wait is an upper bound: the device may be busy while the host waits. So is the
    device's share there: what is not waiting.
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
    _window_seconds: float = 0.0
    _device_seconds: float = 0.0

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Time what happens inside as waiting for data."""
        started = self.clock()
        if not self._window_steps:
            self._window_start = started
        yield
        self.wait_seconds.append(self.clock() - started)

    @contextmanager
    def stepping(self, examples: int) -> Iterator[None]:
        """Time what happens inside as the step."""
        started = self.clock()
        yield
        self.examples.append(examples)
        self._window_steps += 1
        if not self.is_asynchronous:
            self.step_seconds.append(self.clock() - started)

    @contextmanager
    def pausing(self) -> Iterator[None]:
        """Leave what happens inside, once all that was queued is done, out of the window."""
        started = self.clock()
        yield
        self._window_start += self.clock() - started

    def leave_out_last(self) -> None:
        """Say that the last step compiled, being the first of its shape; the summary leaves it out."""
        self._compiling_steps.add(len(self.examples) - 1)

    def close_window(self, mel_frames: int) -> dict[str, float]:
        """Say that everything queued is done and read back; return the window's figures.

        They are the mean step time in ms, the shares of the time spent waiting for data and by the device, and examples a second.
        """
        steps, self._window_steps = self._window_steps, 0
        if not steps:  # a process before this one took them all
            return dict.fromkeys(("step_ms", "data_wait_share", "device_share", "examples_per_second"), math.nan)
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
        window_seconds = max(self.clock() - self._window_start, busy, 1e-9)
        if not self._compiling_steps.intersection(range(len(self.examples) - steps, len(self.examples))):
            self._device_seconds += step
            self._window_seconds += window_seconds
        return {
            "step_ms": 1e3 * (busy if self.is_asynchronous else step) / steps,
            "data_wait_share": wait / max(busy, 1e-9),
            "device_share": step / window_seconds,
            "examples_per_second": sum(self.examples[-steps:]) / window_seconds,
        }

    def summary(self) -> dict[str, Any]:
        """Return step time statistics in ms, the share of time spent waiting for data, and throughput, after warm-up."""
        steps = len(self.step_seconds)
        if not steps:
            return dict.fromkeys(
                ("step_ms", "data_wait_share", "device_share", "examples_per_second", "mel_frames_per_second")
            )
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
            "device_share": self._device_seconds / self._window_seconds if self._window_seconds else None,
            "examples_per_second": sum(self.examples[index] for index in kept) / seconds,
            "mel_frames_per_second": frames_per_step * len(step) / seconds,
        }


def peak_bytes() -> int:
    """Return the most memory that has been in use at once: of the first GPU by TensorFlow, without one of the machine by this process."""
    if tf.config.list_physical_devices("GPU"):
        return int(tf.config.experimental.get_memory_info("GPU:0")["peak"])
    # Linux counts in KiB.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def total_counts(by_function: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    """Return traces and compilations summed, with the counts by function beside them."""
    return {
        "traces": sum(count["traces"] for count in by_function.values()),
        "compilations": sum(count["compilations"] for count in by_function.values()),
        "by_function": {name: dict(count) for name, count in by_function.items()},
    }
