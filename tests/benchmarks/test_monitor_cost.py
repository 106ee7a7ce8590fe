"""The figures of the retrace monitor's cost: medians, rounds and shares."""

from itertools import count

import numpy as np
import pytest

from benchmarks.monitor import CALLS_A_ROUND, cost, seconds_a_call


def test_the_share_is_of_the_median_step_and_a_disturbed_look_is_not_in_it() -> None:
    found = cost(np.array([20e-6, 30e-6, 25e-6, 9e-3, 24e-6]), np.array([0.2, 0.3, 0.25, 4.0, 0.26]))
    assert found["monitor_us"] == pytest.approx(25.0)
    assert found["monitor_p95_us"] > 1_000
    assert found["step_ms"] == pytest.approx(260.0)
    assert found["share"] == pytest.approx(25e-6 / 0.26)
    assert found["least_step_ms_for_a_thousandth"] == pytest.approx(25.0)


def test_calls_are_timed_by_the_hundred() -> None:
    called: list[int] = []
    seconds, ticks = (
        seconds_a_call(lambda: called.append(1), 350, clock=count(0.0, 0.5).__next__),
        [0.5 / CALLS_A_ROUND] * 3,
    )
    assert seconds.tolist() == pytest.approx(ticks)
    assert len(called) == 300
    assert len(seconds_a_call(lambda: None, 5)) == 1
