"""Find a period in a series: batches that come in bursts, a device that works and rests by turns."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

LEAST_VALUES = 20
LEAST_STRENGTH = 0.5
LEAST_SPREAD = 0.3


@dataclass(frozen=True)
class Oscillation:
    """A series that repeats itself every `period` values; strength is its autocorrelation there, spread its std over its mean."""

    period: int
    strength: float
    spread: float

    def to_json(self) -> dict[str, Any]:
        """Return it as `--json` prints it."""
        return asdict(self)


def find_oscillation(values: Sequence[float]) -> Oscillation | None:
    """Return the period of the series, or None if it has none: too short, too even, or uneven without a rule.

    A large std alone is no oscillation: one stall makes it, and it comes back in no rhythm.
    """
    series = np.asarray(values, np.float64)
    if len(series) < LEAST_VALUES or series.mean() <= 0.0:
        return None
    spread = float(series.std() / series.mean())
    if spread < LEAST_SPREAD:
        return None
    centred = series - series.mean()
    lags = range(2, len(series) // 3 + 1)
    # Of equally long parts, so that a long lag is not weaker for being long.
    strengths = [_correlation(centred[:-lag], centred[lag:]) for lag in lags]
    best = max(strengths)
    if best < LEAST_STRENGTH:
        return None
    # The period itself, not one of its multiples, which repeat as well.
    first = next(index for index, strength in enumerate(strengths) if strength >= 0.9 * best)
    return Oscillation(lags[first], strengths[first], spread)


def _correlation(one: np.ndarray, other: np.ndarray) -> float:
    scale = float(np.linalg.norm(one) * np.linalg.norm(other))
    return float(one @ other) / scale if scale else 0.0
