"""Measure what a checkpoint costs the steps: a step may wait for the copy of the weights, but not for the disk.

    python benchmarks/stall.py --cache cache --config small --steps 200 --save-every 20
    python benchmarks/stall.py --cache cache --config small --steps 200 --save-every 20 --evaluate-every 7

The run is that of `xtts train`, in this process. A step's time is the wall time from asking for its batch to asking for
the next one; each step reports. Steps form four groups: those that end with a checkpoint, those during which one is
written, those with an evaluation, and all others. The copy is timed separately, and so is its hand-over to the writing
thread: with --evaluate-every, a new best that falls due during a write must not wait there. The first steps are left
out, and so is the last one, whose checkpoint is waited for.

The exit code is 0 if the longest step with a checkpoint is no longer than the longest other step plus the longest copy,
and if each hand-over takes less than a step. Steps during a write share cores with the writer and are only shown.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from xtts_pipeline.cache.format.manifest import load_manifest
from xtts_pipeline.cli.progress import RunProgress
from xtts_pipeline.config.schema import Config
from xtts_pipeline.system.runtime import NativeLog
from xtts_pipeline.training.settings import training_config

# Both hand a snapshot to the writing thread.
HANDING_OVER = ("start", "enqueue")


@dataclass(frozen=True)
class Step:
    """One step's wall time and what happened during it."""

    milliseconds: float
    is_saved: bool = False
    is_evaluated: bool = False
    is_beside_writing: bool = False


@dataclass
class Times:
    """Times of the events, in seconds of one clock."""

    asked: list[float] = field(default_factory=list)
    copied: list[tuple[float, float]] = field(default_factory=list)
    handed_over: list[tuple[float, float]] = field(default_factory=list)
    written: list[tuple[float, float]] = field(default_factory=list)

    def steps(self, evaluate_every: int) -> list[Step]:
        """Return all steps except the last, whose end is unknown."""
        steps = []
        for number, (begun, ended) in enumerate(zip(self.asked, self.asked[1:], strict=False), 1):
            is_saved = any(begun <= at < ended for at, _ in self.handed_over)
            is_beside_writing = any(since < ended and begun < until for since, until in self.written)
            steps.append(
                Step(1e3 * (ended - begun), is_saved, number % evaluate_every == 0, is_beside_writing and not is_saved)
            )
        return steps


def judge(steps: Sequence[Step], copies_ms: Sequence[float], hand_overs_ms: Sequence[float]) -> dict[str, Any]:
    """Return each group's median and maximum, and `ok`. Raises SystemExit if there is nothing to compare."""
    plain = [step for step in steps if not step.is_evaluated]
    groups = {
        "step_ms": [step.milliseconds for step in plain if not step.is_saved and not step.is_beside_writing],
        "step_with_checkpoint_ms": [step.milliseconds for step in plain if step.is_saved],
        "step_beside_writing_ms": [step.milliseconds for step in plain if step.is_beside_writing],
        "step_with_evaluation_ms": [step.milliseconds for step in steps if step.is_evaluated],
        "copy_ms": list(copies_ms),
        "hand_over_ms": list(hand_overs_ms),
    }
    if not groups["step_ms"] or not groups["step_with_checkpoint_ms"]:
        raise SystemExit("no step with a checkpoint, or none without; more --steps are needed, or another --save-every")
    longest = {name: max(times, default=0.0) for name, times in groups.items()}
    is_held_up = longest["step_with_checkpoint_ms"] > longest["step_ms"] + longest["copy_ms"]
    figures = {
        name: {"count": len(times), "median": statistics.median(times), "longest": max(times)}
        for name, times in groups.items()
        if times
    }
    return {**figures, "ok": not is_held_up and longest["hand_over_ms"] <= longest["step_ms"]}


def timed(method: Callable[..., Any], spans: list[tuple[float, float]]) -> Callable[..., Any]:
    """Return the method wrapped to record its start and end."""

    def call(*arguments: Any) -> Any:
        begun = time.perf_counter()
        try:
            return method(*arguments)
        finally:
            spans.append((begun, time.perf_counter()))

    return call


