import math

import numpy as np

from xtts_pipeline.data.position import StreamPosition
from xtts_pipeline.training.checkpoints.state import SpikeState
from xtts_pipeline.training.divergence import WARMUP_REPORTS, SkipCount, SpikeWatch, skipped_line


def test_skipped_updates_are_counted_in_all_and_in_a_row() -> None:
    skips = SkipCount()
    skips.add([False, True, True])
    assert (skips.total, skips.in_a_row) == (2, 2)
    skips.add(np.array([True, False]))
    assert (skips.total, skips.in_a_row) == (3, 0)


def test_each_spike_is_warned_of_once() -> None:
    random = np.random.default_rng(0)
    watch = SpikeWatch(SpikeState())
    calm = [float(2.0 + 0.05 * random.normal()) for _ in range(40)]
    assert [line for loss in calm for line in watch.check(loss)] == []
    (warning,) = watch.check(5.0)
    assert warning.startswith("the loss leapt to 5.000 from about 2.0")
    assert watch.check(5.5) == []
    assert watch.check(2.0) == []
    assert len(watch.check(6.0)) == 1


def test_the_first_reports_and_values_that_are_not_finite_are_no_spikes() -> None:
    watch = SpikeWatch(SpikeState())
    for loss in [*np.linspace(9.0, 2.0, WARMUP_REPORTS), *[2.0] * 10, math.nan, 1.9]:
        assert watch.check(float(loss)) == []


def test_a_watch_continues_from_its_state() -> None:
    losses = [2.0 + 0.01 * (index % 7) for index in range(20)] + [4.0]
    whole = SpikeWatch(SpikeState())
    warnings = [line for loss in losses for line in whole.check(loss)]
    first = SpikeWatch(SpikeState())
    for loss in losses[:13]:
        first.check(loss)
    second = SpikeWatch(first.state)
    assert [line for loss in losses[13:] for line in second.check(loss)] == warnings
    assert second.state == whole.state


def test_a_skipped_line_names_all_clips_and_those_not_finite() -> None:
    line = skipped_line(7, StreamPosition(1, 2), math.inf, 3.0, [("a", True), ("b", False)])
    assert line == {
        "step": 7,
        "epoch": 1,
        "batch": 2,
        "loss": None,
        "gradient_norm": 3.0,
        "not_finite": ["b"],
        "ids": ["a", "b"],
    }
