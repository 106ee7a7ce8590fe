"""Trace some steps with TensorFlow's profiler, and add up what each operation cost.

TensorBoard shows the whole trace; the table needs nothing but TensorFlow.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2

MOST_OPERATIONS = 10
_DEVICE = "/device:"
_XLA_OPERATION = "hlo_op"
# Where TensorFlow's own operations show, as `name:Type`, if XLA does not make one program of them.
_THREADS = "tf_Compute"


@dataclass(frozen=True)
class Operation:
    """What an operation cost in the traced steps: ms a step, over all its calls, and its share of all operations."""

    name: str
    calls: int
    ms_per_step: float
    share: float


class Profiling:
    """A context manager that traces so many steps of a run, from the first one before which everything is compiled.

    operations are what they cost, once they are over; None until then, and where no step was traced.
    """

    def __init__(self, run: Path, steps: int) -> None:
        self.folder = run / "profile"
        self._steps = steps
        self._traced = 0
        # The folder may hold traces of the processes before.
        self._before: frozenset[Path] = frozenset()
        self.is_tracing = False
        self.operations: tuple[Operation, ...] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_tracing:
            self._end()

    def after_step(self, result: tf.Tensor, *, is_warm: bool) -> str | None:
        """Take in that a step has been called; return the line that says where the trace is, once the last of its steps is done.

        The trace begins after the first step that is warm: what follows compiles nothing.
        """
        if self.is_tracing:
            # A device may still be at it.
            result.numpy()
            self._traced += 1
            if self._traced == self._steps:
                self._end()
                return f"{self._traced} steps traced; tensorboard --logdir {self.folder} shows them (pip install tensorboard xprof)"
        elif self.operations is None and is_warm:
            self._before = traces_in(self.folder)
            tf.profiler.experimental.start(str(self.folder))
            self.is_tracing = True
        return None

    def finish(self) -> list[str]:
        """End the trace with the run; return the warning that it has fewer steps than were asked for, or nothing."""
        if self.is_tracing:
            self._end()
        if self._traced == self._steps:
            return []
        found = f"the run ended with {self._traced} of {self._steps} steps traced"
        return [
            f"--profile {self._steps}: {found}; the first steps, which compile, are left out: give the run more steps, or trace fewer"
        ]

    def to_json(self) -> dict[str, Any] | None:
        """Return what summary.json has of it, or None if no step was traced."""
        if self.operations is None or not self._traced:
            return None
        return {
            "folder": str(self.folder),
            "steps": self._traced,
            "operations": [asdict(operation) for operation in self.operations],
        }

    def _end(self) -> None:
        tf.profiler.experimental.stop()
        self.is_tracing = False
        self.operations = costliest(traces_in(self.folder) - self._before, max(self._traced, 1))


def traces_in(folder: Path) -> frozenset[Path]:
    """Return the files of all traces under a folder."""
    return frozenset(folder.rglob("*.xplane.pb"))


def costliest(traces: Collection[Path], steps: int) -> tuple[Operation, ...]:
    """Return the ten operations of the traces that cost most, the costliest first.

    Of a GPU's own planes if there is one, else of the host's. XLA's operations if it made any, else TensorFlow's.
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
    found = [Operation(name, len(each), sum(each) / steps, sum(each) / total) for name, each in costs.items()]
    return tuple(sorted(found, key=lambda operation: -operation.ms_per_step)[:MOST_OPERATIONS])


def _xla_events(planes: Sequence[Any]) -> Iterator[tuple[str, float]]:
    for plane in planes:
        wanted = {number for number, stat in plane.stat_metadata.items() if stat.name == _XLA_OPERATION}
        for line in plane.lines:
            for event in line.events:
                stats = [*event.stats, *plane.event_metadata[event.metadata_id].stats]
                found = next((stat for stat in stats if stat.metadata_id in wanted), None)
                if found is not None:
                    yield found.str_value or plane.stat_metadata[found.ref_value].name, event.duration_ps / 1e9


def _tensorflow_events(planes: Sequence[Any]) -> Iterator[tuple[str, float]]:
    for plane in planes:
        for line in plane.lines:
            if not line.name.startswith(_THREADS):
                continue
            for event in line.events:
                name, colon, kind = plane.event_metadata[event.metadata_id].name.rpartition(":")
                if colon and name and kind.isidentifier() and not name.endswith(":"):
                    yield f"{name} ({kind})", event.duration_ps / 1e9
