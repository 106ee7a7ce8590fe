"""Count skipped updates, and describe each in skipped.jsonl."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from xtts_pipeline.data.schedule import StreamPosition
from xtts_pipeline.training.checkpoints.run_folder import SKIPPED_NAME
from xtts_pipeline.training.monitoring.metrics import JsonLinesFile, MetricsBuffer

# Ids of a batch's clips, each with whether its mel is finite.
Clips = Sequence[tuple[str, bool]]


@dataclass
class SkipCount:
    """The number of skipped updates: in all, and in a row up to the last step that was read back."""

    total: int = 0
    in_a_row: int = 0

    def add(self, skipped: Sequence[bool] | np.ndarray) -> None:
        """Count steps, the oldest first."""
        for is_skipped in skipped:
            self.total += bool(is_skipped)
            self.in_a_row = self.in_a_row + 1 if is_skipped else 0


class SkipLog:
    """Writes skipped.jsonl, one line for each skipped step with the clips of its batch."""

    def __init__(self, file: JsonLinesFile, clips_of: Callable[[Sequence[StreamPosition]], Sequence[Clips]]) -> None:
        self._file, self._clips_of = file, clips_of

    def write(
        self, last_step: int, window: MetricsBuffer, is_skipped: np.ndarray, positions: Sequence[StreamPosition]
    ) -> str | None:
        """Write the skipped steps of a window that ends with `last_step`; return a warning of the run's first one."""
        skipped = np.flatnonzero(is_skipped).tolist()
        if not skipped:
            return None
        # A run that is resumed or rolled back keeps its lines.
        has_lines = self._file.size > 0
        losses, norms = window.column("loss"), window.column("gradient_norm")
        all_clips = self._clips_of([positions[index] for index in skipped])
        lines = [
            skipped_line(last_step - len(positions) + index + 1, positions[index], losses[index], norms[index], clips)
            for index, clips in zip(skipped, all_clips, strict=True)
        ]
        for line in lines:
            self._file.write(line)
        if has_lines:
            return None
        first = lines[0]
        names = ", ".join(first["not_finite"] or first["ids"])
        who = f"not finite in the cache: {names}" if first["not_finite"] else f"of {names}"
        found = f"step {first['step']}: the update was not finite and is left out ({who})"
        return f"{found}; {SKIPPED_NAME} has each such step"


def skipped_line(
    step: int, position: StreamPosition, loss: float, gradient_norm: float, clips: Clips
) -> dict[str, Any]:
    """Return the line of skipped.jsonl for one step."""
    return {
        "step": step,
        "epoch": position.epoch,
        "batch": position.batch,
        "loss": float(loss) if math.isfinite(loss) else None,
        "gradient_norm": float(gradient_norm) if math.isfinite(gradient_norm) else None,
        "not_finite": [name for name, is_finite in clips if not is_finite],
        "ids": [name for name, _ in clips],
    }
