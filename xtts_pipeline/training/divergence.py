"""Numbers that go wrong: updates that were left out because they were not finite, and losses that leap."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from xtts_pipeline.data.position import StreamPosition
from xtts_pipeline.training.checkpoints.state import SpikeState

# Reports before a leap can be told from the fall of the first steps, and how far over the mean of what came before it must be.
CALM_REPORTS = 10
LEAST_DEVIATIONS, LEAST_RISE = 6.0, 1.25
_MEMORY = 0.9


@dataclass
class SkipCount:
    """How many updates were left out: in all, and in a row up to the last step that was read back."""

    total: int = 0
    in_a_row: int = 0

    def add(self, skipped: Sequence[bool] | np.ndarray) -> None:
        """Take in steps, the oldest first."""
        for is_skipped in skipped:
            self.total += bool(is_skipped)
            self.in_a_row = self.in_a_row + 1 if is_skipped else 0


class SpikeWatch:
    """Sees the loss of each report and says when it leaps, once a leap: against a running mean and deviation of those before."""

    def __init__(self, state: SpikeState) -> None:
        self.state = state

    def look(self, loss: float) -> list[str]:
        """Return the warning, if one is due; what is not finite is passed over."""
        state = self.state
        if not math.isfinite(loss):
            return []
        deviation = math.sqrt(state.variance)
        bound = max(state.mean + LEAST_DEVIATIONS * deviation, state.mean * LEAST_RISE)
        is_spike = state.reports >= CALM_REPORTS and loss > bound
        share = max(1.0 - _MEMORY, 1.0 / (state.reports + 1))
        # A leap counts as its bound: were it taken whole, the next one would pass for calm.
        distance = (min(loss, bound) if state.reports >= CALM_REPORTS else loss) - state.mean
        variance = (1.0 - share) * (state.variance + share * distance * distance)
        self.state = SpikeState(state.reports + 1, state.mean + share * distance, variance, is_spike)
        if not is_spike or state.is_spike:
            return []
        remedy = "if it does not come back, lower training.learning_rate or training.clip_norm"
        return [f"the loss leapt to {loss:.3f} from about {state.mean:.3f}; {remedy}"]


def skipped_line(
    step: int, position: StreamPosition, loss_and_norm: tuple[float, float], clips: Sequence[tuple[str, bool]]
) -> dict[str, Any]:
    """Return what skipped.jsonl says of a step: the batch's clips, ids and whether they are finite, and those that are not."""
    loss, norm = (float(number) if math.isfinite(number) else None for number in loss_and_norm)
    return {
        "step": step,
        "epoch": position.epoch,
        "batch": position.batch,
        "loss": loss,
        "gradient_norm": norm,
        "not_finite": [name for name, is_finite in clips if not is_finite],
        "ids": [name for name, _ in clips],
    }
