"""Find clips whose text is too long or too short for their sound, a sign of a wrong transcript."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from xtts_pipeline.cache.build.publish import BuildTotals

MIN_CLIPS = 20  # too few clips define no usual rate
MIN_SCORE = 6.0
_MAD_TO_DEVIATION = 1.4826  # for a normal distribution


@dataclass(frozen=True)
class Outlier:
    """A kept clip far from its language's usual rate. `score` counts robust standard deviations of the log rate."""

    id: str
    characters_per_second: float
    usual: float
    score: float

    def to_json(self) -> dict[str, str | float]:
        """Return the outlier as `--json` lists it."""
        return {
            "id": self.id,
            "characters_per_second": round(self.characters_per_second, 2),
            "usual": round(self.usual, 2),
            "score": round(self.score, 1),
        }


def find_outliers(totals: BuildTotals) -> list[Outlier]:
    """Return the clips with unusual characters per second, the furthest first."""
    languages = np.array(totals.languages)
    rates = (
        np.frombuffer(totals.characters, np.int64) / np.frombuffer(totals.seconds, np.float64)
        if totals.ids
        else np.zeros(0)
    )
    outliers = []
    for language in sorted(set(totals.languages)):
        places = np.flatnonzero(languages == language)
        if len(places) >= MIN_CLIPS:
            outliers += _outliers_among(places, rates, totals.ids)
    return sorted(outliers, key=lambda outlier: (-abs(outlier.score), outlier.id))


def _outliers_among(places: np.ndarray, rates: np.ndarray, ids: Sequence[str]) -> list[Outlier]:
    logs = np.log(rates[places])
    scores, usual = robust_scores(logs), float(np.exp(np.median(logs)))
    return [
        Outlier(ids[places[at]], float(rates[places[at]]), usual, float(scores[at]))
        for at in np.flatnonzero(np.abs(scores) >= MIN_SCORE)
    ]


def robust_scores(values: np.ndarray, least_deviation: float = 0.0) -> np.ndarray:
    """Return each value's distance from the median in robust standard deviations; zeros if these are 0."""
    distances = values - np.median(values)
    deviation = max(_MAD_TO_DEVIATION * float(np.median(np.abs(distances))), least_deviation)
    return distances / deviation if deviation else np.zeros(len(values))
