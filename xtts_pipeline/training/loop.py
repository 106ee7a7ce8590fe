"""The run around the compiled step: read it top to bottom.

Batches come in, scalars stay on the device until a report is due, and what the run learnt is on disk before it is announced.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from xtts_pipeline.cache.dataset import training_dataset, validation_dataset
from xtts_pipeline.cache.manifest import Manifest, record_spec
from xtts_pipeline.config import Config
from xtts_pipeline.errors import TrainingError
from xtts_pipeline.model.network import Batch
from xtts_pipeline.training.checkpoint import CacheIdentity, build_network, named_variables, save_checkpoint
from xtts_pipeline.training.metrics import MetricsWriter
from xtts_pipeline.training.monitor import CompilationMonitor, StepTimer, total_counts
from xtts_pipeline.training.step import EvaluateStep, Metrics, TrainStep, batch_signature, to_batch

# Report(step, numbers): called when numbers have been read back, for a progress bar.
Report = Callable[[int, dict[str, float]], None]


@dataclass(frozen=True)
class Source:
    """A cache that training may read: its folder and its proved manifest."""

    folder: Path
    manifest: Manifest

    def identity(self) -> CacheIdentity:
        """Return what a checkpoint keeps of it."""
        manifest = self.manifest
        return CacheIdentity(manifest.fingerprint, record_spec(manifest), manifest.symbols, manifest.speakers, manifest.languages)


def train(source: Source, config: Config, run: Path, monitor: CompilationMonitor, report: Report) -> dict[str, Any]:
    """Train from step 0 to `config.training.steps` and return the run's summary, also written to summary.json.

    Raises TrainingError if the loss stops being a number, or if a strict run traces or compiles a function twice.
    """
    settings, manifest = config.training, source.manifest
    network = build_network(source.identity(), config)
    signature = batch_signature(
        record_spec(manifest),
        settings.batch_size,
        with_speaker=network.speaker_embedding is not None,
        with_language=network.language_embedding is not None,
    )
    train_step = TrainStep(network, settings, signature)
    evaluate_step = EvaluateStep(network, settings, signature)
    monitor.watch(train_step.function)
    monitor.watch(evaluate_step.function)
    has_validation = manifest.split_records("val") > 0
    batches = iter(training_dataset(source.folder, manifest, batch_size=settings.batch_size, seed=settings.seed, data=config.data))
    timer = StepTimer(is_asynchronous=bool(tf.config.list_physical_devices("GPU")))
    metrics = MetricsWriter(run)
    variables = named_variables(train_step)
    window: list[Metrics] = []
    losses: list[float] = []
    first_step_seconds = 0.0

    for step in range(1, settings.steps + 1):
        started = time.perf_counter()
        with timer.waiting():
            batch = to_batch(next(batches), signature)
        with timer.stepping():
            window.append(train_step(batch))
        if step == 1:
            first_step_seconds = time.perf_counter() - started
        if step % settings.log_every == 0 or step in (1, settings.steps):
            numbers = _mean(window)
            timer.read_back()
            timer.mel_frames += int(sum(float(one["mel_frames"]) for one in window))
            window = []
            losses.append(numbers["loss"])
            numbers |= timer.recent(settings.log_every)
            metrics.write(step, "train", numbers)
            report(step, numbers)
            monitor.check(step)
            if not np.isfinite(numbers["loss"]):
                raise TrainingError(f"step {step}: the loss is {numbers['loss']}; lower training.learning_rate or training.clip_norm")
        if has_validation and (step % settings.evaluate_every == 0 or step == settings.steps):
            numbers = evaluate(evaluate_step, _validation_batches(source, config, signature))
            metrics.write(step, "val", numbers)
            report(step, {f"val_{name}": number for name, number in numbers.items()})
            monitor.check(step)
        if step % settings.save_every == 0 or step == settings.steps:
            save_checkpoint(run, step, config, source.identity(), variables, settings.keep_checkpoints)

    metrics.close()
    summary = {
        "steps": settings.steps,
        **total_counts(monitor.counts()),
        **timer.summary(settings.batch_size),
        "loss": {"first": losses[0], "last": losses[-1]},
        "first_step_seconds": first_step_seconds,
        "parameters": network.parameter_count,
    }
    (run / "summary.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    return summary


def evaluate(step: EvaluateStep, batches: Iterable[Batch]) -> dict[str, float]:
    """Return the losses over all batches, each batch weighing as many decoder steps as it holds."""
    totals: dict[str, float] = {}
    weights = 0.0
    for batch in batches:
        numbers = {name: float(value) for name, value in step(batch).items()}
        weight = numbers.pop("weight")
        weights += weight
        for name, number in numbers.items():
            totals[name] = totals.get(name, 0.0) + weight * number
    return {name: total / max(weights, 1.0) for name, total in totals.items()}


def _validation_batches(source: Source, config: Config, signature: Batch) -> Iterator[Batch]:
    for fields in validation_dataset(source.folder, source.manifest, split="val", batch_size=config.training.batch_size):
        yield to_batch(fields, signature)


def _mean(window: list[Metrics]) -> dict[str, float]:
    """Read a window of device scalars back, once, and return their means."""
    return {name: float(np.mean([float(one[name]) for one in window])) for name in window[0] if name != "mel_frames"}
