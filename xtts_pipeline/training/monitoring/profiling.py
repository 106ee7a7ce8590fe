"""Trace training steps with TensorFlow's profiler and sum the cost of each operation.

TensorBoard shows the whole trace; the table of operations needs only TensorFlow.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from xtts_pipeline.training.checkpoints.run_folder import PROFILE_FOLDER

MAX_OPERATIONS = 10
_DEVICE = "/device:"
_XLA_OPERATION = "hlo_op"
# Lines of TensorFlow's own operations, as `name:Type`; operations that XLA compiles are not among them.
_THREADS = "tf_Compute"


@dataclass(frozen=True)
class OperationCost:
    """The cost of an operation in the traced steps: all its calls, ms per step, and its share of all operations."""

    name: str
    calls: int
    ms_per_step: float
    share: float


class StepProfiler:
    """Traces a number of steps of a run, once all shapes are compiled; a context manager.

    operations: the most expensive ones, after the trace; None before, and if no step was traced.
    """

    def __init__(self, run: Path, steps: int) -> None:
        self.folder = run / PROFILE_FOLDER
        self._steps = steps
        self._traced = 0
        # Traces of earlier processes.
        self._before: frozenset[Path] = frozenset()
        self.is_tracing = False
        self.operations: tuple[OperationCost, ...] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_tracing:
            self._stop()

    def after_step(self, result: tf.Tensor, *, is_warm: bool) -> str | None:
        """Count a step that was called; return a line that names the trace's folder after its last step, else None.

        The trace starts after the first warm step, so it holds no compilation.
        """
        if self.is_tracing:
            # Wait for the device, or the trace would miss the end of the step.
            result.numpy()
            self._traced += 1
            if self._traced == self._steps:
                self._stop()
                viewer = f"tensorboard --logdir {self.folder} shows them (pip install tensorboard xprof)"
                return f"{self._traced} steps traced; {viewer}"
        elif self.operations is None and is_warm:
            self._before = list_traces(self.folder)
            tf.profiler.experimental.start(str(self.folder))
            self.is_tracing = True
        return None

    def finish(self) -> list[str]:
        """End the trace with the run; return a warning if it has fewer steps than asked for."""
        if self.is_tracing:
            self._stop()
        if self._traced == self._steps:
            return []
        found = f"the run ended with {self._traced} of {self._steps} steps traced"
        remedy = "the first steps, which compile, are left out: give the run more steps, or trace fewer"
        return [f"--profile {self._steps}: {found}; {remedy}"]

    def to_json(self) -> dict[str, Any] | None:
        """Return the profile as summary.json has it; None if no step was traced."""
        if self.operations is None:
            return None
        return {
            "folder": str(self.folder),
            "steps": self._traced,
            "operations": [asdict(operation) for operation in self.operations],
        }

    def _stop(self) -> None:
        tf.profiler.experimental.stop()
        self.is_tracing = False
        if self._traced:
            self.operations = most_expensive_operations(list_traces(self.folder) - self._before, self._traced)


def list_traces(folder: Path) -> frozenset[Path]:
    """Return the files of all traces under a folder."""
    return frozenset(folder.rglob("*.xplane.pb"))


def most_expensive_operations(traces: Collection[Path], steps: int) -> tuple[OperationCost, ...]:
    """Return the ten most expensive operations of the traces, the most expensive first.

    They come from the GPU's planes if there are any, else from the host's; XLA's operations if there are any, else
    TensorFlow's.
    """
    space = xplane_pb2.XSpace()
    for file in sorted(traces):
        space.MergeFromString(file.read_bytes())
    devices = [plane for plane in space.planes if plane.name.startswith(_DEVICE)]
    planes = devices if any(line.events for plane in devices for line in plane.lines) else list(space.planes)
    events = list(_xla_events(planes)) or list(_tensorflow_events(planes))
    costs: defaultdict[str, list[float]] = defaultdict(list)
    for name, milliseconds in events:
        costs[name].append(milliseconds)
    total = sum(map(sum, costs.values())) or 1.0
    found = [OperationCost(name, len(each), sum(each) / steps, sum(each) / total) for name, each in costs.items()]
    return tuple(sorted(found, key=lambda operation: -operation.ms_per_step)[:MAX_OPERATIONS])


def _xla_events(planes: Sequence[Any]) -> Iterator[tuple[str, float]]:
    """Yield (name, ms) of each call of an XLA operation."""
    for plane in planes:
        wanted = {number for number, stat in plane.stat_metadata.items() if stat.name == _XLA_OPERATION}
        for line in plane.lines:
            for event in line.events:
                stats = [*event.stats, *plane.event_metadata[event.metadata_id].stats]
                found = next((stat for stat in stats if stat.metadata_id in wanted), None)
                if found is not None:
                    yield found.str_value or plane.stat_metadata[found.ref_value].name, event.duration_ps / 1e9


def _tensorflow_events(planes: Sequence[Any]) -> Iterator[tuple[str, float]]:
    """Yield (name and type, ms) of each call of a TensorFlow operation."""
    lines = [(plane, line) for plane in planes for line in plane.lines if line.name.startswith(_THREADS)]
    for plane, line in lines:
        for event in line.events:
            name, colon, kind = plane.event_metadata[event.metadata_id].name.rpartition(":")
            if colon and name and kind.isidentifier() and not name.endswith(":"):
                yield f"{name} ({kind})", event.duration_ps / 1e9
