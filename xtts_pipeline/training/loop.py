"""The run around the compiled step: read it top to bottom.

Batches come in, scalars stay on the device until a report is due, and what the run learnt is on disk before it is announced.
"""

import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from xtts_pipeline.cache.dataset import training_dataset, validation_dataset
from xtts_pipeline.cache.manifest import Manifest, record_spec
from xtts_pipeline.cache.shards import atomic_write
from xtts_pipeline.config import Config
from xtts_pipeline.errors import CacheError, TrainingError
from xtts_pipeline.model.network import Batch
from xtts_pipeline.training.checkpoint import CacheIdentity, build_network, save_checkpoint
from xtts_pipeline.training.metrics import MetricsWriter
from xtts_pipeline.training.monitor import CompilationMonitor, StepTimer, total_counts
from xtts_pipeline.training.step import EvaluateStep, TrainStep, batch_signature, to_batch
from xtts_pipeline.training.variables import named_variables

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

    Raises TrainingError if a number stops being one, or if a strict run traces or compiles a function twice.
    """
    settings, manifest = config.training, source.manifest
    precision = tf.dtypes.as_dtype(settings.precision)
    network, average = (build_network(source.identity(), config, precision) for _ in range(2))
    signature = batch_signature(
        record_spec(manifest),
        settings.batch_size,
        with_speaker=network.speaker_embedding is not None,
        with_language=network.language_embedding is not None,
    )
    train_step = TrainStep(network, average, settings, signature)
    evaluate_step = EvaluateStep(average, settings, signature)
    monitor.watch(train_step.function)
    monitor.watch(evaluate_step.function)
    batches = _read(
        source, training_dataset(source.folder, manifest, batch_size=settings.batch_size, seed=settings.seed, data=config.data), signature
    )
    validation = validation_dataset(source.folder, manifest, "val", settings.batch_size) if manifest.split_records("val") else None
    timer = StepTimer(is_asynchronous=bool(tf.config.list_physical_devices("GPU")))
    variables = named_variables(train_step)
    window: list[tf.Tensor] = []
    losses: list[float] = []
    first_step_seconds = 0.0

    with MetricsWriter(run) as metrics:
        for step in range(1, settings.steps + 1):
            started = time.perf_counter()
            with timer.waiting():
                batch = next(batches)
            with timer.stepping():
                window.append(train_step(batch))
            if step == 1:
                first_step_seconds = time.perf_counter() - started

            is_last = step == settings.steps
            is_evaluation_due = validation is not None and (step % settings.evaluate_every == 0 or is_last)
            is_save_due = step % settings.save_every == 0 or is_last
            # Whatever else is due, the window is closed first: its time is the steps' alone, and nothing that is not finite is saved.
            if step == 1 or step % settings.log_every == 0 or is_evaluation_due or is_save_due:
                numbers = read_window(window, TrainStep.METRICS)
                numbers |= timer.close_window(round(numbers.pop("mel_frames") * len(window)))
                window.clear()
                metrics.write(step, "train", numbers)
                losses.append(numbers["loss"])
                report(step, numbers)
                monitor.check(step)
                check_finite(step, numbers)
            if is_evaluation_due:
                numbers = evaluate(evaluate_step, _read(source, validation, signature))
                metrics.write(step, "val", numbers)
                report(step, {f"val_{name}": number for name, number in numbers.items()})
                monitor.check(step)
            if is_save_due:
                save_checkpoint(run, step, config, source.identity(), variables, settings.keep_checkpoints)

    summary = {
        "steps": settings.steps,
        **total_counts(monitor.counts()),
        **timer.summary(settings.batch_size),
        "loss": {"first": losses[0], "last": losses[-1]},
        "first_step_seconds": first_step_seconds,
        "parameters": network.parameter_count,
    }
    with atomic_write(run / "summary.json") as file:
        file.write(json.dumps(summary, indent=1).encode() + b"\n")
    return summary


def read_window(window: Sequence[tf.Tensor], names: Sequence[str]) -> dict[str, float]:
    """Read a window of device vectors back, in one copy, and return their means by name."""
    means = tf.stack(window).numpy().astype(np.float64).mean(axis=0)
    return dict(zip(names, means.tolist(), strict=True))


def check_finite(step: int, numbers: Mapping[str, float]) -> None:
    """Raise TrainingError if the loss or the gradient is not a number any more."""
    for name in ("loss", "gradient_norm"):
        if not math.isfinite(numbers[name]):
            raise TrainingError(
                f"step {step}: {name} is {numbers[name]}, expected a finite number; lower training.learning_rate or training.clip_norm"
            )


def evaluate(step: EvaluateStep, batches: Iterable[Batch]) -> dict[str, float]:
    """Return the losses over all batches, each batch weighing as many decoder steps as it holds."""
    results = tf.stack([step(batch) for batch in batches]).numpy().astype(np.float64)
    *names, _ = EvaluateStep.METRICS
    weights = results[:, -1]
    means = (results[:, :-1] * weights[:, None]).sum(axis=0) / max(weights.sum(), 1.0)
    return dict(zip(names, means.tolist(), strict=True))


def _read(source: Source, dataset: tf.data.Dataset, signature: Batch) -> Iterator[Batch]:
    """Yield the dataset's batches; a shard that is not what the manifest says becomes a CacheError."""
    try:
        for fields in dataset:
            yield to_batch(fields, signature)
    except (tf.errors.DataLossError, tf.errors.FailedPreconditionError, tf.errors.InvalidArgumentError, tf.errors.NotFoundError) as error:
        found = error.message.splitlines()[0]
        raise CacheError(f"{source.folder}: a record cannot be read ({found}); run xtts verify-cache --cache {source.folder}") from None
