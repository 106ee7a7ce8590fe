"""The step as trials run it."""

from types import SimpleNamespace

import pytest

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


def test_a_trial_waits_for_a_step_once_the_next_one_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "rows_of", lambda _: 4)
    running = Trial.__new__(Trial)
    running.step, running.batches = Step(), iter(range(3))
    running.monitor, running._steps, running._result = SimpleNamespace(check=lambda _: None), 0, None
    for _ in range(3):
        assert running.take_step().rows == 4
    assert running.step.told == ["begin 0", "begin 1", "wait 0", "begin 2", "wait 1"]
