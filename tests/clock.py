"""A clock that tests set."""


class Clock:
    """Time that passes only when a test advances it."""

    now = 100.0

    def __call__(self) -> float:
        return self.now
