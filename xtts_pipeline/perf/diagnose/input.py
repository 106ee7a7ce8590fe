"""Diagnose the input pipeline: compare its rate with the step's; name the slow part and a setting that helps."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from xtts_pipeline.cache.format.manifest import Manifest
from xtts_pipeline.config.schema import Config, DataConfig
from xtts_pipeline.perf.diagnose.oscillation import Oscillation, find_oscillation
from xtts_pipeline.perf.diagnose.timeline import save_batch_times
from xtts_pipeline.perf.diagnose.verdict import Verdict
from xtts_pipeline.perf.pipeline import Pipeline, Stage
from xtts_pipeline.perf.trial import Trial
from xtts_pipeline.system.machine import Cores, DiskSpeed, measure_disk, memory_limit_bytes, usable_cores
from xtts_pipeline.system.runtime import NativeLog
from xtts_pipeline.training.monitoring.warnings import MAX_WAIT_SHARE

# The pipeline is timed alone, but shares the cores in training: it must be this many times faster than the step.
LEAST_HEADROOM = 1.1
# Over this share of memory, a buffer or kept records leave too little for the step and the page cache.
MOST_MEMORY_SHARE = 0.5
# With fewer busy cores, a pipeline waits for its disk, not for its cores.
WAITING_CORES = 0.5
OSCILLATING = "oscillating"
_FASTER_DISK = "put the cache on a local disk (xtts train --stage DIR)"
_STAGE_SECONDS = 5.0
_DISK_BYTES = 64 << 20
_STEPS = 8


class InputMeasurements(NamedTuple):
    """The measurements of a pipeline and its step.

    held_bytes are of the records in memory (all, or those of the shuffle buffer), train_bytes of all training records.
    paced_records_per_second is the rate of a step that waits for late batches; None if they are not late in a rhythm.
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
    buffered_bytes_per_record: int
    train_bytes: int
    held_bytes: int
    memory_bytes: int
    cache_records: bool

    @property
    def headroom(self) -> float:
        """The pipeline's rate over the step's rate."""
        return self.records_per_second / self.step_records_per_second

    @property
    def step_ms(self) -> float:
        """Milliseconds of the step for a batch."""
        return self.headroom * self.batch_ms["mean"]

    @property
    def needed_gain(self) -> float | None:
        """How many times faster the input must become; None if it is fast enough."""
        return LEAST_HEADROOM / self.headroom if self.headroom < LEAST_HEADROOM else None

    @property
    def wait_share(self) -> float:
        """Share of the step's time spent waiting for late batches; 0 if they are not late in a rhythm."""
        if self.paced_records_per_second is None:
            return 0.0
        return max(1.0 - self.paced_records_per_second / self.step_records_per_second, 0.0)

    def to_json(self) -> dict[str, Any]:
        """Return the result for programs."""
        return {
            **self._asdict(),
            "headroom": self.headroom,
            "needed_gain": self.needed_gain,
            "stages": {name: asdict(stage) for name, stage in self.stages.items()},
            "oscillation": self.oscillation and asdict(self.oscillation),
            "disk": asdict(self.disk),
            "cores": self.cores.to_json(),
        }

    def to_text(self) -> str:
        """Return the measurements for people, one a line."""
        batch = self.batch_ms
        held = "all training records are kept" if self.cache_records else "the shuffle buffer takes"
        costs = [f"{name} {stage.ms_per_batch:.2f}" for name, stage in self.stages.items()]
        lines = [
            (
                f"batches       {batch['mean']:.1f} ms +/- {batch['std']:.1f} "
                f"(p95 {batch['p95']:.1f}, max {batch['max']:.1f}, first {batch['first']:.0f})"
            ),
            (
                f"records/s     {self.records_per_second:.0f}; the step takes {self.step_records_per_second:.0f} "
                f"({self.headroom:.1f} times as many come)"
            ),
            f"ms per batch  {' + '.join(costs)} = {sum(stage.ms_per_batch for stage in self.stages.values()):.2f}",
            f"reading       {self._reading_text()}, {_speed_text(self.disk)}",
            f"memory        {held}, {self.held_bytes / 1e6:.0f} MB of {self.memory_bytes / 1e6:.0f} MB",
            f"cores         {self.cores.usable:g} of {self.cores.machine}",
            f"Python ops    {len(self.python_operations)}",
        ]
        if self.oscillation is not None:
            is_paced = self.paced_records_per_second is not None
            waits = f"; the step waits {self.wait_share:.0%} of its time for it" if is_paced else ""
            rhythm = f"every {self.oscillation.period} batches, strength {self.oscillation.strength:.2f}"
            lines.append(f"oscillation   {rhythm}{waits}")
        return "\n".join(lines)

    def _reading_text(self) -> str:
        if self.cache_records:
            return "once, before the first batch"
        return f"{self.stages['read'].records_per_second * self.record_bytes / 1e6:.0f} MB/s as the pipeline reads"


