"""Length statistics of utterances: the numbers of the manifest, of `xtts stats` and of the verifier.

Pure arithmetic on sorted numbers: equal values give equal bytes on every machine.
"""

import math
from collections.abc import Sequence

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

PERCENTS = (50, 90, 95, 99)


@dataclass(frozen=True, config=ConfigDict(strict=True, extra="forbid", allow_inf_nan=False))
class Statistics:
    """The distribution of a length over the kept utterances."""

    min: float
    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float


def summarize(values: Sequence[float]) -> Statistics:
    """Return minimum, mean, percentiles and maximum of at least one value, in any order.

    Percentiles are nearest ranks: the smallest value that this percentage of values does not exceed.
    """
    ordered = sorted(float(value) for value in values)
    # Rounding can move the mean of equal values past them by one bit.
    mean = min(max(math.fsum(ordered) / len(ordered), ordered[0]), ordered[-1])
    p50, p90, p95, p99 = (ordered[-(-percent * len(ordered) // 100) - 1] for percent in PERCENTS)
    return Statistics(min=ordered[0], mean=mean, p50=p50, p90=p90, p95=p95, p99=p99, max=ordered[-1])
