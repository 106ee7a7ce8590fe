"""Detect frames that do not align with tokens, waiting for data, and jumps of the loss.

Each monitor warns once per problem. Every `check` takes the figures of a report and returns the warnings that are due.
"""

import math
from collections.abc import Mapping

from xtts_pipeline.config.schema import TrainingConfig
from xtts_pipeline.training.checkpoints.state import LossSpikeState

# A sure path may be a wrong one; the tokens' mean frames show whether it is right.
ALIGNED_FIT = 0.4
ALIGNMENT_REMEDIES = "train for more steps, use phonemes (text.tokens), shorter clips, or trim silence (audio.trim_db)"
MAX_WAIT_SHARE, WAITING_STEPS = 0.05, 100
# To fetch a batch that is ready took 0.6 ms on the machine of an H100: docs/benchmarks/gpu.md.
LEAST_WAIT_MS = 1.0
# No spike is detected in the first reports, in which the loss falls quickly.
WARMUP_REPORTS = 10
# A spike exceeds the running mean by this many deviations and by this factor.
MIN_DEVIATIONS, MIN_FACTOR = 6.0, 1.25
_DECAY = 0.9


class AlignmentMonitor:
    """Warns if frames are not aligned with tokens by `aligned_by_step`.

    aligned_at_step: the first report with aligned frames, or None.
    """

    def __init__(self, config: TrainingConfig, aligned_at_step: int | None = None, reported_step: int = 0) -> None:
        """Continue after the report of `reported_step`; a warning due until then is not repeated."""
        self._deadline = config.aligned_by_step
        self._is_pending = reported_step < self._deadline
        self.aligned_at_step = aligned_at_step

    def check(self, step: int, numbers: Mapping[str, float]) -> list[str]:
        """Return the warning if it is due after the report of `step`."""
        fit = numbers["alignment_fit"]
        if fit >= ALIGNED_FIT and self.aligned_at_step is None:
            self.aligned_at_step = step
        is_due = self._is_pending and step >= self._deadline
        self._is_pending &= step < self._deadline
        if self.aligned_at_step is not None or not is_due:
            return []
        found = f"alignment_fit {fit:.2f}, expected at least {ALIGNED_FIT}"
        by = f"by training.aligned_by_step={self._deadline}"
        return [f"frames have not aligned with tokens ({found}) {by}; {ALIGNMENT_REMEDIES}"]


class DataWaitMonitor:
    """Warns once after 100 consecutive steps whose reports each spent over 5% of their time waiting for data.

    An asynchronous device works while the host fetches a batch that is ready, so there a wait under 1 ms is none.
    """

    def __init__(self, advice: str, *, is_asynchronous: bool = False) -> None:
        """Take the end of the warning: how to find the cause, or what would be faster."""
        self._advice, self._least_ms = advice, LEAST_WAIT_MS if is_asynchronous else 0.0
        self._last_step: int | None = None
        self._steps = 0
        self._has_warned = False

    def check(self, step: int, wait_share: float, step_ms: float) -> list[str]:
        """Add the share of time spent waiting since the last report; return the warning if it is due.

        `step_ms` is that of `StepTimer.close_window`, with the wait on an asynchronous device.
        """
        # The first report may continue a run: how many of its steps are new is unknown.
        # After a roll-back the step is an earlier one.
        steps = 0 if self._last_step is None else max(step - self._last_step, 0)
        self._last_step = step
        is_waiting = wait_share > MAX_WAIT_SHARE and wait_share * step_ms > self._least_ms
        self._steps = self._steps + steps if is_waiting else 0
        if self._has_warned or self._steps < WAITING_STEPS:
            return []
        self._has_warned = True
        shares = f"{wait_share:.0%} of the time is spent waiting for data, and over {MAX_WAIT_SHARE:.0%}"
        return [f"{shares} for {self._steps} steps; {self._advice}"]


class LossSpikeMonitor:
    """Compares each reported loss with the running mean and deviation of earlier ones; warns once per spike."""

    def __init__(self, state: LossSpikeState) -> None:
        self.state = state

    def check(self, loss: float) -> list[str]:
        """Add a reported loss; return a warning if a spike begins. A loss that is not finite is ignored."""
        state = self.state
        if not math.isfinite(loss):
            return []
        deviation = math.sqrt(state.variance)
        bound = max(state.mean + MIN_DEVIATIONS * deviation, state.mean * MIN_FACTOR)
        is_warm = state.reports >= WARMUP_REPORTS
        is_spike = is_warm and loss > bound
        share = max(1.0 - _DECAY, 1.0 / (state.reports + 1))
        # A spike counts as its bound. With its full height the next spike would look normal.
        distance = (min(loss, bound) if is_warm else loss) - state.mean
        variance = (1.0 - share) * (state.variance + share * distance * distance)
        self.state = LossSpikeState(state.reports + 1, state.mean + share * distance, variance, is_spike)
        if not is_spike or state.is_spike:
            return []
        remedy = "if it does not come back, lower training.learning_rate or training.clip_norm"
        return [f"the loss leapt to {loss:.3f} from about {state.mean:.3f}; {remedy}"]