class Setting(NamedTuple):
    """A setting of `data` and its better value."""

    key: str
    value: int | bool

    def __str__(self) -> str:
        return f"data.{self.key}={json.dumps(self.value)}"


class Judgement(NamedTuple):
    """A verdict, the setting to change if one helps, and its highest gain for the input or the waiting step."""

    verdict: Verdict
    setting: Setting | None = None
    expected_gain: float | None = None


@dataclass(frozen=True)
class InputReport:
    """The verdict on a pipeline, its measurements, and the effect of the fix if `--measure-fix` measured it."""

    judgement: Judgement
    figures: InputMeasurements
    tried: dict[str, float] | None = None
    picture: Path | None = None

    @property
    def verdict(self) -> Verdict:
        """The verdict of the judgement."""
        return self.judgement.verdict

    def to_json(self) -> dict[str, Any]:
        """Return the result for programs."""
        return {
            **self.verdict.to_json(),
            "setting": None if self.judgement.setting is None else str(self.judgement.setting),
            "expected_gain": self.judgement.expected_gain,
            "tried": self.tried,
            **self.figures.to_json(),
            "picture": None if self.picture is None else str(self.picture),
        }

    def to_text(self) -> str:
        """Return the report for people."""
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
    """Time the step and its pipeline apart, judge which of them waits for the other, and draw `plot` if it is given."""
    trial = Trial.of_cache(log, cache, manifest, config)
    pipeline = Pipeline.of_largest_bucket(trial.source, config)
    figures = _measure(trial, pipeline, batches)
    judgement = judge(figures, config.data)
    tried = _measure_fix(judgement, pipeline, batches, figures) if measure_fix else None
    if plot is not None:
        save_batch_times(plot, figures.batch_times_ms, figures.step_ms, figures.stages, str(judgement.verdict))
    return InputReport(judgement, figures, tried, plot)


def judge(figures: InputMeasurements, data: DataConfig) -> Judgement:
    """Return the first verdict that applies, with its remedy."""
    rates = f"{figures.records_per_second:.0f} records/s come, the step takes {figures.step_records_per_second:.0f}"
    if figures.python_operations:
        finding = f"the graph calls Python: {', '.join(figures.python_operations)}"
        remedy = "write it in TensorFlow operations, or do it in preprocess"
        return Judgement(Verdict("Python in the path", finding, remedy))
    if figures.held_bytes > MOST_MEMORY_SHARE * figures.memory_bytes:
        return _judge_memory(figures)
    is_behind = figures.needed_gain is not None
    limit = figures.cores.limit
    if limit is not None and (is_behind or figures.cores.usable < 2):
        remedy = "give the process all cores: taskset, the job's CPU limit"
        gain = figures.cores.machine / figures.cores.usable
        return Judgement(Verdict("too few cores", f"{limit}; {rates}", remedy), expected_gain=gain)
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
    finding = f"{stage} is the costliest stage, and the disk is fast enough; {rates}"
    most_gain = None if setting is None else workers / float(data.num_workers)
    return Judgement(Verdict("too few cores", finding, remedy), setting, most_gain)


def _judge_memory(figures: InputMeasurements) -> Judgement:
    """Return the verdict on records that take too much memory; its fix gains memory, not speed."""
    share = figures.held_bytes / max(figures.memory_bytes, 1)
    taken = f"{figures.held_bytes / 1e6:.1f} MB of {figures.memory_bytes / 1e6:.1f} MB of memory ({share:.0%})"
    if figures.cache_records:
        setting = Setting("cache_records", value=False)
        finding = f"the training records, which are kept, take {taken}"
        return Judgement(Verdict("too much in memory", finding, f"set {setting}"), setting)
    fitting = max(int(MOST_MEMORY_SHARE / 2 * figures.memory_bytes / figures.buffered_bytes_per_record), 1)
    setting = Setting("shuffle_records", fitting)
    return Judgement(Verdict("shuffle too large", f"the buffer takes {taken}", f"set {setting}"), setting)


