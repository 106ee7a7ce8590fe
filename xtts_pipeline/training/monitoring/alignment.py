"""Whether attention follows the text by the time it should, and what to tell whoever waits for it."""

from collections.abc import Mapping

from xtts_pipeline.config.schema import TrainingConfig

# Sharp and in the right place. Neither does alone: attention that guidance has spread along the diagonal is in the right place without
# reading, and attention stuck on one token is sharp. Looking at all tokens alike gives a focus near 0 and a diagonal share of 0.28.
ALIGNED_FOCUS, ALIGNED_DIAGONAL = 0.5, 0.6
REMEDIES = (
    "train for more steps, raise training.guided_attention_weight, lower model.frames_per_step, use phonemes (text.tokens), "
    "shorter clips, or trim silence (audio.trim_db)"
)


def is_aligned(numbers: Mapping[str, float]) -> bool:
    """Return whether metrics of the step say that attention follows the text."""
    return numbers["attention_focus"] >= ALIGNED_FOCUS and numbers["attention_diagonal"] >= ALIGNED_DIAGONAL


class AlignmentWatch:
    """Sees each report of the training steps, and says once what is amiss.

    aligned_at_step is the first report at which attention was aligned, or None. What fell due up to `reported_step`, the last report of
    a run that goes on, has been said.
    """

    def __init__(self, config: TrainingConfig, aligned_at_step: int | None = None, reported_step: int = 0) -> None:
        self._own_frames_start, self._deadline = config.scheduled_sampling_start, config.aligned_by_step
        start = config.scheduled_sampling_start
        self._is_own_frames_due = start is not None and (reported_step == 0 or reported_step < start)
        self._is_deadline_due = reported_step < self._deadline
        self.aligned_at_step = aligned_at_step

    def look(self, step: int, numbers: Mapping[str, float]) -> list[str]:
        """Return the warnings that fall due with the training metrics of `step`."""
        is_fine = is_aligned(numbers)
        if is_fine and self.aligned_at_step is None:
            self.aligned_at_step = step
        found = (
            f"attention has not aligned (focus {numbers['attention_focus']:.2f}, expected at least {ALIGNED_FOCUS}; "
            f"on the diagonal {numbers['attention_diagonal']:.2f}, expected at least {ALIGNED_DIAGONAL})"
        )
        warnings = []
        if self._is_deadline_due and step >= self._deadline:
            self._is_deadline_due = False
            if not is_fine:
                warnings.append(f"{found} by training.aligned_by_step={self._deadline}; {REMEDIES}")
        if self._own_frames_start is not None and self._is_own_frames_due and step >= self._own_frames_start:
            self._is_own_frames_due = False
            if not is_fine:
                warnings.append(
                    f"the network's own frames begin at training.scheduled_sampling_start={self._own_frames_start} and {found}; "
                    "from frames that say nothing it learns little: start them later"
                )
        return warnings
