import math
from pathlib import Path

import numpy as np
import pytest

from xtts_pipeline.config.schema import TrainingConfig
from xtts_pipeline.data.online import OnlineSource
from xtts_pipeline.training.checkpoints.state import LossSpikeState
from xtts_pipeline.training.monitoring.warnings import (
    WARMUP_REPORTS,
    AlignmentMonitor,
    DataWaitMonitor,
    LossSpikeMonitor,
)

ALIGNED, NOT_ALIGNED = {"alignment_fit": 0.4}, {"alignment_fit": 0.39}


def test_late_alignment_warns_once_with_remedies() -> None:
    monitor = AlignmentMonitor(TrainingConfig(aligned_by_step=100))
    assert monitor.check(99, NOT_ALIGNED) == []
    (warning,) = monitor.check(101, NOT_ALIGNED)
    assert "alignment_fit 0.39, expected at least 0.4" in warning
    for remedy in ("training.aligned_by_step=100", "more steps", "phonemes", "shorter clips", "audio.trim_db"):
        assert remedy in warning
    assert monitor.check(200, NOT_ALIGNED) == []
    assert monitor.aligned_at_step is None


def test_aligned_frames_give_no_warning() -> None:
    monitor = AlignmentMonitor(TrainingConfig(aligned_by_step=100))
    assert [monitor.check(step, ALIGNED) for step in (50, 100, 150)] == [[], [], []]
    assert monitor.aligned_at_step == 50


def test_a_run_that_has_aligned_before_gives_no_warning() -> None:
    monitor = AlignmentMonitor(TrainingConfig(aligned_by_step=100))
    assert [monitor.check(50, ALIGNED), monitor.check(100, NOT_ALIGNED)] == [[], []]


def test_a_run_that_goes_on_does_not_warn_again() -> None:
    monitor = AlignmentMonitor(TrainingConfig(aligned_by_step=100), reported_step=100)
    assert monitor.check(101, NOT_ALIGNED) == []


def check_all(
    shares: dict[int, float], step_ms: float = 100.0, *, is_asynchronous: bool = False
) -> list[tuple[int, str]]:
    monitor = DataWaitMonitor("xtts diagnose input --cache cache says why", is_asynchronous=is_asynchronous)
    return [(step, line) for step, share in shares.items() for line in monitor.check(step, share, step_ms)]


def test_a_hundred_waiting_steps_warn_once_and_name_the_command() -> None:
    ((step, warning),) = check_all(dict.fromkeys(range(10, 400, 10), 0.2))
    assert step == 110
    found = "20% of the time is spent waiting for data, and over 5% for 100 steps"
    assert warning == f"{found}; xtts diagnose input --cache cache says why"


def test_without_a_cache_the_warning_names_preprocess() -> None:
    # The advice needs only the folder, so no corpus is surveyed.
    source = object.__new__(OnlineSource)
    source.folder = Path("corpus")
    monitor = DataWaitMonitor(source.wait_advice)
    lines = [line for step in range(10, 200, 10) for line in monitor.check(step, 0.2, 100.0)]
    assert len(lines) == 1
    assert lines[0].endswith("; a cache is made once and read many times as fast: xtts preprocess --data corpus")


@pytest.mark.parametrize(
    "shares",
    [
        dict.fromkeys(range(10, 400, 10), 0.05),
        {step: 0.5 if step % 100 else 0.01 for step in range(10, 400, 10)},  # every hundredth step does not wait
        dict.fromkeys(range(10, 400, 10), float("nan")),
        {5_000: 0.9},  # the first report of a resumed run
    ],
)
def test_shorter_or_smaller_waits_give_no_warning(shares: dict[int, float]) -> None:
    assert check_all(shares) == []


def test_the_time_to_fetch_a_batch_that_is_ready_gives_no_warning() -> None:
    shares = dict.fromkeys(range(10, 400, 10), 0.1)
    assert check_all(shares, step_ms=9.9, is_asynchronous=True) == []
    assert len(check_all(shares, step_ms=10.1, is_asynchronous=True)) == 1
    # On a CPU nothing else is done meanwhile.
    assert len(check_all(shares, step_ms=9.9)) == 1


def test_each_spike_is_warned_of_once() -> None:
    random = np.random.default_rng(0)
    monitor = LossSpikeMonitor(LossSpikeState())
    calm = [float(2.0 + 0.05 * random.normal()) for _ in range(40)]
    assert [line for loss in calm for line in monitor.check(loss)] == []
    (warning,) = monitor.check(5.0)
    assert warning.startswith("the loss leapt to 5.000 from about 2.0")
    assert monitor.check(5.5) == []
    assert monitor.check(2.0) == []
    assert len(monitor.check(6.0)) == 1


def test_the_first_reports_and_values_that_are_not_finite_are_no_spikes() -> None:
    monitor = LossSpikeMonitor(LossSpikeState())
    for loss in [*np.linspace(9.0, 2.0, WARMUP_REPORTS), *[2.0] * 10, math.nan, 1.9]:
        assert monitor.check(float(loss)) == []


def test_a_monitor_continues_from_its_state() -> None:
    losses = [2.0 + 0.01 * (index % 7) for index in range(20)] + [4.0]
    whole = LossSpikeMonitor(LossSpikeState())
    warnings = [line for loss in losses for line in whole.check(loss)]
    first = LossSpikeMonitor(LossSpikeState())
    for loss in losses[:13]:
        first.check(loss)
    second = LossSpikeMonitor(first.state)
    assert [line for loss in losses[13:] for line in second.check(loss)] == warnings
    assert second.state == whole.state
