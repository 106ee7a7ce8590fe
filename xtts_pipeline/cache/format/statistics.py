"""How lengths are spread over utterances: the numbers of the manifest, of `stats` and of the verifier.

Pure arithmetic on sorted numbers: the same values give the same bytes on every machine.
"""

import math
from collections.abc import Sequence

from xtts_pipeline.cache.format.manifest import Statistics

PERCENTS = (50, 90, 95, 99)


def summarize(values: Sequence[float]) -> Statistics:
    """Return the smallest, mean, percentiles and largest of at least one value, in any order.

    A percentile is the smallest value that so many percent of the values do not exceed (nearest rank): one of them, never between two.
    """
    ordered = sorted(float(value) for value in values)
    # Rounding may carry the mean of equal values past them by one bit.
    mean = min(max(math.fsum(ordered) / len(ordered), ordered[0]), ordered[-1])
    p50, p90, p95, p99 = (ordered[-(-percent * len(ordered) // 100) - 1] for percent in PERCENTS)
    return Statistics(min=ordered[0], mean=mean, p50=p50, p90=p90, p95=p95, p99=p99, max=ordered[-1])
