"""Diagnose retracing: compare settings, batches and source with the compiled step, and run it.

A retrace costs seconds, and only the step time shows it.
"""

import ast
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from xtts_pipeline import model, vocoder
from xtts_pipeline.cache.format.manifest import Manifest
from xtts_pipeline.config.schema import Config
from xtts_pipeline.data.source import Source
from xtts_pipeline.errors import TrainingError
from xtts_pipeline.perf.diagnose.verdict import Verdict
from xtts_pipeline.perf.trial import StepTime, Trial
from xtts_pipeline.system.runtime import NativeLog
from xtts_pipeline.training import optimizer, schedule, step
from xtts_pipeline.training.acoustic import step as acoustic_step
from xtts_pipeline.training.acoustic import voice_change
from xtts_pipeline.training.checkpoints.state import NetworkKind
from xtts_pipeline.training.compiled import SignatureMismatch, describe_arguments, find_mismatch
from xtts_pipeline.training.monitoring.compilations import total_counts
from xtts_pipeline.training.vocoder import step as vocoder_step

_VERDICTS = {
    "shape": "varying shape",
    "dtype": "wrong dtype",
    "python_argument": "Python argument",
    "incomplete_batch": "incomplete batch",
    "type": "wrong type",
}

_WARNING = "false: another shape is traced and compiled, and a run warns of it"


@dataclass(frozen=True)
class Check:
    """The result of one check."""

    name: str
    is_good: bool
    found: str


@dataclass(frozen=True)
class RetracingReport:
    """The checks, the counts, the step times and the verdict."""

    verdict: Verdict
    is_strict: bool
    checks: tuple[Check, ...]
    change: SignatureMismatch | None
    counts: dict[str, Any]
    events: tuple[dict[str, Any], ...]
    step_ms: dict[str, float] | None

    def to_json(self) -> dict[str, Any]:
        """Return the report for programs."""
        return {
            **self.verdict.to_json(),
            "change": self.change and self.change.to_json(),
            "strict_shapes": self.is_strict,
            "checks": [{"name": check.name, "good": check.is_good, "found": check.found} for check in self.checks],
            **self.counts,
            "events": list(self.events),
            "step_ms": self.step_ms,
        }

    def to_text(self) -> str:
        """Return the report for people."""
        lines = [f"{check.name:<14} {'ok  ' if check.is_good else 'BAD '} {check.found}" for check in self.checks]
        lines.append(f"{'strict_shapes':<14} {'true: another shape ends a run' if self.is_strict else _WARNING}")
        lines += [f"{'traces':<14} {self.counts['traces']}", f"{'compilations':<14} {self.counts['compilations']}"]
        if self.step_ms is not None:
            times = f"{self.step_ms['mean']:.1f} ms +/- {self.step_ms['std']:.1f}"
            lines.append(f"{'step time':<14} {times}, the first of each shape left out")
        return "\n".join([*lines, f"{'verdict':<14} {self.verdict}"])


def diagnose_retracing(
    log: NativeLog,
    cache: Path,
    manifest: Manifest,
    config: Config,
    *,
    steps: int,
    network: NetworkKind = "acoustic",
) -> RetracingReport:
    """Compare `steps` batches with the signatures of the compiled step, and run each of its phases on those that fit.

    A vocoder's crops have the shape that its source gives them, so their pipeline is not looked at.
    """
    trial = Trial.of_cache(log, cache, manifest, config, network)
    signatures = [describe_arguments(signature) for signature in trial.signatures]
    batches = [next(trial.batches) for _ in range(steps)]
    changes = [find_mismatch(describe_arguments(batch), signatures) for batch in batches]
    change = next((found for found in changes if found is not None), None)
    dynamic = dynamic_shape_reads()
    pipeline = check_pipeline(trial.source, config, trial.signatures) if network == "acoustic" else []
    times, problem = _run(trial, [batch for batch, found in zip(batches, changes, strict=True) if found is None])
    checks = [
        *pipeline,
        Check("batches", change is None, _shapes_text(batches, changes)),
        Check("source", not dynamic, f"tf.shape at {', '.join(dynamic)}" if dynamic else "no tf.shape in the step"),
        Check("step", problem is None, problem or f"{len(times)} steps run"),
    ]
    return RetracingReport(
        verdict=_verdict(change, steps - changes.count(None), pipeline, dynamic, problem, steps),
        is_strict=config.training.strict_shapes,
        checks=tuple(checks),
        change=change,
        counts=total_counts(trial.monitor.counts()),
        events=tuple(asdict(event) for event in trial.monitor.events),
        # The times of the last phase: the others have other costs.
        step_ms=step_statistics(times[-steps:]),
    )


