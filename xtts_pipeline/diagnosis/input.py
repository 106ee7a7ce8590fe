"""Whether the pipeline brings batches as fast as the step takes them; if not, what holds it up and which setting would mend it."""

import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from xtts_pipeline.config import Config
from xtts_pipeline.diagnosis.machine import Cores, DiskSpeed, measure_disk, memory_limit_bytes, usable_cores
from xtts_pipeline.diagnosis.oscillation import Oscillation, find_oscillation
from xtts_pipeline.diagnosis.pipeline import Pipeline, Stage
from xtts_pipeline.diagnosis.trial import Trial, Verdict
from xtts_pipeline.training.monitor import CompilationMonitor
from xtts_pipeline.training.source import Source

# Faster than the step by less than this is too slow: the pipeline was timed alone, and in training it shares the cores.
LEAST_HEADROOM = 1.1
# A buffer over this share of memory leaves too little for the step and the page cache.
MOST_MEMORY_SHARE = 0.5
# With fewer cores busy than this a pipeline waits for its disk, not for its cores.
WAITING_CORES = 0.5
_STAGE_SECONDS = 5.0
_DISK_BYTES = 64 << 20
_STEPS = 8


class Figures(NamedTuple):
    """All that was measured; the verdict is read from it."""

    batch_ms: dict[str, float]
    records_per_second: float
    step_records_per_second: float
    stages: dict[str, Stage]
    python_operations: list[str]
    oscillation: Oscillation | None
    disk: DiskSpeed
    cores: Cores
    record_bytes: int
    buffered_bytes: int
    memory_bytes: int

    @property
    def headroom(self) -> float:
        """How many times as many records come as the step takes."""
        return self.records_per_second / self.step_records_per_second

    def to_json(self) -> dict[str, Any]:
        """Return it as `--json` prints it."""
        return {
            **self._asdict(),
            "headroom": self.headroom,
            "stages": {name: stage.to_json() for name, stage in self.stages.items()},
            "oscillation": self.oscillation and self.oscillation.to_json(),
            "disk": self.disk.to_json(),
            "cores": self.cores.to_json(),
        }


