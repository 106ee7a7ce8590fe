"""Find a period in a series, such as batches in bursts, or a device that works and rests in turn."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

LEAST_VALUES = 20
LEAST_STRENGTH = 0.5
LEAST_SPREAD = 0.3


@dataclass(frozen=True)
class Oscillation:
    """A series with a period of `period` values, its autocorrelation there, and its std over mean as `spread`."""

    period: int
    strength: float
    spread: float


def find_oscillation(values: Sequence[float]) -> Oscillation | None:
    """Return the oscillation of a series, or None if it is too short, too even, or uneven without a period.

    A large std alone is no oscillation: a single stall causes it.
    """
    series = np.asarray(values, np.float64)
    if len(series) < LEAST_VALUES or series.mean() <= 0.0:
        return None
    spread = float(series.std() / series.mean())
    if spread < LEAST_SPREAD:
        return None
    centred = series - series.mean()
    lags = range(2, len(series) // 3 + 1)
    # Correlate parts of equal length, so that a long lag is not at a disadvantage.
    strengths = [_correlation(centred[:-lag], centred[lag:]) for lag in lags]
    best = max(strengths)
    if best < LEAST_STRENGTH:
        return None
    # The period itself, not a multiple, which correlates as well.
    first = next(index for index, strength in enumerate(strengths) if strength >= 0.9 * best)
    return Oscillation(lags[first], strengths[first], spread)


def _correlation(one: np.ndarray, other: np.ndarray) -> float:
    scale = float(np.linalg.norm(one) * np.linalg.norm(other))
    return float(one @ other) / scale if scale else 0.0
