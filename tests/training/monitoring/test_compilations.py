import json
import subprocess
import sys
import textwrap

import pytest

from xtts_pipeline.errors import TrainingError
from xtts_pipeline.training.monitoring.compilations import CompilationMonitor, total_counts


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


def test_compilations_are_counted_from_xlas_log() -> None:
    # In its own process: the environment must be set before TensorFlow is imported.
    program = """
        import json
        from xtts_pipeline.system.runtime import NativeLog
        with NativeLog() as log:
            import tensorflow as tf
            from xtts_pipeline.training.monitoring.compilations import CompilationMonitor
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
    assert done.stderr == ""  # TensorFlow's start-up lines are hidden


def monitor_of(traces: int, compilations: int, *, is_compiled: bool = True) -> CompilationMonitor:
    log = CountedLog({"_train_step": compilations})
    monitor = CompilationMonitor(log, is_strict=True, is_compiled=is_compiled)  # type: ignore[arg-type]
    monitor.watch(CountedFunction("_train_step", traces))
    return monitor


def buckets_of(traces: tuple[int, ...], compilations: int) -> CompilationMonitor:
    monitor = CompilationMonitor(CountedLog({"_train_step": compilations}), is_strict=True, is_compiled=True)  # type: ignore[arg-type]
    monitor.watch(*(CountedFunction("_train_step", count) for count in traces))
    return monitor


def test_each_bucket_has_one_trace_and_compilation_after_its_first_batch() -> None:
    for traces in [(0, 0, 0), (0, 1, 0), (1, 1, 1)]:
        monitor = buckets_of(traces, sum(traces))
        monitor.check(7)
        assert monitor.counts() == {"train_step": {"traces": sum(traces), "compilations": sum(traces)}}


@pytest.mark.parametrize(
    ("traces", "compilations", "found"),
    [
        ((1, 2, 1), 4, "4 traces and 4 compilations, expected 3 and 3; no argument"),
        (
            (0, 2, 0),
            2,
            "2 traces and 2 compilations, expected 1 and 1; no argument",
        ),  # as many as buckets, but of one bucket
        ((1, 1, 0), 3, "2 traces and 3 compilations, expected 2 and 2; no argument"),
        ((1, 1, 1), 2, "3 traces and 2 compilations, expected 3 and 3; XLA's compilations cannot be counted"),
    ],
)
def test_an_extra_trace_or_compilation_of_a_bucket_is_an_error(
    traces: tuple[int, ...], compilations: int, found: str
) -> None:
    with pytest.raises(TrainingError, match=found):
        buckets_of(traces, compilations).check(7)


@pytest.mark.parametrize(("traces", "compilations"), [(2, 1), (1, 2)])
def test_a_strict_monitor_raises_at_a_second_trace_or_compilation(traces: int, compilations: int) -> None:
    counts = f"{traces} traces and {compilations} compilations"
    found = f"step 7: train_step has {counts}, expected 1 and 1; no argument changed its shape"
    with pytest.raises(TrainingError, match=found):
        monitor_of(traces, compilations).check(7)


def test_a_missing_compilation_is_an_error() -> None:
    with pytest.raises(
        TrainingError, match="1 traces and 0 compilations, expected 1 and 1; XLA's compilations cannot be counted"
    ):
        monitor_of(1, 0).check(7)


def test_one_trace_and_one_compilation_pass() -> None:
    monitor = monitor_of(1, 1)
    monitor.watch(CountedFunction("_evaluate_step", 0))  # has not run yet
    monitor.check(7)
    assert total_counts(monitor.counts()) == {
        "traces": 1,
        "compilations": 1,
        "by_function": {
            "train_step": {"traces": 1, "compilations": 1},
            "evaluate_step": {"traces": 0, "compilations": 0},
        },
    }


def test_without_xla_no_compilation_is_expected() -> None:
    assert monitor_of(1, 0, is_compiled=False).check(7) == []


def test_two_functions_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="watched already"):
        monitor_of(1, 1).watch(CountedFunction("_train_step", 0))
