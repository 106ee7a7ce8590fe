import json
import subprocess
import sys
import textwrap

import pytest

from xtts_pipeline.errors import TrainingError
from xtts_pipeline.training.monitor import WARMUP_STEPS, CompilationMonitor, StepTimer, total_counts


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
        from xtts_pipeline.runtime import NativeLog
        with NativeLog() as log:
            import tensorflow as tf
            from xtts_pipeline.training.monitor import CompilationMonitor
            monitor = CompilationMonitor(log, is_strict=False)
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


def test_a_strict_monitor_stops_at_a_second_trace_or_compilation() -> None:
    for traces, compilations in ((2, 1), (1, 2)):
        monitor = CompilationMonitor(CountedLog({"_train_step": compilations}), is_strict=True)  # type: ignore[arg-type]
        monitor.watch(CountedFunction("_train_step", traces))
        with pytest.raises(TrainingError, match=f"step 7: train_step has {traces} traces and {compilations} compilations"):
            monitor.check(7)


def test_one_trace_and_one_compilation_pass() -> None:
    monitor = CompilationMonitor(CountedLog({"_train_step": 1}), is_strict=True)  # type: ignore[arg-type]
    monitor.watch(CountedFunction("_train_step", 1))
    monitor.watch(CountedFunction("_evaluate_step", 0))
    monitor.check(7)
    assert total_counts(monitor.counts()) == {
        "traces": 1,
        "compilations": 1,
        "by_function": {"train_step": {"traces": 1, "compilations": 1}, "evaluate_step": {"traces": 0, "compilations": 0}},
    }


def test_timer_leaves_warm_up_out() -> None:
    timer = StepTimer(wait_seconds=[9.0] * WARMUP_STEPS + [0.1] * 10, step_seconds=[9.0] * WARMUP_STEPS + [0.9] * 10, mel_frames=1_500)
    summary = timer.summary(batch_size=4)
    assert summary["step_ms"] == pytest.approx({"mean": 900.0, "std": 0.0, "p50": 900.0, "p95": 900.0})
    assert summary["data_wait_share"] == pytest.approx(0.1)
    assert summary["examples_per_second"] == pytest.approx(4.0)
    assert summary["mel_frames_per_second"] == pytest.approx(100.0)


def test_an_asynchronous_device_is_timed_by_windows() -> None:
    timer = StepTimer(is_asynchronous=True)
    for _ in range(4):
        with timer.waiting():
            pass
        with timer.stepping():
            pass
    assert timer.step_seconds == []
    timer.read_back()
    assert len(timer.step_seconds) == 4
    assert len(set(timer.step_seconds)) == 1


def test_a_single_step_is_still_summarised() -> None:
    summary = StepTimer(wait_seconds=[0.1], step_seconds=[0.3], mel_frames=10).summary(batch_size=1)
    assert summary["step_ms"]["mean"] == pytest.approx(300.0)
