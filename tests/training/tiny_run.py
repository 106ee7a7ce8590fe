"""Whole runs whose compiled step is one number, so that tests see the run around the step only."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import tensorflow as tf

from tests.json_lines import read_json_lines
from tests.training.test_loop import CONFIG, TRAINING, MadeUpSource
from xtts_pipeline.config.schema import Config
from xtts_pipeline.data.schedule import StreamPosition
from xtts_pipeline.model.batch import Batch
from xtts_pipeline.training.acoustic.step import AcousticStep
from xtts_pipeline.training.checkpoints.run_folder import METRICS_NAME, SKIPPED_NAME
from xtts_pipeline.training.context import RunContext
from xtts_pipeline.training.loop import run
from xtts_pipeline.training.resume import resume

SETTINGS = TRAINING.model_copy(
    update={
        "steps": 12,
        "log_every": 3,
        "evaluate_every": 5,
        "save_every": 4,
        "keep_checkpoints": 3,
        "sample_every_evaluations": None,
    }
)
RUN_CONFIG = CONFIG.model_copy(update={"training": SETTINGS})
TIMES = ("step_ms", "data_wait_share", "device_share", "examples_per_second")


def config_with(**settings: object) -> Config:
    return RUN_CONFIG.model_copy(update={"training": SETTINGS.model_copy(update=settings)})


class TinyStep(tf.Module):
    """Replaces the compiled step with a weight that depends on every batch and on their order."""

    METRICS = AcousticStep.METRICS

    def __init__(self, *_: object) -> None:
        super().__init__()
        self.weight, self.step, self.rate_factor = tf.Variable(1.0), tf.Variable(0, dtype=tf.int64), tf.Variable(1.0)
        self.loss_scale = None
        self.compiled = SimpleNamespace(
            functions=[self.count], is_new_shape=False, trace=lambda _: None, python_name="count"
        )

        self.programs = [self.compiled]

    def begin(self, _steps_done: int) -> None:
        """Take the only program."""

    def count(self) -> None:
        """Stand for the compiled function."""

    def __call__(self, batch: Batch) -> tf.Tensor:
        value = tf.reduce_mean(tf.cast(batch.mel, tf.float32))
        is_finite = bool(tf.math.is_finite(value))
        if is_finite:
            self.weight.assign(0.9 * self.weight + 1e-3 * value * self.rate_factor * tf.cast(self.step, tf.float32))
        self.step.assign_add(1)
        numbers = dict.fromkeys(self.METRICS, self.weight + 0.0 * value)
        return tf.stack(
            list({**numbers, "mel_frames": tf.constant(27.0), "is_skipped": tf.constant(float(not is_finite))}.values())
        )


class TinyValidation:
    """Replaces validation with losses that are worst in the middle of the run."""

    best_metric = "loss"

    def __init__(self) -> None:
        self.evaluations = 0

    def evaluate(self, before_batch: Callable[[], None]) -> dict[str, float]:
        before_batch()
        self.evaluations += 1
        return {"loss": (3.0, 5.0, 1.0, 0.5)[self.evaluations - 1]}

    def are_samples_due(self, **_: bool) -> bool:
        return False


class NullMonitor:
    """Replaces the compilation monitor."""

    def watch(self, *_: object, **__: object) -> None:
        pass

    def check(self, _: int) -> list[str]:
        return []

    def counts(self) -> dict[str, dict[str, int]]:
        return {}

    def compile_seconds(self, _function: str) -> float:
        return 0.0

    def memory(self, _function: str, _estimated_bytes: int | None) -> dict[str, int | None]:
        return {}

    events: tuple[()] = ()
    unexpected_shapes = 0


class SilentProgress:
    """Shows nothing."""

    def show(self, step: int, split: str, numbers: Mapping[str, float]) -> None:
        pass

    def end_evaluation(self, step: int) -> None:
        pass

    def compiling(self, _function: str) -> AbstractContextManager[None]:
        return nullcontext()

    def log(self, line: str, step: int | None = None) -> None:
        pass


class Killed(BaseException):
    """Stands for SIGKILL: no code of the run catches it."""


class AskedAtCheck:
    """Asks for a stop at the given check; a run checks after each step and before each batch of validation."""

    def __init__(self, looks: int) -> None:
        self.looks = looks

    @property
    def is_asked(self) -> bool:
        self.looks -= 1
        return self.looks < 0


class TinySource(MadeUpSource):
    """Batches, those at `bad` not finite. Records the start positions, and kills the run after `kill_after` batches."""

    def __init__(self, kill_after: int | None = None, bad: tuple[StreamPosition, ...] = ()) -> None:
        self.kill_after, self.bad = kill_after, bad
        self.starts: list[StreamPosition] = []

    def training_batches(
        self, config: object, signatures: object, position: StreamPosition, *_: object
    ) -> Iterator[Batch]:
        self.starts.append(position)
        for read, batch in enumerate(super().training_batches(config, signatures, position)):
            if read == self.kill_after:
                raise Killed
            yield batch._replace(mel=batch.mel * np.float16(np.nan)) if position in self.bad else batch
            position = position.moved(1, 3)

    def batch_clips(
        self, _config: object, _signatures: object, positions: Sequence[StreamPosition]
    ) -> list[list[tuple[str, bool]]]:
        return [[(f"sound-{at.epoch}", True), (f"bad-{at.batch}", at not in self.bad)] for at in positions]


def resume_and_train(
    folder: Path,
    source: TinySource,
    config: Config = RUN_CONFIG,
    interruption: Any = None,
    allowed: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Train in `folder`, from its newest checkpoint if it has one, as `xtts train --resume` does."""
    resumption = resume(folder, source, config, allowed, lambda _: None)  # type: ignore[arg-type]
    with RunContext(
        folder,
        config,
        source,  # type: ignore[arg-type]
        NullMonitor(),  # type: ignore[arg-type]
        SilentProgress(),
        resumption=resumption,
        interruption=interruption,
    ) as context:
        return run(context)


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """Return the lines of metrics.jsonl without the times."""
    lines = read_json_lines(folder / METRICS_NAME)
    return [{name: value for name, value in line.items() if name not in TIMES} for line in lines]


def read_skipped(folder: Path) -> list[dict[str, Any]]:
    """Return the lines of skipped.jsonl."""
    return read_json_lines(folder / SKIPPED_NAME)
