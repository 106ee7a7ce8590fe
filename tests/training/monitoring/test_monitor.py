import json
import subprocess
import sys
import textwrap

import pytest

from xtts_pipeline.errors import TrainingError
from xtts_pipeline.training.monitoring.monitor import WARMUP_STEPS, CompilationMonitor, StepTimer, total_counts


class CountedFunction:
    def __init__(self, name: str, traces: int) -> None:
        self.python_function = lambda: None
        self.python_function.__name__ = name
        self._traces = traces

    def experimental_get_tracing_count(self) -> int:
        return self._traces


class CountedLog:
    def __init__(self, compilations: dict[str, int]) -> None:
        self._compilations = compilations

    def compilations(self) -> dict[str, int]:
        return self._compilations


def test_compilations_are_counted_from_xla_itself() -> None:
    # In a process of its own: the environment must be set before TensorFlow is imported.
    program = """
        import json
        from xtts_pipeline.system.runtime import NativeLog
        with NativeLog() as log:
            import tensorflow as tf
            from xtts_pipeline.training.monitoring.monitor import CompilationMonitor
            monitor = CompilationMonitor(log, is_strict=False, is_compiled=True)
            square = tf.function(lambda x: x * x, input_signature=[tf.TensorSpec([None])], jit_compile=True)
            def _cube(x):
                return x * x * x
            cube = tf.function(_cube, input_signature=[tf.TensorSpec([None])], jit_compile=True)
            monitor.watch(cube)
            for length in (3, 3, 5, 5):
                cube(tf.ones([length]))
            square(tf.ones([2]))
            print(json.dumps(monitor.counts()))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {"cube": {"traces": 1, "compilations": 2}}
    assert done.stderr == ""  # TensorFlow's start-up lines stay out of sight


def monitor_of(traces: int, compilations: int, *, is_compiled: bool = True) -> CompilationMonitor:
    log = CountedLog({"_train_step": compilations})
    monitor = CompilationMonitor(log, is_strict=True, is_compiled=is_compiled)  # type: ignore[arg-type]
    monitor.watch(CountedFunction("_train_step", traces))
    return monitor


def buckets_of(traces: tuple[int, ...], compilations: int) -> CompilationMonitor:
    monitor = CompilationMonitor(CountedLog({"_train_step": compilations}), is_strict=True, is_compiled=True)  # type: ignore[arg-type]
    monitor.watch(*(CountedFunction("_train_step", count) for count in traces))
    return monitor


def test_each_bucket_has_a_trace_and_a_compilation_once_its_turn_has_come() -> None:
    for traces in [(0, 0, 0), (0, 1, 0), (1, 1, 1)]:
        monitor = buckets_of(traces, sum(traces))
        monitor.look(7)
        assert monitor.counts() == {"train_step": {"traces": sum(traces), "compilations": sum(traces)}}


@pytest.mark.parametrize(
    ("traces", "compilations", "found"),
    [
        ((1, 2, 1), 4, "4 traces and 4 compilations, expected 3 and 3; no argument"),
        (
            (0, 2, 0),
            2,
            "2 traces and 2 compilations, expected 1 and 1; no argument",
        ),  # no more than there are buckets, but of one
        ((1, 1, 0), 3, "2 traces and 3 compilations, expected 2 and 2; no argument"),
        ((1, 1, 1), 2, "3 traces and 2 compilations, expected 3 and 3; XLA's compilations cannot be counted"),
    ],
)
def test_one_more_than_a_bucket_needs_is_one_too_many(traces: tuple[int, ...], compilations: int, found: str) -> None:
    with pytest.raises(TrainingError, match=found):
        buckets_of(traces, compilations).look(7)


@pytest.mark.parametrize(("traces", "compilations"), [(2, 1), (1, 2)])
def test_a_strict_monitor_stops_at_a_second_trace_or_compilation(traces: int, compilations: int) -> None:
    found = f"step 7: train_step has {traces} traces and {compilations} compilations, expected 1 and 1; no argument changed its shape"
    with pytest.raises(TrainingError, match=found):
        monitor_of(traces, compilations).look(7)


def test_a_compilation_that_was_not_seen_is_not_taken_for_one() -> None:
    with pytest.raises(
        TrainingError, match="1 traces and 0 compilations, expected 1 and 1; XLA's compilations cannot be counted"
    ):
        monitor_of(1, 0).look(7)


def test_one_trace_and_one_compilation_pass() -> None:
    monitor = monitor_of(1, 1)
    monitor.watch(CountedFunction("_evaluate_step", 0))  # has not run yet
    monitor.look(7)
    assert total_counts(monitor.counts()) == {
        "traces": 1,
        "compilations": 1,
        "by_function": {
            "train_step": {"traces": 1, "compilations": 1},
            "evaluate_step": {"traces": 0, "compilations": 0},
        },
    }


def test_without_xla_no_compilation_is_expected() -> None:
    monitor_of(1, 0, is_compiled=False).look(7)


def test_two_functions_of_one_name_cannot_be_told_apart() -> None:
    with pytest.raises(ValueError, match="watched already"):
        monitor_of(1, 1).watch(CountedFunction("_train_step", 0))


def test_timer_leaves_warm_up_out() -> None:
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


class Clock:
    """Time that passes only when told to."""

    def __init__(self) -> None:
        self.now = 5.0

    def __call__(self) -> float:
        return self.now


def run_steps(
    timer: StepTimer, clock: Clock, steps: int, wait: float, step: float, *, is_compiling: bool = False
) -> None:
    for _ in range(steps):
        with timer.waiting():
            clock.now += wait
        with timer.stepping(examples=2):
            clock.now += step
        if is_compiling:
            timer.leave_out_last()


def test_a_window_leaves_what_came_before_out() -> None:
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
    clock.now += 30.0  # an evaluation between two windows is not the steps' time
    run_steps(timer, clock, 2, wait=0.0, step=0.0)
    clock.now += 0.2
    assert timer.close_window(mel_frames=0)["step_ms"] == pytest.approx(100.0)
    assert timer.summary()["step_ms"]["p95"] == pytest.approx(100.0)


def test_a_single_step_is_still_summarised() -> None:
    summary = StepTimer(wait_seconds=[0.1], step_seconds=[0.3], examples=[1], mel_frames=10).summary()
    assert summary["step_ms"]["mean"] == pytest.approx(300.0)


@pytest.mark.parametrize("is_asynchronous", [False, True])
def test_a_shape_that_is_first_met_late_does_not_count(is_asynchronous: bool) -> None:
    timer = StepTimer(is_asynchronous=is_asynchronous, clock=(clock := Clock()))
    for is_compiling in (True, False, True, False):
        run_steps(timer, clock, 5, wait=0.0, step=0.5)
        run_steps(timer, clock, 1, wait=0.0, step=20.0 if is_compiling else 0.5, is_compiling=is_compiling)
        timer.close_window(mel_frames=0)
    summary = timer.summary()
    assert summary["step_ms"] == pytest.approx({"mean": 500.0, "std": 0.0, "p50": 500.0, "p95": 500.0})
    assert summary["examples_per_second"] == pytest.approx(4.0)