def train(cache: Path, config: Config, run: Path, log: NativeLog, progress: RunProgress) -> Times:
    """Train as `xtts train` does and record the times of the events."""
    # Imported here: TensorFlow's log must be redirected before.
    from xtts_pipeline.data.cached import CachedSource
    from xtts_pipeline.data.source import Source
    from xtts_pipeline.training import loop
    from xtts_pipeline.training.checkpoints import saver as saving
    from xtts_pipeline.training.context import RunContext
    from xtts_pipeline.training.monitoring.compilations import CompilationMonitor
    from xtts_pipeline.training.monitoring.step_timing import StepTimer

    times = Times()
    batches_of, pausing = Source.training_batches, StepTimer.pausing

    def training_batches(*arguments: Any) -> Iterator[Any]:
        batches = batches_of(*arguments)
        while True:
            times.asked.append(time.perf_counter())
            yield next(batches)

    @contextmanager
    def copying(timer: StepTimer) -> Iterator[None]:
        begun = time.perf_counter()
        with pausing(timer):
            yield
        times.copied.append((begun, time.perf_counter()))

    def patches() -> Iterator[AbstractContextManager[Any]]:
        yield mock.patch.object(Source, "training_batches", training_batches)
        yield mock.patch.object(StepTimer, "pausing", copying)
        yield mock.patch.object(saving, "save_checkpoint", timed(saving.save_checkpoint, times.written))
        for name in HANDING_OVER:
            method = timed(getattr(saving.CheckpointSaver, name), times.handed_over)
            yield mock.patch.object(saving.CheckpointSaver, name, method)

    monitor = CompilationMonitor(log, is_strict=True, is_compiled=config.training.jit_compile)
    with ExitStack() as patched:
        for patch in patches():
            patched.enter_context(patch)
        with RunContext(run, config, CachedSource(cache, load_manifest(cache)), monitor, progress) as context:
            loop.run(context)
    return times


def main() -> None:
    """Train and judge the cost of saving."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--save-every", type=int, default=20)
    parser.add_argument("--evaluate-every", type=int, help="default: after the last step only")
    parser.add_argument("--warm-up", type=int, default=15, help="steps to leave out at the beginning")
    parser.add_argument("--config", action="append", default=[], help="a preset or YAML file, as xtts train takes it")
    parser.add_argument(
        "--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="more settings of the run"
    )
    arguments = parser.parse_args()
    evaluate_every = arguments.evaluate_every or arguments.steps
    training = {
        "log_every": 1,
        "save_every": arguments.save_every,
        "evaluate_every": evaluate_every,
        "sample_every_evaluations": "null",
    }
    overrides = [*(f"training.{name}={value}" for name, value in training.items()), *arguments.set]
    config = training_config(load_manifest(arguments.cache), arguments.config, overrides, arguments.steps)
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        run.mkdir()
        with NativeLog(run / "tensorflow.log") as log, RunProgress(arguments.steps) as progress:
            times = train(arguments.cache, config, run, log, progress)
        weights_bytes = max(path.stat().st_size for path in run.glob("checkpoints/*/weights.safetensors"))
    since, until = times.asked[arguments.warm_up], times.asked[-1]

    def durations(spans: Sequence[tuple[float, float]]) -> list[float]:
        """Return the durations in ms of the events within the counted steps."""
        return [1e3 * (ended - begun) for begun, ended in spans if since <= begun and ended <= until]

    judged = judge(
        times.steps(evaluate_every)[arguments.warm_up :], durations(times.copied), durations(times.handed_over)
    )
    print(
        json.dumps(
            {"weights_bytes": weights_bytes, "write_ms": max(durations(times.written), default=None), **judged},
            indent=1,
        )
    )
    sys.exit(not judged["ok"])


if __name__ == "__main__":
    main()
