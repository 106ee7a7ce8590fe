"""What a run trains: the part of a run that differs between the acoustic model and the vocoder.

The loop around it is loop.py.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from xtts_pipeline.config.schema import Config, TrainingConfig
from xtts_pipeline.data.source import Source
from xtts_pipeline.training.checkpoints.files import Checkpoint
from xtts_pipeline.training.checkpoints.state import Origin, RunState
from xtts_pipeline.training.distributed.strategy import Distribution
from xtts_pipeline.training.monitoring.compilations import CompilationMonitor
from xtts_pipeline.training.monitoring.media import EvaluationSample
from xtts_pipeline.training.step import TrainStep


class Validation(ABC):
    """The validation split, and the fixed samples that are synthesized again and again for comparison.

    evaluations: how many evaluations the run has had. best_metric: what best/ and patience follow, of the metrics of
    `evaluate`; lower is better.
    """

    best_metric = "loss"

    def __init__(self, settings: TrainingConfig, distribution: Distribution) -> None:
        self._settings, self._distribution = settings, distribution
        self.evaluations = 0

    @abstractmethod
    def evaluate(self, before_batch: Callable[[], None] = lambda: None) -> dict[str, float]:
        """Return the mean losses over the whole split, and `best_metric`. An exception of `before_batch` ends it."""

    @abstractmethod
    def synthesize_samples(self) -> tuple[dict[str, float], Sequence[EvaluationSample]]:
        """Return metrics of the samples, and the samples."""

    def are_samples_due(self, *, is_last: bool) -> bool:
        """Return whether to synthesize samples after this evaluation."""
        every = self._settings.sample_every_evaluations
        return every is not None and self._distribution.is_chief and (is_last or self.evaluations % every == 0)


class Task(ABC):
    """The network that a run trains, on the batches of a source.

    signatures: of the batches, the largest last.
    """

    signatures: list[Any]
    network: tf.Module
    step: TrainStep

    @abstractmethod
    def __init__(self, config: Config, source: Source, distribution: Distribution) -> None:
        """Build the network and its step."""

    @abstractmethod
    def open_validation(self, monitor: CompilationMonitor) -> Validation | None:
        """Return the validation of the source's split, its programs watched; None if the split has no clips."""

    @property
    def aligned_at_step(self) -> int | None:
        """The first report in which the aligner has found the text; None before, or without an aligner."""
        return None

    @abstractmethod
    def copy_weights(self, base: Checkpoint) -> Origin:
        """Start with another run's weights where they fit. Raises CheckpointError if nothing fits."""

    def load_state(self, state: RunState) -> None:  # noqa: B027 (most have none)
        """Continue from the state of a checkpoint."""

    def check_report(self, step: int, numbers: Mapping[str, float]) -> list[str]:  # noqa: ARG002
        """Return the warnings that are due after a report."""
        return []
