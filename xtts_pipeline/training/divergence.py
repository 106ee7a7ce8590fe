"""Count skipped updates, and describe each in skipped.jsonl."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from xtts_pipeline.data.position import StreamPosition


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


def skipped_line(
    step: int, position: StreamPosition, loss: float, gradient_norm: float, clips: Sequence[tuple[str, bool]]
) -> dict[str, Any]:
    """Return the line of skipped.jsonl for one step; `clips` are the batch's ids, each with whether its mel is finite."""
    return {
        "step": step,
        "epoch": position.epoch,
        "batch": position.batch,
        "loss": float(loss) if math.isfinite(loss) else None,
        "gradient_norm": float(gradient_norm) if math.isfinite(gradient_norm) else None,
        "not_finite": [name for name, is_finite in clips if not is_finite],
        "ids": [name for name, _ in clips],
    }
