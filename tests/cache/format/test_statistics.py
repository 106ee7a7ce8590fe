from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xtts_pipeline.cache.format.manifest import summarize


def test_percentiles_are_nearest_ranks() -> None:
    statistics = summarize(range(1, 201))

    assert (statistics.min, statistics.mean, statistics.max) == (1.0, 100.5, 200.0)
    assert (statistics.p50, statistics.p90, statistics.p95, statistics.p99) == (100.0, 180.0, 190.0, 198.0)


def test_one_value_is_every_percentile() -> None:
    statistics = summarize([3])

    assert {statistics.min, statistics.mean, statistics.p50, statistics.p99, statistics.max} == {3.0}


@given(st.lists(st.floats(0, 100), min_size=1, max_size=50), st.randoms())
def test_any_order_gives_the_same_numbers_in_ascending_order(values: list[float], random: Random) -> None:
    statistics = summarize(values)
    shuffled = list(values)
    random.shuffle(shuffled)

    assert summarize(shuffled) == statistics
    assert statistics.min <= statistics.p50 <= statistics.p90 <= statistics.p95 <= statistics.p99 <= statistics.max
    assert statistics.min <= statistics.mean <= statistics.max


def test_percentiles_agree_with_numpy() -> None:
    values = np.random.default_rng(0).gamma(4, 2, 777)

    assert summarize(values).p95 == pytest.approx(np.percentile(values, 95, method="inverted_cdf"))
