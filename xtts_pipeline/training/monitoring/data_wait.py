"""Say once that a run waits for its data, and what to do about it."""

WAIT_SHARE = 0.05
STEPS = 100


class DataWaitWatch:
    """Looks at every report; what makes it speak is 100 steps in a row whose reports each waited over 5% of their time."""

    def __init__(self, advice: str) -> None:
        """Take what the line ends with: how to find out why, or what would be faster."""
        self._advice = advice
        self._last_step: int | None = None
        self._steps = 0
        self._has_spoken = False

    def look(self, step: int, wait_share: float) -> list[str]:
        """Take in the share of the time since the last report spent waiting; return the warning when it is due, else nothing."""
        # A first report may be of a run that goes on: how many of its steps are new is not known.
        # A run that was rolled back counts again from an earlier step.
        steps = 0 if self._last_step is None else max(step - self._last_step, 0)
        self._last_step = step
        self._steps = self._steps + steps if wait_share > WAIT_SHARE else 0
        if self._has_spoken or self._steps < STEPS:
            return []
        self._has_spoken = True
        return [
            (
                f"{wait_share:.0%} of the time is spent waiting for data, and over {WAIT_SHARE:.0%} for {self._steps} steps; {self._advice}"
            )
        ]
