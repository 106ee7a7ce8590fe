"""What a run costs before it runs: the time until the first step is done, part by part, and the memory that was reckoned with.

Knows no TensorFlow: it is there before that is imported.
"""

import time
from collections.abc import Callable

# In the order in which they come. `check` is what is looked at before TensorFlow is imported; `input` is the wait for the first batch,
# `run` what is left of the first step when it has been traced and compiled.
PARTS = ("check", "import", "build", "input", "trace", "compile", "run")


class StartUp:
    """Notes when each part of a start is over; the parts come in their order.

    estimated_bytes is the memory that the run was reckoned to need before it began; None where nobody did.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self.estimated_bytes: int | None = None
        self._last = clock()
        self.seconds = dict.fromkeys(PARTS, 0.0)

    @property
    def is_over(self) -> bool:
        """Whether the first step is done."""
        return self.seconds["run"] > 0.0

    def note(self, part: str) -> None:
        """Say that a part is over, which began when the one before it was over."""
        now = self._clock()
        self.seconds[part] += now - self._last
        self._last = now

    def note_first_step(self, compile_seconds: float) -> None:
        """Say that the first step is done, and how much of its time was XLA's."""
        self.note("run")
        compiling = min(compile_seconds, self.seconds["run"])
        self.seconds["compile"] += compiling
        # Never nothing: a run that is over is told by it.
        self.seconds["run"] = max(self.seconds["run"] - compiling, 1e-6)

    def __str__(self) -> str:
        parts = ", ".join(f"{part} {seconds:.1f}" for part, seconds in self.seconds.items())
        return f"first step done after {sum(self.seconds.values()):.1f} s ({parts})"