@dataclass(frozen=True)
class InputReport:
    """The verdict on a pipeline, the change it asks for, and what `--try` measured of it."""

    verdict: Verdict
    setting: str | None
    expected_gain: float | None
    figures: Figures
    tried: dict[str, float] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it as `--json` prints it."""
        return {
            **self.verdict.to_json(),
            "setting": self.setting,
            "expected_gain": self.expected_gain,
            "tried": self.tried,
            **self.figures.to_json(),
        }

    def to_text(self) -> str:
        """Return it for people."""
        figures = self.figures
        batch, disk = figures.batch_ms, figures.disk
        lines = [
            (
                f"batches       {batch['mean']:.1f} ms +/- {batch['std']:.1f} (p95 {batch['p95']:.1f}, max {batch['max']:.1f}, "
                f"first {batch['first']:.0f})"
            ),
            (
                f"records/s     {figures.records_per_second:.0f}; the step takes {figures.step_records_per_second:.0f} "
                f"({figures.headroom:.1f} times as many come)"
            ),
            "ms per batch  " + ", ".join(f"{name} {stage.ms_per_batch:.2f}" for name, stage in figures.stages.items()),
            (
                f"reading       {figures.stages['read'].records_per_second * figures.record_bytes / 1e6:.0f} MB/s as the pipeline reads, "
                f"{_speed_text(disk)}"
            ),
            f"shuffle       {figures.buffered_bytes / 1e6:.0f} MB of {figures.memory_bytes / 1e6:.0f} MB of memory",
            f"cores         {figures.cores.usable:g} of {figures.cores.machine}",
            f"Python ops    {len(figures.python_operations)}",
        ]
        if figures.oscillation is not None:
            lines.append(f"oscillation   every {figures.oscillation.period} batches, strength {figures.oscillation.strength:.2f}")
        if self.tried is not None:
            lines.append(
                f"tried         {self.tried['before']:.0f} -> {self.tried['after']:.0f} records/s ({self.tried['gain']:.2f} times)"
            )
        return "\n".join([*lines, f"verdict       {self.verdict}"])


def diagnose_input(source: Source, config: Config, monitor: CompilationMonitor, batches: int, *, is_trying: bool) -> InputReport:
    """Time the step and its pipeline apart, and say which of them the other waits for."""
    trial = Trial(source, config, monitor)
    records = [source.manifest.split_records("train", bucket) for bucket in range(len(trial.signatures))]
    bucket = int(np.argmax(records))
    rows = trial.signatures[bucket].tokens.shape[0]
    # Records in memory are read once; what is slow about reading shows on the disk.
    data = config.data.model_copy(update={"in_memory": False})
    pipeline = Pipeline(source.folder, source.manifest, bucket, rows, config.training.seed, data)
    figures = _measure(trial, pipeline, batches)
    verdict, setting, gain = judge(figures, config)
    tried = _try(verdict, setting, pipeline, batches, figures) if is_trying else None
    return InputReport(verdict, setting, gain, figures, tried)


def judge(figures: Figures, config: Config) -> tuple[Verdict, str | None, float | None]:
    """Return the verdict, the setting to change as `section.key=value`, and how many times faster the input should be with it."""

    def bad(name: str, finding: str, remedy: str) -> Verdict:
        return Verdict(name, is_healthy=False, finding=finding, remedy=remedy)

    needed = LEAST_HEADROOM / figures.headroom
    rates = f"{figures.records_per_second:.0f} records/s come, the step takes {figures.step_records_per_second:.0f}"
    if figures.python_operations:
        finding = f"the graph calls Python: {', '.join(figures.python_operations)}"
        return bad("Python in the path", finding, "write it in TensorFlow operations, or do it in preprocess"), None, max(needed, 1.0)
    share = figures.buffered_bytes / max(figures.memory_bytes, 1)
    if share > MOST_MEMORY_SHARE:
        fitting = max(int(MOST_MEMORY_SHARE / 2 * figures.memory_bytes / figures.record_bytes), 1)
        finding = f"the buffer takes {figures.buffered_bytes / 1e6:.1f} MB of {figures.memory_bytes / 1e6:.1f} MB of memory ({share:.0%})"
        return bad("shuffle too large", finding, f"set data.shuffle_records={fitting}"), f"data.shuffle_records={fitting}", None
    is_behind = figures.headroom < LEAST_HEADROOM
    limit = figures.cores.limit
    if limit is not None and (is_behind or figures.cores.usable < 2):
        gain = figures.cores.machine / figures.cores.usable
        return bad("too few cores", f"{limit}; {rates}", "give the process all cores: taskset, the job's CPU limit"), None, gain
    if not is_behind:
        return Verdict("fine", is_healthy=True, finding=rates, remedy=""), None, None
    read = figures.stages["read"]
    if read.records_per_second < LEAST_HEADROOM * figures.step_records_per_second and read.busy_cores < WAITING_CORES:
        speed = read.records_per_second * figures.record_bytes / 1e6
        finding = f"reading brings {speed:.0f} MB/s with {read.busy_cores:.1f} cores busy; {rates}"
        return bad("slow disk", finding, "put the cache on a local disk, or in memory (/dev/shm)"), None, needed
    stage = max(("shuffle", "copy", "parse"), key=lambda name: figures.stages[name].ms_per_batch)
    workers = int(figures.cores.usable)
    setting = None if config.data.num_workers in {"auto", workers} else f"data.num_workers={workers}"
    remedy = f"set {setting}" if setting else "more cores, or fewer other programs on them"
    return bad("too few cores", f"{stage} is the costliest stage, and no disk is waited for; {rates}", remedy), setting, needed


def _measure(trial: Trial, pipeline: Pipeline, batches: int) -> Figures:
    times = [trial.take_step() for _ in range(_STEPS)]
    warm = [time for time in times if not time.is_compiling] or times
    first, *later = pipeline.batch_seconds(batches)
    milliseconds = 1e3 * np.array(later)
    stages = pipeline.stages(batches, _STAGE_SECONDS)
    files = [pipeline.folder / name for name in pipeline.manifest.shard_names("train", pipeline.bucket)]
    return Figures(
        batch_ms={
            "mean": float(milliseconds.mean()),
            "std": float(milliseconds.std()),
            "p95": float(np.percentile(milliseconds, 95)),
            "max": float(milliseconds.max()),
            "first": 1e3 * first,
        },
        records_per_second=pipeline.batch_size / float(np.mean(later)),
        # Of the median: other programs may disturb one of so few steps.
        step_records_per_second=float(np.median([time.rows / (time.host + time.compute) for time in warm])),
        stages=stages,
        python_operations=pipeline.python_operations(),
        oscillation=find_oscillation(later),
        disk=measure_disk(files, _DISK_BYTES),
        cores=usable_cores(),
        record_bytes=pipeline.record_bytes,
        buffered_bytes=pipeline.buffered_bytes,
        memory_bytes=memory_limit_bytes(),
    )


def _try(verdict: Verdict, setting: str | None, pipeline: Pipeline, batches: int, figures: Figures) -> dict[str, float] | None:
    """Measure the remedy where one can be taken here: another setting, or the shards in memory; None where it cannot."""
    if verdict.name == "slow disk":
        with _in_memory(pipeline) as folder:
            return _gain(replace(pipeline, folder=Path(folder)), batches, figures)
    if setting is None:
        return None
    key, value = setting.removeprefix("data.").split("=")
    return _gain(replace(pipeline, data=pipeline.data.model_copy(update={key: int(value)})), batches, figures)


def _gain(changed: Pipeline, batches: int, figures: Figures) -> dict[str, float]:
    after = changed.batch_size / float(np.mean(changed.batch_seconds(batches)[1:]))
    return {"before": figures.records_per_second, "after": after, "gain": after / figures.records_per_second}


def _in_memory(pipeline: Pipeline) -> "tempfile.TemporaryDirectory[str]":
    """Return a folder in memory, where the system has one, with the shards copied to it."""
    shared = Path("/dev/shm")  # noqa: S108 (the file system in memory that Linux has; the folder within is a new one)
    folder = tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None)
    for name in pipeline.manifest.shard_names("train", pipeline.bucket):
        shutil.copy(pipeline.folder / name, folder.name)
    return folder


def _speed_text(disk: DiskSpeed) -> str:
    from_disk = (
        "the disk cannot be told from memory" if disk.disk_mb_per_second is None else f"{disk.disk_mb_per_second:.0f} MB/s from disk"
    )
    return f"{from_disk}, {disk.cached_mb_per_second:.0f} MB/s from the page cache"
