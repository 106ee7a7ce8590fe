"""Save checkpoints in a background thread: a step waits only for the copy to the host.

A disk error costs a warning and another try; the previous checkpoint is untouched.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from xtts_pipeline.cache.format.identity import CacheIdentity
from xtts_pipeline.config.schema import Config, TrainingConfig
from xtts_pipeline.errors import CheckpointError
from xtts_pipeline.training.checkpoints.files import link_best, replace_state, save_checkpoint
from xtts_pipeline.training.checkpoints.run_folder import BEST_FOLDER, LAST_FOLDER, checkpoint_folders, step_name
from xtts_pipeline.training.checkpoints.state import BestEvaluation, NetworkKind, RunState, read_run_state


@dataclass(frozen=True)
class Snapshot:
    """A copy of a run after a step, on the host.

    best: the evaluation of the step if it is the best so far, so that the snapshot belongs in best/; else None.
    """

    step: int
    arrays: dict[str, np.ndarray]
    state: RunState
    best: BestEvaluation | None = None


class CheckpointSaver:
    """Writes snapshots one after the other in a thread; a context manager that ends when all are on the disk.

    `sync` is called in that thread before a checkpoint is written, to flush the files that its state refers to. It may
    raise TrainingError, which ends the run: `poll` and what calls it raise it.
    saved_step: the step of the last snapshot given, 0 before the first.
    saved_best: the evaluation of the checkpoint in best/.
    """

    def __init__(
        self,
        run: Path,
        config: Config,
        cache: CacheIdentity,
        sync: Callable[[], None],
        saved_step: int = 0,
        network: NetworkKind = "acoustic",
    ) -> None:
        self._run, self._config, self._cache, self._sync, self._network = run, config, cache, sync, network
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._saving: Future[Path] | None = None
        self._best_in_progress: BestEvaluation | None = None
        self._queued: Snapshot | None = None
        self.saved_step, self.saved_best = saved_step, BestEvaluation()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.drain()  # A queued snapshot would not start otherwise.
        self._pool.shutdown()

    @property
    def is_busy(self) -> bool:
        """Whether a snapshot is being written or queued."""
        return self._queued is not None or (self._saving is not None and not self._saving.done())

    @property
    def best(self) -> BestEvaluation:
        """The best evaluation whose weights are on the disk, being written or queued."""
        queued = None if self._queued is None else self._queued.best
        return queued or self._best_in_progress or self.saved_best

    def restore_best(self) -> None:
        """Make best/ and `saved_best` agree after a restart or a roll-back.

        A process may die between writing and linking a checkpoint, and a later best checkpoint may have been removed.
        """
        step = self.saved_best.step
        checkpoint = self._run / LAST_FOLDER / step_name(step)
        if not step or (self._run / BEST_FOLDER / checkpoint.name).is_dir():
            return
        if checkpoint.is_dir():
            link_best(self._run, checkpoint)
        else:
            self.saved_best = BestEvaluation()

    def enqueue(self, snapshot: Snapshot) -> None:
        """Write a best snapshot after the one in progress, and return at once; it replaces a queued one."""
        if self._saving is None:
            self.start(snapshot)
        else:
            self.saved_step, self._queued = snapshot.step, snapshot

    def drain(self) -> list[str | None]:
        """Wait for all snapshots; return for each why it could not be written, or None."""
        outcomes = []
        while self._saving is not None:
            wait([self._saving])
            outcomes.append(self.poll())
        return outcomes

    def finish(self) -> None:
        """Wait for all snapshots. Raises CheckpointError, once, if the last could not be written."""
        outcomes = self.drain()
        if outcomes and outcomes[-1] is not None:
            raise CheckpointError(outcomes[-1])

    def settle(self, state: RunState, best: BestEvaluation | None, *, is_last: bool) -> str | None:
        """Give the checkpoint of `saved_step`, whose weights stay, the state after what was due; wait until it is done.

        With `best` it becomes the best one. No snapshot may be in progress. Returns why it could not be written, or
        None; raises CheckpointError instead if it is the run's last.
        """
        try:
            self._settle(state, best)
        except CheckpointError as error:
            if is_last:
                raise
            return str(error)
        self.saved_best = best or self.saved_best
        return None

    def _settle(self, state: RunState, best: BestEvaluation | None) -> None:
        self._flush()
        folder = self._run / LAST_FOLDER / step_name(self.saved_step)
        replace_state(folder, self._config, state)
        if best is not None:
            link_best(self._run, folder)

    def poll(self) -> str | None:
        """If a snapshot is done, start the queued one; return, once, why the first could not be written, or None."""
        saving, best, queued = self._saving, self._best_in_progress, self._queued
        if saving is None or not saving.done():
            return None
        self._saving = self._best_in_progress = self._queued = None
        if queued is not None:
            self.start(queued)
        try:
            saving.result()
        except CheckpointError as error:
            return str(error)
        self.saved_best = best or self.saved_best
        return None

    def start(self, snapshot: Snapshot) -> None:
        """Start writing a snapshot, and return at once; none may be in progress."""
        self.saved_step, self._best_in_progress = snapshot.step, snapshot.best
        self._saving = self._pool.submit(self._write, snapshot)

    def _keep(self, state: RunState) -> int:
        """Return how many checkpoints to keep. The last sound one does not give way to those after skipped updates."""
        keep = self._config.training.keep_checkpoints
        if state.is_last_update_finite:
            return keep
        for count, folder in enumerate(reversed(checkpoint_folders(self._run)), 2):
            with suppress(CheckpointError):
                saved = read_run_state(folder).run
                if saved is not None and saved.is_last_update_finite:
                    return max(keep, count)
        return keep

    def _flush(self) -> None:
        try:
            self._sync()
        except OSError as error:
            raise CheckpointError(
                f"{self._run}: metrics cannot be written ({error.strerror}); earlier checkpoints are untouched"
            ) from None

    def _write(self, snapshot: Snapshot) -> Path:
        self._flush()
        folder = save_checkpoint(
            self._run,
            snapshot.step,
            self._config,
            self._cache,
            snapshot.arrays,
            self._keep(snapshot.state),
            snapshot.state,
            self._network,
        )
        if snapshot.best is not None:
            link_best(self._run, folder)
        return folder


class NullCheckpointSaver(CheckpointSaver):
    """The CheckpointSaver of a worker that is not the chief: it notes the steps of snapshots and saves nothing."""

    def __init__(self, saved_step: int) -> None:
        self._saving = self._best_in_progress = self._queued = None
        self.saved_step, self.saved_best = saved_step, BestEvaluation()

    def __exit__(self, *_: object) -> None:
        pass

    def restore_best(self) -> None:
        """Do nothing."""

    def _settle(self, state: RunState, best: BestEvaluation | None) -> None:
        pass

    def start(self, snapshot: Snapshot) -> None:
        """Write nothing: the chief does."""
        self.saved_step, self.saved_best = snapshot.step, snapshot.best or self.saved_best


class SaveSchedule:
    """Decides when a checkpoint is due: by steps, or by minutes since the last one started (`training.save_every`)."""

    def __init__(self, config: TrainingConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._steps = config.save_every if isinstance(config.save_every, int) else None
        self._seconds, self._clock = config.save_every_seconds, clock
        self._is_overdue = False
        self._last = clock()

    def is_due(self, step: int) -> bool:
        """Return whether a checkpoint is due after this step; it stays due until `restart`."""
        if self._steps is not None:
            self._is_overdue |= step % self._steps == 0
        if self._seconds is not None:
            self._is_overdue |= self._clock() - self._last >= self._seconds
        return self._is_overdue

    def restart(self) -> None:
        """Count from now, because a checkpoint has started."""
        self._is_overdue = False
        self._last = self._clock()
