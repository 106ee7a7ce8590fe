"""The run around the compiled step: read it top to bottom.

Batches come in, scalars stay on the device until a report is due, and what the run learnt is on disk before it is announced.
"""

import json
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from xtts_pipeline.cache.shards import atomic_write
from xtts_pipeline.config import Config, TrainingConfig
from xtts_pipeline.errors import TrainingError
from xtts_pipeline.model.network import Batch, Network
from xtts_pipeline.schema import RecordSpec
from xtts_pipeline.training.alignment import AlignmentWatch
from xtts_pipeline.training.buckets import batch_sizes
from xtts_pipeline.training.checkpoint import build_network, save_best, save_checkpoint
from xtts_pipeline.training.data_wait import DataWaitWatch
from xtts_pipeline.training.media import MediaWriter
from xtts_pipeline.training.metrics import MetricsWriter
from xtts_pipeline.training.monitor import CompilationMonitor, StepTimer, total_counts
from xtts_pipeline.training.retracing import RetraceError
from xtts_pipeline.training.source import Source
from xtts_pipeline.training.step import TrainStep, batch_signature
from xtts_pipeline.training.validation import BestLoss, Validation
from xtts_pipeline.training.variables import named_variables


class Progress(Protocol):
    """Whoever watches a run."""

    def show(self, step: int, split: str, numbers: Mapping[str, float]) -> None:
        """Take in numbers of a split (`train`, `val` or `speech`) that have just been read back."""

    def say(self, step: int, line: str) -> None:
        """Take in something that must be seen, such as a warning."""


def train(source: Source, config: Config, run: Path, monitor: CompilationMonitor, progress: Progress) -> dict[str, Any]:
    """Train from step 0 to `config.training.steps`, or until patience is over; return the summary, also written to summary.json.

    Raises TrainingError if a number stops being one, or if a strict run traces or compiles a function twice.
    """
    with MetricsWriter(run) as metrics, MediaWriter(run, config) as media:
        running = _Run(source, config, run, monitor, progress, metrics, media)
        try:
            running.go()
        except RetraceError as error:
            raise TrainingError(f"step {running.steps_done + 1}: {error}") from None
        media.close()
        for warning in media.warnings():
            running.warn(warning)
    summary = running.summary()
    with atomic_write(run / "summary.json") as file:
        file.write(json.dumps(summary, indent=1).encode() + b"\n")
    return summary


