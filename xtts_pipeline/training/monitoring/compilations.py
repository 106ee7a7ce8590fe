"""Count the traces and XLA compilations of a run's functions, and report every one that was not expected.

Counting reads counters and XLA's log. It waits for no device.
"""

import resource
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from xtts_pipeline.errors import TrainingError
from xtts_pipeline.system.runtime import NativeLog
from xtts_pipeline.system.terminal import echo_line
from xtts_pipeline.training.compiled import CompiledByShape, Compiling

MAX_WARNINGS = 5
# Names of the Python functions of a run, for people.
_PARTS = {
    "_train_step": "the training step",
    "_reconstruction_step": "the training step without discriminators",
    "_gradient_step": "the training step",
    "_first_gradient_step": "the training step without discriminators",
    "_evaluate_step": "the evaluation",
    "_speak_step": "the synthesis of samples",
}


@dataclass(frozen=True)
class CompilationEvent:
    """The new traces and compilations of one function after one step."""

    step: int
    function: str
    traces: int
    compilations: int
    is_expected: bool


@dataclass
class _Watched:
    """The tf.functions of one Python function and their counts at the last check."""

    functions: tuple[Any, ...]
    calls: CompiledByShape | None
    devices: int = 1
    traces: int = 0
    compilations: int = 0
    warnings: int = 0

    def trace_counts(self) -> list[int]:
        return [function.experimental_get_tracing_count() for function in self.functions]

    def expected_traces(self) -> int:
        """Return the number of traces that the calls so far need."""
        shapes = sum(traces > 0 for traces in self.trace_counts()) if self.calls is None else self.calls.shapes_seen
        return shapes * self.devices


class CompilationMonitor:
    """Counts traces and XLA compilations of the watched functions and records the step of each.

    The counts can differ: a function with a `[None]` signature is traced once and compiled again for every shape.
    A strict monitor raises an error for an unexpected trace or compilation; otherwise it returns a warning.
    compiling: opens a context around each expected compilation, to show what is compiled.
    """

    def __init__(
        self,
        log: NativeLog,
        *,
        is_strict: bool,
        is_compiled: bool,
        compiling: Compiling = lambda _: nullcontext(),
    ) -> None:
        self._log, self._is_strict, self._compiling = log, is_strict, compiling
        self._is_compiled = is_compiled
        self._functions: dict[str, _Watched] = {}
        self.events: list[CompilationEvent] = []

    def watch(self, *functions: Any, calls: CompiledByShape | None = None, devices: int = 1) -> None:
        """Watch the tf.functions of one Python function; each may have one trace and one compilation per device.

        `calls` knows the shapes of the calls, so it can name the argument behind an unexpected trace. No functions are
        given with `training.debug_eager`. Raises ValueError if the name is watched already.
        """
        if not functions:
            return
        if calls is not None:
            calls.compiling = lambda function: self._compiling(_PARTS.get(function, function))
        name = functions[0].python_function.__name__
        if name in self._functions:
            raise ValueError(
                f"a function named {name} is watched already; XLA's log tells functions apart by name only"
            )
        self._functions[name] = _Watched(functions, calls, devices)

    def counts(self) -> dict[str, dict[str, int]]:
        """Return `{function: {"traces": n, "compilations": n}}`; names have no leading underscore."""
        compiled = self._log.compilations()
        return {
            name.lstrip("_"): {"traces": sum(watched.trace_counts()), "compilations": compiled.get(name, 0)}
            for name, watched in self._functions.items()
        }

    def compile_seconds(self, function: str) -> float:
        """Return XLA's compile time for the Python function of this name."""
        return self._log.compile_seconds(function)

    def memory(self, function: str, estimated_bytes: int | None) -> dict[str, int | None]:
        """Return the estimate, the bytes of the function's largest XLA program and the peak memory in use.

        `program_bytes` is None if XLA compiled nothing, for example if the program came from the compile cache.
        """
        program_bytes = self._log.program_bytes(function)
        return {"estimated_bytes": estimated_bytes, "program_bytes": program_bytes, "peak_bytes": peak_bytes()}

    @property
    def unexpected_shapes(self) -> int:
        """The number of different shapes, dtypes and types of calls that fitted no signature."""
        return sum(len(watched.calls.mismatches) for watched in self._functions.values() if watched.calls is not None)

    def check(self, step: int) -> list[str]:
        """Record the traces and compilations since the last check; return a warning for each unexpected change.

        Raises TrainingError instead of a warning if strict.
        """
        warnings = []
        for watched, (name, count) in zip(self._functions.values(), self.counts().items(), strict=True):
            traces, compilations = count["traces"] - watched.traces, count["compilations"] - watched.compilations
            if not traces and not compilations:
                continue
            watched.traces, watched.compilations = count["traces"], count["compilations"]
            problem = self._problem(watched)
            self.events.append(CompilationEvent(step, name, traces, compilations, is_expected=problem is None))
            if problem is None:
                continue
            found = f"{name} has {count['traces']} traces and {count['compilations']} compilations, {problem}"
            if self._is_strict:
                raise TrainingError(f"step {step}: {found} (training.strict_shapes=false goes on)")
            watched.warnings += 1
            if watched.warnings == MAX_WARNINGS:
                found += "; later ones are only counted (unexpected_shapes in summary.json)"
            if watched.warnings <= MAX_WARNINGS:
                warnings.append(found)
        return warnings

    def _problem(self, watched: _Watched) -> str | None:
        """Return what was expected instead of the counts, and why they differ; None if they are right."""
        expected = watched.expected_traces()
        compilations = expected if self._is_compiled else 0
        is_too_many = watched.traces > expected or watched.compilations > compilations
        if not is_too_many and watched.compilations == compilations:
            return None
        wanted = f"expected {expected} and {compilations}"
        if not is_too_many:
            return f"{wanted}; XLA's compilations cannot be counted in this process"
        if watched.calls is not None and watched.calls.mismatches:
            return f"{wanted}: {watched.calls.mismatches[-1]}"
        return (
            f"{wanted}; no argument changed its shape, dtype or type: "
            "a Python value or the shape of a variable that it uses did"
        )


@contextmanager
def echo_compilation(what: str) -> Iterator[None]:
    """Print on stderr that the block compiles."""
    echo_line(f"compiling {what}")
    yield


def peak_bytes() -> int:
    """Return the peak memory of TensorFlow on the first GPU or, without a GPU, of the process in RAM."""
    if tf.config.list_physical_devices("GPU"):
        return int(tf.config.experimental.get_memory_info("GPU:0")["peak"])
    # Linux reports KiB.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def total_counts(by_function: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    """Return the sums of traces and compilations, and the counts by function."""
    return {
        "traces": sum(count["traces"] for count in by_function.values()),
        "compilations": sum(count["compilations"] for count in by_function.values()),
        "by_function": {name: dict(count) for name, count in by_function.items()},
    }
