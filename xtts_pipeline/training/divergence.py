"""Signs of divergence: updates skipped because they were not finite, and jumps of the loss."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from xtts_pipeline.data.position import StreamPosition
from xtts_pipeline.training.checkpoints.state import SpikeState

# No spike is detected in the first reports, in which the loss falls quickly.
WARMUP_REPORTS = 10
# A spike exceeds the running mean by this many deviations and by this factor.
MIN_DEVIATIONS, MIN_FACTOR = 6.0, 1.25
_DECAY = 0.9


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


class SpikeWatch:
    """Compares each reported loss with the running mean and deviation of those before, and warns once of each spike."""

    def __init__(self, state: SpikeState) -> None:
        self.state = state

    def check(self, loss: float) -> list[str]:
        """Add a reported loss; return a warning if a spike begins. A loss that is not finite is ignored."""
        state = self.state
        if not math.isfinite(loss):
            return []
        deviation = math.sqrt(state.variance)
        bound = max(state.mean + MIN_DEVIATIONS * deviation, state.mean * MIN_FACTOR)
        is_spike = state.reports >= WARMUP_REPORTS and loss > bound
        share = max(1.0 - _DECAY, 1.0 / (state.reports + 1))
        # A spike counts as its bound. With its full height the next spike would look normal.
        distance = (min(loss, bound) if state.reports >= WARMUP_REPORTS else loss) - state.mean
        variance = (1.0 - share) * (state.variance + share * distance * distance)
        self.state = SpikeState(state.reports + 1, state.mean + share * distance, variance, is_spike)
        if not is_spike or state.is_spike:
            return []
        remedy = "if it does not come back, lower training.learning_rate or training.clip_norm"
        return [f"the loss leapt to {loss:.3f} from about {state.mean:.3f}; {remedy}"]


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