class _Run:
    """One training from its first step to its last: `go` is its course, the methods below it are its stations."""

    def __init__(
        self,
        source: Source,
        config: Config,
        folder: Path,
        monitor: CompilationMonitor,
        progress: Progress,
        metrics: MetricsWriter,
        media: MediaWriter,
    ) -> None:
        self.config, self.settings, self.identity = config, config.training, source.identity()
        self.folder, self.monitor, self.progress, self.metrics, self.media = folder, monitor, progress, metrics, media
        precision = tf.dtypes.as_dtype(self.settings.precision)
        self.network, average = (build_network(self.identity, config, precision) for _ in range(2))
        signatures = bucket_signatures(source.specs, self.settings, self.network)
        self.train_step = TrainStep(self.network, average, self.settings, signatures)
        monitor.watch(*self.train_step.compiled.functions, calls=self.train_step.compiled)
        self.variables = named_variables(self.train_step)
        self.batches = source.training_batches(config, signatures)
        self.validation = Validation(source, config, average, signatures, monitor) if source.validation_clips else None
        self.best = BestLoss(self.settings.patience)
        self.alignment = AlignmentWatch(self.settings)
        self.data_wait = DataWaitWatch(source.folder)
        self.timer = StepTimer(is_asynchronous=bool(tf.config.list_physical_devices("GPU")))
        self.window: list[tf.Tensor] = []
        self.losses: list[float] = []
        self.warnings: list[str] = []
        self.steps_done = 0
        self.first_step_seconds = 0.0

    def go(self) -> None:
        """Train, report, validate, speak and save, each when it is due."""
        settings = self.settings
        for step in range(1, settings.steps + 1):
            self._train_on_next_batch(step)
            is_last = step == settings.steps
            validation = self.validation if step % settings.evaluate_every == 0 or is_last else None
            is_save_due = step % settings.save_every == 0 or is_last
            # Whatever else is due, the window is closed first: its time is the steps' alone, and nothing that is not finite is saved.
            if step == 1 or step % settings.log_every == 0 or validation is not None or is_save_due:
                self._report(step)
            is_best = validation is not None and self._evaluate(validation, step)
            is_over = is_last or self.best.is_patience_over
            if validation is not None and validation.is_speaking_due(is_last=is_over):
                self._speak(validation, step)
            if is_save_due or is_over:
                save_checkpoint(self.folder, step, self.config, self.identity, self.variables, settings.keep_checkpoints)
            if is_best:
                save_best(self.folder, step, self.config, self.identity, self.variables)
            if is_over:
                break

    def _train_on_next_batch(self, step: int) -> None:
        started = time.perf_counter()
        with self.timer.waiting():
            batch = next(self.batches)
        with self.timer.stepping(examples=batch.mel.shape[0]):
            self.window.append(self.train_step(batch))
        if self.train_step.compiled.is_first_of_shape:
            self.timer.leave_out_last()
        self.steps_done = step
        self._look_at_compilations(step)
        if step == 1:
            self.first_step_seconds = time.perf_counter() - started

    def _report(self, step: int) -> None:
        numbers = read_window(self.window, TrainStep.METRICS)
        numbers |= self.timer.close_window(round(numbers.pop("mel_frames") * len(self.window)))
        self.window.clear()
        self.losses.append(numbers["loss"])
        self._record(step, "train", numbers)
        check_finite(step, numbers)
        for warning in (*self.alignment.look(step, numbers), *self.data_wait.look(step, numbers["data_wait_share"])):
            self.warn(warning)

    def _evaluate(self, validation: Validation, step: int) -> bool:
        """Validate; return whether the average network has never been better."""
        numbers = validation.evaluate()
        self._record(step, "val", numbers)
        is_best = self.best.update(step, numbers["loss"])
        if self.best.is_patience_over and step < self.settings.steps:
            self.progress.say(
                step,
                f"stopping early: {self.best.evaluations_without} evaluations without a validation loss under "
                f"{self.best.loss:.3f} of step {self.best.step} (training.patience)",
            )
        return is_best

    def _speak(self, validation: Validation, step: int) -> None:
        numbers, sentences = validation.speak()
        self._record(step, "speech", numbers)
        self.media.add(step, sentences)

    def _record(self, step: int, split: str, numbers: Mapping[str, float]) -> None:
        self.metrics.write(step, split, numbers)
        self.progress.show(step, split, numbers)
        self._look_at_compilations(step)

    def _look_at_compilations(self, step: int) -> None:
        for warning in self.monitor.look(step):
            self.warn(warning)

    def warn(self, warning: str) -> None:
        """Say a warning now and keep it for the summary."""
        self.warnings.append(warning)
        self.progress.say(self.steps_done, f"warning: {warning}")

    def summary(self) -> dict[str, Any]:
        """Return what a program may want to know of the run, once it is over."""
        best = self.best
        return {
            "steps": self.steps_done,
            "stopped_early": self.steps_done < self.settings.steps,
            **total_counts(self.monitor.counts()),
            "compilation_events": [event.to_json() for event in self.monitor.events],
            "unexpected_shapes": self.monitor.unexpected_shapes,
            **self.timer.summary(),
            "loss": {"first": self.losses[0], "last": self.losses[-1]},
            "best": {"step": best.step, "val_loss": best.loss} if best.step else None,
            "aligned_at_step": self.alignment.aligned_at_step,
            "first_step_seconds": self.first_step_seconds,
            "parameters": self.network.parameter_count,
            "dropped_media": self.media.dropped,
            "warnings": self.warnings,
        }


def bucket_signatures(specs: Sequence[RecordSpec], settings: TrainingConfig, network: Network) -> list[Batch]:
    """Return what the compiled steps are made for: the signature of each bucket's batches."""
    sizes = batch_sizes(specs, settings.batch_size, settings.accumulation_steps)
    ids = {"with_speaker": network.speaker_embedding is not None, "with_language": network.language_embedding is not None}
    return [batch_signature(spec, rows, **ids) for spec, rows in zip(specs, sizes, strict=True)]


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
