"""The cost of traced steps, read from the profiler's files."""

from pathlib import Path

import pytest
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from xtts_pipeline.training.monitoring.profiling import (
    MAX_OPERATIONS,
    OperationCost,
    StepProfiler,
    list_traces,
    most_expensive_operations,
)


class Trace:
    """Writes a file as the profiler does."""

    def __init__(self) -> None:
        self.space = xplane_pb2.XSpace()

    def add(
        self, plane_name: str, line_name: str, event: str, milliseconds: float, operation: str | None = None
    ) -> None:
        plane = next((found for found in self.space.planes if found.name == plane_name), None) or self.space.planes.add(
            name=plane_name
        )
        number = len(plane.event_metadata) + 1
        plane.event_metadata[number].name = event
        plane.stat_metadata[1].name = "hlo_op"
        line = next((found for found in plane.lines if found.name == line_name), None) or plane.lines.add(
            name=line_name
        )
        made = line.events.add(metadata_id=number, duration_ps=int(milliseconds * 1e9))
        if operation is not None:
            made.stats.add(metadata_id=1, str_value=operation)

    def save(self, folder: Path) -> Path:
        path = folder / "plugins" / "profile" / "now" / "host.xplane.pb"
        path.parent.mkdir(parents=True)
        path.write_bytes(self.space.SerializeToString())
        return folder


def test_calls_of_an_operation_are_summed_and_divided_by_the_steps(tmp_path: Path) -> None:
    trace = Trace()
    for milliseconds in (3.0, 5.0):
        trace.add("/host:CPU", "python", "matmul.1", milliseconds, "matmul.1")
    trace.add("/host:CPU", "python", "add", 2.0, "add")
    trace.add("/host:CPU", "python", "EagerExecute", 100.0)
    assert most_expensive_operations(list_traces(trace.save(tmp_path)), steps=2) == (
        OperationCost("matmul.1", 2, 4.0, 0.8),
        OperationCost("add", 1, 1.0, 0.2),
    )


def test_a_gpus_operations_are_preferred_to_its_hosts(tmp_path: Path) -> None:
    trace = Trace()
    trace.add("/host:CPU", "python", "copy", 50.0, "copy")
    trace.add("/device:GPU:0", "Stream #1", "gemm", 1.0, "fusion.7")
    assert [operation.name for operation in most_expensive_operations(list_traces(trace.save(tmp_path)), 1)] == [
        "fusion.7"
    ]


def test_without_xla_operations_are_named_with_their_type(tmp_path: Path) -> None:
    trace = Trace()
    trace.add("/host:CPU", "tf_Compute/7", "dense/MatMul:MatMul", 2.0)
    trace.add("/host:CPU", "tf_Compute/7", "ThreadpoolListener::Record", 9.0)
    assert [operation.name for operation in most_expensive_operations(list_traces(trace.save(tmp_path)), 1)] == [
        "dense/MatMul (MatMul)"
    ]


def test_at_most_ten_operations_are_kept_and_none_is_no_error(tmp_path: Path) -> None:
    trace = Trace()
    for number in range(30):
        trace.add("/host:CPU", "python", f"op{number}", 1.0 + number, f"op{number}")
    operations = most_expensive_operations(list_traces(trace.save(tmp_path / "many")), 1)
    assert [operation.name for operation in operations] == [
        f"op{number}" for number in range(29, 29 - MAX_OPERATIONS, -1)
    ]
    assert most_expensive_operations((), 1) == ()


class Result:
    """A step's result that counts how often it is waited for."""

    waited = 0

    def numpy(self) -> None:
        self.waited += 1


def test_a_trace_begins_when_warm_and_ends_after_its_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(
        "tensorflow.profiler.experimental.start", lambda folder: done.append(f"start {Path(folder).name}")
    )
    monkeypatch.setattr("tensorflow.profiler.experimental.stop", lambda: done.append("stop"))
    result = Result()
    with StepProfiler(tmp_path, 2) as profiling:
        lines = [profiling.after_step(result, is_warm=step >= 3) for step in range(1, 8)]  # type: ignore[arg-type]
    assert done == ["start profile", "stop"]
    assert [line is not None for line in lines] == [False, False, False, False, True, False, False]
    assert f"tensorboard --logdir {tmp_path / 'profile'}" in str(lines[4])
    assert result.waited == 2
    assert profiling.to_json() == {"folder": str(tmp_path / "profile"), "steps": 2, "operations": []}


def test_a_run_that_ends_early_ends_its_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr("tensorflow.profiler.experimental.start", lambda _: done.append("start"))
    monkeypatch.setattr("tensorflow.profiler.experimental.stop", lambda: done.append("stop"))
    with StepProfiler(tmp_path, 5) as profiling:
        profiling.after_step(Result(), is_warm=True)  # type: ignore[arg-type]
    assert done == ["start", "stop"]
    assert profiling.to_json() is None


@pytest.mark.parametrize(("steps", "traced"), [(2, 0), (3, 0), (5, 2), (6, 3)])
def test_a_trace_that_is_cut_short_gives_a_warning_with_its_steps(
    steps: int, traced: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tensorflow.profiler.experimental.start", lambda _: None)
    monkeypatch.setattr("tensorflow.profiler.experimental.stop", lambda: None)
    with StepProfiler(tmp_path, 3) as profiling:
        for step in range(1, steps + 1):
            profiling.after_step(Result(), is_warm=step >= 3)  # type: ignore[arg-type]
        warnings = profiling.finish()
    assert [warning.partition(";")[0] for warning in warnings] == (
        [f"--profile 3: the run ended with {traced} of 3 steps traced"] if traced < 3 else []
    )
    found = profiling.to_json()
    assert (found and found["steps"]) == (traced or None)
