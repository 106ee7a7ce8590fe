"""The judgement of benchmarks/stall.py; its run takes long and is started by hand."""

import pytest

from benchmarks.stall import HANDING_OVER, Step, Times, judge
from xtts_pipeline.training.checkpoints.saver import CheckpointSaver

PLAIN = [Step(100.0), Step(110.0)]


def test_steps_are_grouped_by_the_events_during_them() -> None:
    times = Times(asked=[0.0, 1.0, 2.0, 3.0, 4.0, 5.0], handed_over=[(1.9, 1.91)], written=[(1.92, 2.5)])
    assert times.steps(evaluate_every=5) == [
        Step(1_000.0),
        Step(1_000.0, is_saved=True),
        Step(1_000.0, is_beside_writing=True),
        Step(1_000.0),
        Step(1_000.0, is_evaluated=True),
    ]


@pytest.mark.parametrize(
    ("saved_ms", "hand_over_ms", "is_ok"),
    [(129.0, 0.2, True), (131.0, 0.2, False), (129.0, 111.0, False)],
    ids=["the copy alone", "more than the copy", "waits for the writer"],
)
def test_a_checkpoint_may_cost_only_its_copy(saved_ms: float, hand_over_ms: float, *, is_ok: bool) -> None:
    beside = [Step(500.0, is_beside_writing=True), Step(900.0, is_evaluated=True)]
    judged = judge([*PLAIN, Step(saved_ms, is_saved=True), *beside], [15.0, 20.0], [hand_over_ms])
    assert judged["ok"] is is_ok
    assert judged["step_ms"] == {"count": 2, "median": 105.0, "longest": 110.0}
    assert judged["copy_ms"]["longest"] == 20.0


def test_a_run_without_a_checkpoint_cannot_be_judged() -> None:
    with pytest.raises(SystemExit, match="no step with a checkpoint"):
        judge(PLAIN, [], [])


def test_what_is_timed_is_there() -> None:
    assert all(callable(getattr(CheckpointSaver, name)) for name in HANDING_OVER)
