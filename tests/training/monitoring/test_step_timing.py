from collections.abc import Iterator

import pytest

from tests.clock import Clock
from xtts_pipeline.data.batch_stream import BatchStream
from xtts_pipeline.training.monitoring.step_timing import WARMUP_STEPS, StepTimer


def test_the_summary_excludes_warm_up_steps() -> None:
    timer = StepTimer(
        wait_seconds=[9.0] * WARMUP_STEPS + [0.1] * 10,
        step_seconds=[9.0] * WARMUP_STEPS + [0.9] * 10,
        examples=[9] * WARMUP_STEPS + [3, 5] * 5,
        mel_frames=1_500,
    )
    summary = timer.summary()
    assert summary["step_ms"] == pytest.approx({"mean": 900.0, "std": 0.0, "p50": 900.0, "p95": 900.0})
    assert summary["data_wait_share"] == pytest.approx(0.1)
    assert summary["examples_per_second"] == pytest.approx(4.0)
    assert summary["mel_frames_per_second"] == pytest.approx(100.0)


def run_steps(
    timer: StepTimer, clock: Clock, steps: int, wait: float, step: float, *, is_compiling: bool = False
) -> None:
    def batches() -> Iterator[None]:
        while True:
            clock.now += wait
            yield

    stream = BatchStream(batches(), clock)
    for _ in range(steps):
        timer.fetch(stream)
        with timer.stepping(examples=2):
            clock.now += step
        if is_compiling:
            timer.exclude_last_step()


def test_a_window_excludes_earlier_steps() -> None:
    timer = StepTimer(clock=(clock := Clock()))
    run_steps(timer, clock, 1, wait=1.0, step=20.0)  # the compilation
    timer.close_window(mel_frames=3)
    run_steps(timer, clock, 4, wait=0.25, step=0.75)
    numbers = timer.close_window(mel_frames=4)
    assert numbers == pytest.approx(
        {"step_ms": 750.0, "data_wait_share": 0.25, "device_share": 0.75, "examples_per_second": 2.0}
    )
    assert timer.mel_frames == 7


def test_an_asynchronous_device_is_timed_by_windows() -> None:
    timer = StepTimer(is_asynchronous=True, clock=(clock := Clock()))
    run_steps(timer, clock, 10, wait=0.06, step=0.0)  # calls return at once; the host waits while the device works
    clock.now += 0.4  # the readback waits for the device
    numbers = timer.close_window(mel_frames=0)
    assert numbers == pytest.approx(
        {"step_ms": 100.0, "data_wait_share": 0.6, "device_share": 0.4, "examples_per_second": 20.0}
    )
    clock.now += 30.0  # an evaluation between two windows
    run_steps(timer, clock, 2, wait=0.0, step=0.0)
    clock.now += 0.2
    assert timer.close_window(mel_frames=0)["step_ms"] == pytest.approx(100.0)
    assert timer.summary()["step_ms"]["p95"] == pytest.approx(100.0)


def test_a_single_step_has_a_summary() -> None:
    summary = StepTimer(wait_seconds=[0.1], step_seconds=[0.3], examples=[1], mel_frames=10).summary()
    assert summary["step_ms"]["mean"] == pytest.approx(300.0)


def test_steps_that_all_compiled_have_no_summary() -> None:
    timer = StepTimer(wait_seconds=[0.1], step_seconds=[20.0], examples=[1], mel_frames=10)
    timer.exclude_last_step()
    assert set(timer.summary().values()) == {None}


@pytest.mark.parametrize("is_asynchronous", [False, True])
def test_late_compilations_are_excluded_from_the_summary(is_asynchronous: bool) -> None:
    timer = StepTimer(is_asynchronous=is_asynchronous, clock=(clock := Clock()))
    for is_compiling in (True, False, True, False):
        run_steps(timer, clock, 5, wait=0.0, step=0.5)
        run_steps(timer, clock, 1, wait=0.0, step=20.0 if is_compiling else 0.5, is_compiling=is_compiling)
        timer.close_window(mel_frames=0)
    summary = timer.summary()
    assert summary["step_ms"] == pytest.approx({"mean": 500.0, "std": 0.0, "p50": 500.0, "p95": 500.0})
    assert summary["examples_per_second"] == pytest.approx(4.0)
