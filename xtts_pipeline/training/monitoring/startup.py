"""Measure the time from the start of the command to the end of the first step, part by part.

Imports no TensorFlow: the clock starts before TensorFlow is imported.
"""

import time
from collections.abc import Callable

from xtts_pipeline.system.terminal import duration_text

# In this order. `check`: before TensorFlow is imported. `input`: the wait for the first batch. `run`: the first step
# without tracing and compilation.
STARTUP_PARTS = ("check", "import", "build", "input", "trace", "compile", "run")


class StartupTimer:
    """Times the parts of a start, which follow each other without a gap.

    estimated_bytes: the memory estimate made before the run; None without one.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self.estimated_bytes: int | None = None
        self._last = clock()
        self.seconds = dict.fromkeys(STARTUP_PARTS, 0.0)

    @property
    def is_over(self) -> bool:
        """Whether the first step is done."""
        return self.seconds["run"] > 0.0

    def end_part(self, part: str) -> None:
        """Add the time since the end of the previous part."""
        now = self._clock()
        self.seconds[part] += now - self._last
        self._last = now

    def end_first_step(self, compile_seconds: float) -> None:
        """End the parts `compile` and `run`; `compile_seconds` is XLA's share of the first step."""
        self.end_part("run")
        compiling = min(compile_seconds, self.seconds["run"])
        self.seconds["compile"] += compiling
        # Never 0: `is_over` depends on it.
        self.seconds["run"] = max(self.seconds["run"] - compiling, 1e-6)

    def __str__(self) -> str:
        compiling = duration_text(self.seconds["trace"] + self.seconds["compile"])
        return f"first step done after {duration_text(sum(self.seconds.values()))}, {compiling} of them to compile"
