"""Checkpoints written beside the steps: a step waits for the copy to the host, and a thread of its own does the rest.

A disk that refuses costs a warning and another try; the checkpoint before it is untouched.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from xtts_pipeline.cache.format.manifest import CacheIdentity
from xtts_pipeline.config.schema import Config, TrainingConfig
from xtts_pipeline.errors import CheckpointError
from xtts_pipeline.training.checkpoints.files import link_best, save_checkpoint
from xtts_pipeline.training.checkpoints.run_folder import BEST_FOLDER, LAST_FOLDER, step_name
from xtts_pipeline.training.checkpoints.state import BestSoFar, RunState


@dataclass(frozen=True)
class Snapshot:
    """A run as it was after a step, on the host: nothing that comes later changes it.

    best is the step's evaluation if none was better, so that the snapshot belongs in best/; None if not.
    """

    step: int
    arrays: dict[str, np.ndarray]
    state: RunState
    best: BestSoFar | None = None


class CheckpointSaver:
    """Saves snapshots one after the other in a thread; a context manager that ends when what was given to it is on the disk.

    `sync` is called in that thread before a checkpoint gets its name: what the checkpoint counts on must be on the disk first.
    saved_step is the last step that has been given to it, and 0 before the first; on_disk the evaluation that lies in best/.
    """

    def __init__(
        self, run: Path, config: Config, cache: CacheIdentity, sync: Callable[[], None], saved_step: int = 0
    ) -> None:
        self._run, self._config, self._cache, self._sync = run, config, cache, sync
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._saving: Future[Path] | None = None
        self._best_under_way: BestSoFar | None = None
        self._waiting: Snapshot | None = None
        self.saved_step, self.on_disk = saved_step, BestSoFar()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.settle()  # what waits would never begin otherwise
        self._pool.shutdown()

    @property
    def is_busy(self) -> bool:
        """Whether a snapshot is still on its way to the disk, or waits for its turn."""
        return self._waiting is not None or (self._saving is not None and not self._saving.done())

    @property
    def best(self) -> BestSoFar:
        """The best evaluation whose weights are on the disk or, as far as is known, on their way there."""
        waiting = None if self._waiting is None else self._waiting.best
        return waiting or self._best_under_way or self.on_disk

    def find_best(self) -> None:
        """Have best/ hold the evaluation that `on_disk` is of, or `on_disk` none.

        The process before may have died between a checkpoint and its second name, and a best one of later steps that come again is gone.
        """
        step = self.on_disk.step
        checkpoint = self._run / LAST_FOLDER / step_name(step)
        if not step or (self._run / BEST_FOLDER / checkpoint.name).is_dir():
            return
        if checkpoint.is_dir():
            link_best(self._run, checkpoint)
        else:
            self.on_disk = BestSoFar()

    def begin(self, snapshot: Snapshot) -> None:
        """Have a snapshot written, once those before it are; return at once if that is so.

        Raises CheckpointError if the one before it could not be written.
        """
        self.finish()
        self._start(snapshot)

    def begin_when_free(self, snapshot: Snapshot) -> None:
        """Have a best snapshot written after the one that is being written, and return at once; of those that wait the last is kept."""
        if self._saving is None:
            self._start(snapshot)
        else:
            self.saved_step, self._waiting = snapshot.step, snapshot

    def settle(self) -> list[str | None]:
        """Wait until all that was given is on the disk, or refused; return for each why it could not be written, or None."""
        outcomes = []
        while self._saving is not None:
            wait([self._saving])
            outcomes.append(self.poll())
        return outcomes

    def finish(self) -> None:
        """Wait until what was given is on the disk. Raises CheckpointError, once, if the last of it could not be written."""
        outcomes = self.settle()
        if outcomes and outcomes[-1] is not None:
            raise CheckpointError(outcomes[-1])

    def poll(self) -> str | None:
        """Begin what waits, if the snapshot before it is done; return why that could not be written, or None.

        It is told once.
        """
        saving, best, waiting = self._saving, self._best_under_way, self._waiting
        if saving is None or not saving.done():
            return None
        self._saving = self._best_under_way = self._waiting = None
        if waiting is not None:
            self._start(waiting)
        try:
            saving.result()
        except CheckpointError as error:
            return str(error)
        self.on_disk = best or self.on_disk
        return None

    def _start(self, snapshot: Snapshot) -> None:
        self.saved_step, self._best_under_way = snapshot.step, snapshot.best
        self._saving = self._pool.submit(self._write, snapshot)

    def _write(self, snapshot: Snapshot) -> Path:
        try:
            self._sync()
        except OSError as error:
            raise CheckpointError(
                f"{self._run}: metrics cannot be written ({error.strerror}); earlier checkpoints are untouched"
            ) from None
        keep = self._config.training.keep_checkpoints
        folder = save_checkpoint(
            self._run, snapshot.step, self._config, self._cache, snapshot.arrays, keep, snapshot.state
        )
        if snapshot.best is not None:
            link_best(self._run, folder)
        return folder


class NullCheckpointSaver(CheckpointSaver):
    """The CheckpointSaver of a worker that is not the chief: it notes the steps of snapshots and saves nothing."""

    def __init__(self, saved_step: int) -> None:
        self._saving = self._best_under_way = self._waiting = None
        self.saved_step, self.on_disk = saved_step, BestSoFar()

    def __exit__(self, *_: object) -> None:
        pass

    def find_best(self) -> None:
        """Do nothing."""

    def _start(self, snapshot: Snapshot) -> None:
        self.saved_step, self.on_disk = snapshot.step, snapshot.best or self.on_disk


class SaveClock:
    """When the next checkpoint is due: every so many steps, or minutes since the last one began (`training.save_every`)."""

    def __init__(self, config: TrainingConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._steps = config.save_every if isinstance(config.save_every, int) else None
        self._seconds, self._clock = config.save_every_seconds, clock
        self._is_overdue = False
        self._last = clock()

    def is_due(self, step: int) -> bool:
        """Return whether to save after this step; once it was due it stays so until `restart`."""
        if self._steps is not None:
            self._is_overdue |= step % self._steps == 0
        if self._seconds is not None:
            self._is_overdue |= self._clock() - self._last >= self._seconds
        return self._is_overdue

    def restart(self) -> None:
        """Say that a checkpoint has begun."""
        self._is_overdue = False
        self._last = self._clock()
