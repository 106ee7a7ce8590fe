"""Checkpoints written beside the steps: a step waits for the copy to the host, and a thread of its own does the rest.

A disk that refuses costs a warning and another try; the checkpoint before it is untouched.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from xtts_pipeline.config import Config, TrainingConfig
from xtts_pipeline.errors import CheckpointError
from xtts_pipeline.training.checkpoint import CacheIdentity, link_best, save_checkpoint
from xtts_pipeline.training.state import RunState


@dataclass(frozen=True)
class Snapshot:
    """A run as it was after a step, on the host: nothing that comes later changes it."""

    step: int
    arrays: dict[str, np.ndarray]
    state: RunState
    is_best: bool


class CheckpointSaver:
    """Saves snapshots one after the other in a thread; a context manager that ends when what was given to it is on the disk.

    `sync` is called in that thread before a checkpoint gets its name: what the checkpoint counts on must be on the disk first.
    saved_step is the last step that has been given to it, and 0 before the first.
    """

    def __init__(self, run: Path, config: Config, cache: CacheIdentity, sync: Callable[[], None], saved_step: int = 0) -> None:
        self._run, self._config, self._cache, self._sync = run, config, cache, sync
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._saving: Future[Path] | None = None
        self._is_best = False
        self.saved_step = saved_step

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=True)

    @property
    def is_busy(self) -> bool:
        """Whether a snapshot is still on its way to the disk."""
        return self._saving is not None and not self._saving.done()

    @property
    def is_failed_best(self) -> bool:
        """Whether the snapshot of which a complaint has just come was to be the best one."""
        return self._is_best

    def begin(self, snapshot: Snapshot) -> None:
        """Have a snapshot written, once the one before it is; return at once if that is so.

        Raises CheckpointError if the one before it could not be written.
        """
        self.finish()
        self.saved_step, self._is_best = snapshot.step, snapshot.is_best
        self._saving = self._pool.submit(self._write, snapshot)

    def finish(self) -> None:
        """Wait until what was begun is on the disk. Raises CheckpointError, once, if it could not be written."""
        saving, self._saving = self._saving, None
        if saving is not None:
            saving.result()

    def complaint(self) -> str | None:
        """Return why the last snapshot could not be written, once; None if it was, or is still being written."""
        if self._saving is None or self.is_busy:
            return None
        try:
            self.finish()
        except CheckpointError as error:
            return str(error)
        return None

    def _write(self, snapshot: Snapshot) -> Path:
        try:
            self._sync()
        except OSError as error:
            raise CheckpointError(f"{self._run}: metrics cannot be written ({error.strerror}); earlier checkpoints are untouched") from None
        keep = self._config.training.keep_checkpoints
        folder = save_checkpoint(self._run, snapshot.step, self._config, self._cache, snapshot.arrays, keep, snapshot.state)
        if snapshot.is_best:
            link_best(self._run, folder)
        return folder


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
