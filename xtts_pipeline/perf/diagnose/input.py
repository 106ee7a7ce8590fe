"""Whether the pipeline brings batches as fast as the step takes them; if not, what holds it up and which setting would mend it."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from xtts_pipeline.cache.format.manifest import Manifest
from xtts_pipeline.config.schema import Config, DataConfig
from xtts_pipeline.perf.diagnose.oscillation import Oscillation, find_oscillation
from xtts_pipeline.perf.diagnose.pipeline import Pipeline, Stage
from xtts_pipeline.perf.diagnose.timeline import save_batch_times
from xtts_pipeline.perf.trial import Trial, Verdict
from xtts_pipeline.system.machine import Cores, DiskSpeed, measure_disk, memory_limit_bytes, usable_cores
from xtts_pipeline.system.runtime import NativeLog
from xtts_pipeline.training.monitoring.warnings import MAX_WAIT_SHARE

# Faster than the step by less than this is too slow: the pipeline was timed alone, and in training it shares the cores.
LEAST_HEADROOM = 1.1
# A buffer, or kept records, over this share of memory leave too little for the step and the page cache.
MOST_MEMORY_SHARE = 0.5
# With fewer cores busy than this a pipeline waits for its disk, not for its cores.
WAITING_CORES = 0.5
OSCILLATING = "oscillating"
_FASTER_DISK = "put the cache on a local disk (xtts train --stage DIR)"
_STAGE_SECONDS = 5.0
_DISK_BYTES = 64 << 20
_STEPS = 8


class Figures(NamedTuple):
    """All that was measured; the verdict is read from it.

    held_bytes are those of the records in memory, all of them or the shuffle buffer's; train_bytes all training records'.
    paced_records_per_second is what the step gets that waits for late batches; None where nothing said that it might have to.
    """

    batch_ms: dict[str, float]
    batch_times_ms: list[float]
    records_per_second: float
    step_records_per_second: float
    paced_records_per_second: float | None
    stages: dict[str, Stage]
    python_operations: list[str]
    oscillation: Oscillation | None
    disk: DiskSpeed
    cores: Cores
    record_bytes: int
    train_bytes: int
    held_bytes: int
    memory_bytes: int
    cache_records: bool

    @property
    def headroom(self) -> float:
        """How many times as many records come as the step takes."""
        return self.records_per_second / self.step_records_per_second

    @property
    def step_ms(self) -> float:
        """How long the step takes for a batch."""
        return self.headroom * self.batch_ms["mean"]

    @property
    def needed_gain(self) -> float | None:
        """How many times faster the input must become; None where it is fast enough."""
        return LEAST_HEADROOM / self.headroom if self.headroom < LEAST_HEADROOM else None

    @property
    def wait_share(self) -> float:
        """Share of its time that the step waits for batches that come in a rhythm; 0 where none was found."""
        if self.paced_records_per_second is None:
            return 0.0
        return max(1.0 - self.paced_records_per_second / self.step_records_per_second, 0.0)

    def to_json(self) -> dict[str, Any]:
        """Return it as `--json` prints it."""
        return {
            **self._asdict(),
            "headroom": self.headroom,
            "needed_gain": self.needed_gain,
            "stages": {name: stage.to_json() for name, stage in self.stages.items()},
            "oscillation": self.oscillation and self.oscillation.to_json(),
            "disk": self.disk.to_json(),
            "cores": self.cores.to_json(),
        }

    def to_text(self) -> str:
        """Return it for people, a line a figure."""
        batch = self.batch_ms
        held = "all training records are kept" if self.cache_records else "the shuffle buffer takes"
        lines = [
            (
                f"batches       {batch['mean']:.1f} ms +/- {batch['std']:.1f} (p95 {batch['p95']:.1f}, max {batch['max']:.1f}, "
                f"first {batch['first']:.0f})"
            ),
            (
                f"records/s     {self.records_per_second:.0f}; the step takes {self.step_records_per_second:.0f} "
                f"({self.headroom:.1f} times as many come)"
            ),
            "ms per batch  " + ", ".join(f"{name} {stage.ms_per_batch:.2f}" for name, stage in self.stages.items()),
            f"reading       {self._reading_text()}, {_speed_text(self.disk)}",
            f"memory        {held}, {self.held_bytes / 1e6:.0f} MB of {self.memory_bytes / 1e6:.0f} MB",
            f"cores         {self.cores.usable:g} of {self.cores.machine}",
            f"Python ops    {len(self.python_operations)}",
        ]
        if self.oscillation is not None:
            waits = (
                ""
                if self.paced_records_per_second is None
                else f"; the step waits {self.wait_share:.0%} of its time for it"
            )
            lines.append(
                f"oscillation   every {self.oscillation.period} batches, strength {self.oscillation.strength:.2f}{waits}"
            )
        return "\n".join(lines)

    def _reading_text(self) -> str:
        if self.cache_records:
            return "once, before the first batch"
        return f"{self.stages['read'].records_per_second * self.record_bytes / 1e6:.0f} MB/s as the pipeline reads"


class Setting(NamedTuple):
    """A setting of `data` that would help."""

    key: str
    value: int | bool

    def __str__(self) -> str:
        return f"data.{self.key}={json.dumps(self.value)}"


class Judgement(NamedTuple):
    """A verdict, the setting to change where one helps, and how many times faster the input, or the step that waits, is at most with it."""

    verdict: Verdict
    setting: Setting | None = None
    expected_gain: float | None = None


@dataclass(frozen=True)
class InputReport:
    """The verdict on a pipeline, the change it asks for, and what `--measure-fix` measured of it."""

    judgement: Judgement
    figures: Figures
    tried: dict[str, float] | None = None
    picture: Path | None = None

    @property
    def verdict(self) -> Verdict:
        """What was found."""
        return self.judgement.verdict

    def to_json(self) -> dict[str, Any]:
        """Return it as `--json` prints it."""
        return {
            **self.verdict.to_json(),
            "setting": None if self.judgement.setting is None else str(self.judgement.setting),
            "expected_gain": self.judgement.expected_gain,
            "tried": self.tried,
            **self.figures.to_json(),
            "picture": None if self.picture is None else str(self.picture),
        }

    def to_text(self) -> str:
        """Return it for people."""
        lines = [self.figures.to_text()]
        gains = {"needed": self.figures.needed_gain, "expected at most": self.judgement.expected_gain}
        if told := [f"{gain:.2f} times {name}" for name, gain in gains.items() if gain is not None]:
            lines.append(f"gain          {', '.join(told)}")
        if self.tried is not None:
            found = (
                f"{self.tried['before']:.0f} -> {self.tried['after']:.0f} records/s ({self.tried['gain']:.2f} times)"
            )
            lines.append(f"tried         {self.judgement.setting}: {found}")
        if self.picture is not None:
            lines.append(f"picture       {self.picture}")
        return "\n".join([*lines, f"verdict       {self.verdict}"])


def diagnose_input(
    log: NativeLog,
    cache: Path,
    manifest: Manifest,
    config: Config,
    *,
    batches: int,
    measure_fix: bool,
    plot: Path | None,
) -> InputReport:
    """Time the step and its pipeline apart, say which of them the other waits for, and draw `plot` if it is given."""
    trial = Trial.of_cache(log, cache, manifest, config)
    records = [manifest.split_records("train", bucket) for bucket in range(len(trial.signatures))]
    bucket = int(np.argmax(records))
    pipeline = Pipeline(trial.source, config, bucket, trial.signatures[bucket].tokens.shape[0])
    figures = _measure(trial, pipeline, batches)
    judgement = judge(figures, config.data)
    tried = _try(judgement, pipeline, batches, figures) if measure_fix else None
    if plot is not None:
        save_batch_times(plot, figures.batch_times_ms, figures.step_ms, figures.stages, str(judgement.verdict))
    return InputReport(judgement, figures, tried, plot)


def judge(figures: Figures, data: DataConfig) -> Judgement:
    """Return the first verdict that fits, with what would mend it."""
    rates = f"{figures.records_per_second:.0f} records/s come, the step takes {figures.step_records_per_second:.0f}"
    if figures.python_operations:
        finding = f"the graph calls Python: {', '.join(figures.python_operations)}"
        return Judgement(
            _bad("Python in the path", finding, "write it in TensorFlow operations, or do it in preprocess")
        )
    if figures.held_bytes > MOST_MEMORY_SHARE * figures.memory_bytes:
        return _judge_memory(figures)
    is_behind = figures.needed_gain is not None
    limit = figures.cores.limit
    if limit is not None and (is_behind or figures.cores.usable < 2):
        remedy = "give the process all cores: taskset, the job's CPU limit"
        return Judgement(
            _bad("too few cores", f"{limit}; {rates}", remedy),
            expected_gain=figures.cores.machine / figures.cores.usable,
        )
    if not is_behind:
        return _judge_rhythm(figures, data, rates)
    read = figures.stages.get("read")
    if (
        read is not None
        and read.records_per_second < LEAST_HEADROOM * figures.step_records_per_second
        and read.busy_cores < WAITING_CORES
    ):
        return _judge_disk(figures, read, rates)
    stage = max(figures.stages.keys() - {"read"}, key=lambda name: figures.stages[name].ms_per_batch)
    workers = int(figures.cores.usable)
    setting = None if data.num_workers == "auto" or data.num_workers >= workers else Setting("num_workers", workers)
    remedy = f"set {setting}" if setting else "more cores, or fewer other programs on them"
    finding = f"{stage} is the costliest stage, and no disk is waited for; {rates}"
    gain = None if setting is None else workers / float(data.num_workers)
    return Judgement(_bad("too few cores", finding, remedy), setting, gain)


def _bad(name: str, finding: str, remedy: str) -> Verdict:
    return Verdict(name, is_healthy=False, finding=finding, remedy=remedy)


def _judge_memory(figures: Figures) -> Judgement:
    """Return the verdict on records that take too much memory: the gain is memory, and none of speed is expected."""
    share = figures.held_bytes / max(figures.memory_bytes, 1)
    taken = f"{figures.held_bytes / 1e6:.1f} MB of {figures.memory_bytes / 1e6:.1f} MB of memory ({share:.0%})"
    if figures.cache_records:
        setting = Setting("cache_records", value=False)
        return Judgement(
            _bad("too much in memory", f"the training records, which are kept, take {taken}", f"set {setting}"), setting
        )
    fitting = max(int(MOST_MEMORY_SHARE / 2 * figures.memory_bytes / figures.record_bytes), 1)
    setting = Setting("shuffle_records", fitting)
    return Judgement(_bad("shuffle too large", f"the buffer takes {taken}", f"set {setting}"), setting)


def _judge_rhythm(figures: Figures, data: DataConfig, rates: str) -> Judgement:
    """Return the verdict on an input that is fast enough in the mean: a rhythm is a fault only where the step waits for it."""
    if figures.oscillation is None or figures.wait_share <= MAX_WAIT_SHARE:
        return Judgement(Verdict("fine", is_healthy=True, finding=rates, remedy=""))
    period = figures.oscillation.period
    finding = f"batches come in a rhythm of {period}, so that the step waits {figures.wait_share:.0%} of its time though {rates}"
    gain = 1.0 / (1.0 - figures.wait_share)
    if data.prefetch_buffer_size == "auto" or data.prefetch_buffer_size < 2 * period:
        setting = Setting("prefetch_buffer_size", 2 * period)
        return Judgement(_bad(OSCILLATING, finding, f"set {setting}"), setting, gain)
    return Judgement(
        _bad(OSCILLATING, finding, f"data.prefetch_buffer_size does not even it out: {_FASTER_DISK}"),
        expected_gain=gain,
    )


def _judge_disk(figures: Figures, read: Stage, rates: str) -> Judgement:
    """Return the verdict on a disk that is waited for; what is expected is that records come as fast as from the page cache."""
    speed = read.records_per_second * figures.record_bytes / 1e6
    finding = f"reading brings {speed:.0f} MB/s with {read.busy_cores:.1f} cores busy; {rates}"
    *_, last = figures.stages.values()
    from_memory = figures.record_bytes / 1e6 / figures.disk.cached_mb_per_second
    rest = max(1.0 / last.records_per_second - 1.0 / read.records_per_second, 0.0)
    gain = 1.0 / last.records_per_second / (rest + from_memory)
    if figures.train_bytes <= MOST_MEMORY_SHARE * figures.memory_bytes:
        setting = Setting("cache_records", value=True)
        return Judgement(_bad("slow disk", finding, f"set {setting}, or {_FASTER_DISK}"), setting, gain)
    return Judgement(_bad("slow disk", finding, _FASTER_DISK), expected_gain=gain)


def paced_rate(pipeline: Pipeline, batches: int, step_seconds: float) -> float:
    """Return how many records a second a step takes that lasts so long and waits where a batch comes later than most.

    Waits without a rhythm are of other programs, and do not count.
    """
    waits = np.array(pipeline.paced_waits(batches, step_seconds))
    late = (
        np.maximum(waits - np.median(waits), 0.0)
        if find_oscillation(waits.tolist()) is not None
        else np.zeros_like(waits)
    )
    return pipeline.batch_size / (step_seconds + float(late.mean()))


def _measure(trial: Trial, pipeline: Pipeline, batches: int) -> Figures:
    times = [trial.take_step() for _ in range(_STEPS)]
    warm = [time for time in times if not time.is_compiling] or times
    # Of the median: other programs may disturb one of so few steps.
    step_rate = float(np.median([time.rows / (time.host + time.compute) for time in warm]))
    first, *later = pipeline.batch_seconds(batches)
    milliseconds = 1e3 * np.array(later)
    rate, oscillation = pipeline.batch_size / float(np.mean(later)), find_oscillation(later)
    paced = None
    # A cache of a few batches has a rhythm of its own: each epoch begins anew.
    if (
        oscillation is not None
        and oscillation.period % pipeline.batches_per_epoch
        and rate >= LEAST_HEADROOM * step_rate
    ):
        # Whether a rhythm matters depends on how long the step is and how much is prefetched: tried rather than reckoned.
        paced = paced_rate(pipeline, batches, pipeline.batch_size / step_rate)
    return Figures(
        batch_ms={
            "mean": float(milliseconds.mean()),
            "std": float(milliseconds.std()),
            "p95": float(np.percentile(milliseconds, 95)),
            "max": float(milliseconds.max()),
            "first": 1e3 * first,
        },
        batch_times_ms=[1e3 * seconds for seconds in (first, *later)],
        records_per_second=rate,
        step_records_per_second=step_rate,
        paced_records_per_second=paced,
        stages=pipeline.stages(batches, _STAGE_SECONDS),
        python_operations=pipeline.python_operations(),
        oscillation=oscillation,
        disk=measure_disk(pipeline.files, _DISK_BYTES),
        cores=usable_cores(),
        record_bytes=pipeline.record_bytes,
        train_bytes=pipeline.source.manifest.split_bytes("train"),
        held_bytes=pipeline.held_bytes,
        memory_bytes=memory_limit_bytes(),
        cache_records=pipeline.is_in_memory,
    )


def _try(judgement: Judgement, pipeline: Pipeline, batches: int, figures: Figures) -> dict[str, float] | None:
    """Measure the setting that the verdict names as the figure behind it was measured; None where it names none."""
    if judgement.setting is None:
        return None
    changed = pipeline.with_data(**{judgement.setting.key: judgement.setting.value})
    if judgement.verdict.name == OSCILLATING and figures.paced_records_per_second is not None:
        before = figures.paced_records_per_second
        after = paced_rate(changed, batches, pipeline.batch_size / figures.step_records_per_second)
    else:
        before, after = (
            figures.records_per_second,
            changed.batch_size / float(np.mean(changed.batch_seconds(batches)[1:])),
        )
    return {"before": before, "after": after, "gain": after / before}


def _speed_text(disk: DiskSpeed) -> str:
    from_disk = (
        "the disk cannot be told from memory"
        if disk.disk_mb_per_second is None
        else f"{disk.disk_mb_per_second:.0f} MB/s from disk"
    )
    return f"{from_disk}, {disk.cached_mb_per_second:.0f} MB/s from the page cache"
