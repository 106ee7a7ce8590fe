"""What a worker that is not the chief has in the place of a run's files: it trains with the others and writes nothing."""

import os
from collections.abc import Mapping
from pathlib import Path

from xtts_pipeline.training.checkpoints.saver import CheckpointSaver, Snapshot
from xtts_pipeline.training.checkpoints.state import BestSoFar
from xtts_pipeline.training.monitoring.metrics import LineFile, MetricsWriter


class UnwrittenMetrics(MetricsWriter):
    """Takes in what a MetricsWriter does, and keeps none of it."""

    def __init__(self) -> None:
        self.lines = self.skipped = self.left_out = LineFile(Path(os.devnull))
        self._writers = {}
        self._run = Path(os.devnull)

    def rewind(self, step: int, metrics_bytes: int) -> None:
        """Do nothing: there is nothing to forget."""

    def write(self, step: int, split: str, numbers: Mapping[str, float]) -> None:
        """Do nothing: the chief writes the same numbers."""


class UnwrittenCheckpoints(CheckpointSaver):
    """Takes in what a CheckpointSaver does, and saves none of it."""

    def __init__(self, saved_step: int) -> None:
        self._saving = self._best_under_way = self._waiting = None
        self.saved_step, self.on_disk = saved_step, BestSoFar()

    def __exit__(self, *_: object) -> None:
        pass

    def find_best(self) -> None:
        """Do nothing: the chief looks."""

    def _start(self, snapshot: Snapshot) -> None:
        """Note that this step needs no saving any more."""
        self.saved_step, self.on_disk = snapshot.step, snapshot.best or self.on_disk
