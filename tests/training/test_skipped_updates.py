import math

import numpy as np

from xtts_pipeline.data.schedule import StreamPosition
from xtts_pipeline.training.skipped_updates import SkipCount, skipped_line


def test_skipped_updates_are_counted_in_all_and_in_a_row() -> None:
    skips = SkipCount()
    skips.add([False, True, True])
    assert (skips.total, skips.in_a_row) == (2, 2)
    skips.add(np.array([True, False]))
    assert (skips.total, skips.in_a_row) == (3, 0)


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
