"""The step as trials run it."""

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from xtts_pipeline.data.batch_stream import BatchStream, CopiedBatchStream
from xtts_pipeline.perf import trial
from xtts_pipeline.perf.trial import Trial


class Step:
    """A step on a device that answers later; `told` has what began and what was waited for."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.compiled = SimpleNamespace(is_new_shape=False)

    def __call__(self, number: int) -> SimpleNamespace:
        self.told.append(f"begin {number}")
        return SimpleNamespace(numpy=lambda: self.told.append(f"wait {number}"))


def trial_on(batches: BatchStream) -> Trial:
    running = Trial.__new__(Trial)
    running.step, running.batches = Step(), batches
    running.monitor, running._steps, running._result = SimpleNamespace(check=lambda _: None), 0, None
    return running


def test_a_trial_waits_for_a_step_once_the_next_one_has_begun() -> None:
    running = trial_on(BatchStream(iter(range(3))))
    for _ in range(3):
        running.take_step()
    assert running.step.told == ["begin 0", "begin 1", "wait 0", "begin 2", "wait 1"]


def test_a_step_on_a_batch_at_hand_is_waited_for() -> None:
    running = trial_on(CopiedBatchStream(iter(()), int, lambda: 0.0))
    for number in range(2):
        running.run(number)
    running.batches.close()
    assert running.step.told == ["begin 0", "wait 0", "begin 1", "wait 1"]


def test_where_copies_wait_for_the_device_a_trial_does_not_and_their_wait_is_computation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]

    def seconds_of(passed: float) -> None:
        now[0] += passed

    def batches() -> Iterator[int]:
        for number in range(9):
            seconds_of(1.0)
            yield number

    def copy(number: int) -> int:
        seconds_of(4.0)
        return number

    monkeypatch.setattr(trial, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    running = trial_on(CopiedBatchStream(batches(), copy, lambda: now[0]))
    taken = running.take_step()
    running.batches.close()
    assert (taken.started, taken.wait) == (0.0, 1.0)
    assert taken.busy >= 4.0
    assert running.step.told == ["begin 0"]