def step_statistics(times: Sequence[StepTime]) -> dict[str, float] | None:
    """Return mean, std and p95 in ms of the steps that compiled nothing; None without any."""
    warm = [1e3 * time.busy for time in times if not time.is_compiling]
    if not warm:
        return None
    return {"mean": float(np.mean(warm)), "std": float(np.std(warm)), "p95": float(np.percentile(warm, 95))}


def dynamic_shape_reads() -> list[str]:
    """Return file:line of each tf.shape in the sources of the compiled step."""
    files = [file for package in (model, vocoder) for file in sorted(Path(package.__file__ or "").parent.glob("*.py"))]
    parts = (step, acoustic_step, voice_change, vocoder_step, optimizer, schedule)
    files += [Path(part.__file__ or "") for part in parts]
    return [
        f"{file.parent.name}/{file.name}:{node.lineno}"
        for file in files
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"tf.shape", "tf.size", "tf.rank"}
    ]


def _run(trial: Trial, batches: Sequence[Any]) -> tuple[list[StepTime], str | None]:
    times: list[StepTime] = []
    try:
        for steps_done in trial.phase_starts:
            trial.step.begin(steps_done)
            times.extend(trial.run(batch) for batch in batches)
    except TrainingError as error:
        return times, str(error)
    return times, None


def check_pipeline(source: Source, config: Config, signatures: Sequence[Any]) -> list[Check]:
    """Check that the training pipeline fixes the lengths and the rows of every batch.

    Reads no record: tf.data knows the element spec of each bucket's batches beforehand.
    """
    lengths, rows, open_lengths, open_rows = [], [], [], []
    for bucket, signature in enumerate(signatures):
        records, size = source.manifest.split_records("train", bucket), signature.tokens.shape[0]
        if not records:
            continue
        fields = source.training_dataset(source.order(config, bucket, size)).element_spec
        lengths.append(f"{signature.tokens.shape[1]} tokens x {signature.mel.shape[1]} frames")
        left_out = f", {records % size} left out, others in each epoch" if records % size else ""
        rows.append(f"{records} clips are {records // size} batches of {size}{left_out}")
        open_lengths += [f"{name} {field.shape}" for name, field in fields.items() if None in field.shape[1:]]
        open_rows += [f"{name} {field.shape}" for name, field in fields.items() if field.shape[0] != size]
    length_text = f"not fixed: {', '.join(open_lengths)}" if open_lengths else f"fixed: {', '.join(lengths)}"
    row_text = f"not always a whole batch: {', '.join(open_rows)}" if open_rows else "; ".join(rows)
    return [Check("lengths", not open_lengths, length_text), Check("rows", not open_rows, row_text)]


def _shapes_text(batches: Sequence[Any], changes: Sequence[SignatureMismatch | None]) -> str:
    shown = Counter(
        ", ".join(str(dynamic) for _, dynamic in change.arguments) if change else "x".join(map(str, batch.mel.shape))
        for batch, change in zip(batches, changes, strict=True)
    )
    return "; ".join(f"{count} of {shape}" for shape, count in shown.most_common())


def _verdict(
    change: SignatureMismatch | None,
    changed: int,
    pipeline: Sequence[Check],
    dynamic: Sequence[str],
    problem: str | None,
    steps: int,
) -> Verdict:
    if change is not None:
        count = f"{changed} of {steps} batches are not what the step is compiled for"
        return Verdict(_VERDICTS[change.kind], f"{count}: {change.finding}", change.remedy)
    if bad := [check for check in pipeline if not check.is_good]:
        name = "varying shape" if bad[0].name == "lengths" else "incomplete batch"
        cause = "the pipeline may bring other batches than the step is compiled for"
        remedy = "pad to limits.max_text_length and limits.max_mel_frames, and batch with drop_remainder=True"
        return Verdict(name, f"{cause}; {bad[0].name} {bad[0].found}", remedy)
    if problem is not None:
        return Verdict("retraced", problem, "keep Python values and new variables out of the step")
    if dynamic:
        finding = f"tf.shape is read at run time at {', '.join(dynamic)}"
        return Verdict("dynamic source", finding, "read tensor.shape, which the signature fixes")
    return Verdict("healthy", f"{steps} batches, each as the step is compiled for")