def _judge_rhythm(figures: InputMeasurements, data: DataConfig, rates: str) -> Judgement:
    """Return the verdict on an input with a sufficient mean rate: a rhythm is a fault only if the step waits for it."""
    if figures.oscillation is None or figures.wait_share <= MAX_WAIT_SHARE:
        return Judgement(Verdict("fine", rates))
    period = figures.oscillation.period
    waits = f"the step waits {figures.wait_share:.0%} of its time"
    finding = f"batches come in a rhythm of {period}, so that {waits} though {rates}"
    gain = 1.0 / (1.0 - figures.wait_share)
    if data.prefetch_buffer_size == "auto" or data.prefetch_buffer_size < 2 * period:
        setting = Setting("prefetch_buffer_size", 2 * period)
        return Judgement(Verdict(OSCILLATING, finding, f"set {setting}"), setting, gain)
    remedy = f"data.prefetch_buffer_size does not even it out: {_FASTER_DISK}"
    return Judgement(Verdict(OSCILLATING, finding, remedy), expected_gain=gain)


def _judge_disk(figures: InputMeasurements, read: Stage, rates: str) -> Judgement:
    """Return the verdict on a slow disk; the expected gain is that of reading from the page cache."""
    speed = read.records_per_second * figures.record_bytes / 1e6
    finding = f"reading brings {speed:.0f} MB/s with {read.busy_cores:.1f} cores busy; {rates}"
    *_, last = figures.stages.values()
    from_memory = figures.record_bytes / 1e6 / figures.disk.cached_mb_per_second
    rest = max(1.0 / last.records_per_second - 1.0 / read.records_per_second, 0.0)
    gain = 1.0 / last.records_per_second / (rest + from_memory)
    if figures.train_bytes <= MOST_MEMORY_SHARE * figures.memory_bytes:
        setting = Setting("cache_records", value=True)
        return Judgement(Verdict("slow disk", finding, f"set {setting}, or {_FASTER_DISK}"), setting, gain)
    return Judgement(Verdict("slow disk", finding, _FASTER_DISK), expected_gain=gain)


def paced_rate(pipeline: Pipeline, batches: int, step_seconds: float) -> float:
    """Return the records per second of a step of `step_seconds` that waits for batches later than the median.

    Waits without a rhythm come from other programs and do not count.
    """
    waits = np.array(pipeline.batch_waits(batches + 1, step_seconds)[1:])
    late = np.maximum(waits - np.median(waits), 0.0) if find_oscillation(waits.tolist()) else np.zeros_like(waits)
    return pipeline.batch_size / (step_seconds + float(late.mean()))


def _measure(trial: Trial, pipeline: Pipeline, batches: int) -> InputMeasurements:
    times = [trial.take_step() for _ in range(_STEPS)]
    warm = [time for time in times if not time.is_compiling] or times
    # The median, because other programs may disturb one of few steps. The steps of all buckets take about as long.
    step_rate = pipeline.batch_size / float(np.median([time.busy for time in warm]))
    first, *later = pipeline.batch_waits(batches)
    milliseconds = 1e3 * np.array(later)
    rate, oscillation = pipeline.batch_size / float(np.mean(later)), find_oscillation(later)
    paced = None
    # A cache of few batches has a rhythm of its own: each epoch starts again.
    has_rhythm = oscillation is not None and oscillation.period % pipeline.order.batches_per_epoch
    if has_rhythm and rate >= LEAST_HEADROOM * step_rate:
        # The effect of a rhythm depends on the step and the prefetch buffer, so it is measured.
        paced = paced_rate(pipeline, batches, pipeline.batch_size / step_rate)
    return InputMeasurements(
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
        disk=measure_disk(pipeline.source.shard_paths(pipeline.bucket), _DISK_BYTES),
        cores=usable_cores(),
        record_bytes=pipeline.record_bytes[pipeline.bucket],
        buffered_bytes_per_record=sum(pipeline.record_bytes),
        train_bytes=pipeline.source.manifest.split_bytes("train"),
        held_bytes=pipeline.held_bytes,
        memory_bytes=memory_limit_bytes(),
        cache_records=pipeline.is_in_memory,
    )


def _measure_fix(
    judgement: Judgement, pipeline: Pipeline, batches: int, figures: InputMeasurements
) -> dict[str, float] | None:
    """Measure the rate behind the verdict again with the setting that it names; None if it names none."""
    if judgement.setting is None:
        return None
    changed = pipeline.with_data(**{judgement.setting.key: judgement.setting.value})
    if judgement.verdict.name == OSCILLATING and figures.paced_records_per_second is not None:
        before = figures.paced_records_per_second
        after = paced_rate(changed, batches, pipeline.batch_size / figures.step_records_per_second)
    else:
        before = figures.records_per_second
        after = changed.batch_size / float(np.mean(changed.batch_waits(batches)[1:]))
    return {"before": before, "after": after, "gain": after / before}


def _speed_text(disk: DiskSpeed) -> str:
    speed = disk.disk_mb_per_second
    from_disk = "the disk cannot be told from memory" if speed is None else f"{speed:.0f} MB/s from disk"
    return f"{from_disk}, {disk.cached_mb_per_second:.0f} MB/s from the page cache"
