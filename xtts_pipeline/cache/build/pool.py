"""Run shard tasks in worker processes, so that a clip that kills or hangs its worker costs itself only.

Knows tasks and processes, not what a shard is made of. What works on sound is imported when there is a task for it.
"""

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Executor, Future, wait
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import resource_tracker
from typing import Any

from joblib.externals.loky import ProcessPoolExecutor

from xtts_pipeline.cache.build.workers import (
    BEAT_PREFIX,
    ClipOutOfMemoryError,
    ShardResult,
    ShardTask,
    start_worker,
    try_clip,
    write_shard,
)
from xtts_pipeline.cache.format.shards import ShardName
from xtts_pipeline.errors import CacheError, ConfigError, Reason

MAX_BARREN_ROUNDS = 3
SCHEDULER_SECONDS = 10
TASKS_ON_A_CLUSTER = 1_000  # the scheduler spreads the tasks that it knows over all its workers
# One thread each: the shards are the parallelism.
WORKER_ENVIRONMENT = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"
)


@dataclass(frozen=True)
class Pool:
    """Where tasks run: how to open an executor, and how many tasks to hand it at a time."""

    open: Callable[[], AbstractContextManager[Executor]]
    in_flight: int


def local_pool(jobs: int) -> Pool:
    """Return a pool of `jobs` processes, joblib's own; none outlives its executor's block."""
    # No more than loky hands on at once: it fails to shut down cleanly while tasks queue up in front of its call queue.
    return Pool(partial(_local_executor, jobs), 2 * jobs)


@contextmanager
def _local_executor(jobs: int) -> Iterator[Executor]:
    executor = ProcessPoolExecutor(
        max_workers=jobs, env=WORKER_ENVIRONMENT, initializer=start_worker, initargs=(os.getpid(),)
    )
    # Before the workers: Python starts it along with the first of them, and lets interruptions through again.
    resource_tracker.ensure_running()
    try:
        with _interruptions_held():
            # The first task starts all workers.
            executor.submit(os.getpid)
        yield executor
    finally:
        executor.shutdown(wait=True, kill_workers=True)


@contextmanager
def _interruptions_held() -> Iterator[None]:
    """Start processes that Ctrl-C never reaches, not even while they import; one that comes now waits until the block's end."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def run_tasks(tasks: Sequence[ShardTask], pool: Pool, done: Callable[[ShardResult], None]) -> None:
    """Run every task to its end, each result handed to `done` as it comes.

    Where workers die, the clips that they were at are tried once more, each alone in a fresh process; those that kill it too are condemned,
    and all shards that are not finished are run again without them. Raises CacheError if workers keep dying for no clip's fault.
    """
    pending = list(tasks)
    barren_rounds = 0
    while pending:
        unfinished, suspects = _run_round(pending, pool, done)
        condemned = {task.name: _condemn(task, suspects.get(task.name, ())) for task in unfinished}
        has_progress = len(unfinished) < len(pending) or any(condemned.values())
        barren_rounds = 0 if has_progress else barren_rounds + 1
        if barren_rounds >= MAX_BARREN_ROUNDS:
            where = f"{unfinished[0].folder}: worker processes died {barren_rounds} times without finishing a shard"
            raise CacheError(f"{where}, and no clip does it alone; give them more memory or use fewer --jobs")
        pending = [replace(task, condemned={**task.condemned, **condemned[task.name]}) for task in unfinished]


def _run_round(
    tasks: Sequence[ShardTask], pool: Pool, done: Callable[[ShardResult], None]
) -> tuple[list[ShardTask], dict[ShardName, set[int]]]:
    """Return the tasks that dead workers left unfinished, and shard -> positions of the clips that may be to blame."""
    failed: list[ShardTask] = []
    suspects: dict[ShardName, set[int]] = {}
    waiting = deque(tasks)
    running: dict[Future[ShardResult], ShardTask] = {}
    with pool.open() as executor:
        while running or (waiting and not failed):
            while waiting and not failed and len(running) < pool.in_flight:
                try:
                    running[executor.submit(write_shard, waiting[0])] = waiting[0]
                except BrokenExecutor:
                    failed.append(waiting[0])
                waiting.popleft()
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                task = running.pop(future)
                try:
                    done(future.result())
                except BrokenExecutor:
                    failed.append(task)
                except ClipOutOfMemoryError as error:
                    failed.append(task)
                    suspects[task.name] = {
                        position for position, row in enumerate(task.rows) if row.id == error.args[0]
                    }
    for name, position in _read_beats(failed):
        suspects.setdefault(name, set()).add(position)
    return [*failed, *waiting], suspects


def _read_beats(failed: Sequence[ShardTask]) -> Iterator[tuple[ShardName, int]]:
    """Yield shard and position of the clips that dead workers were at, and clear their traces."""
    names = {str(task.name): task.name for task in failed}
    for path in sorted(failed[0].work_folder.glob(f"{BEAT_PREFIX}*")) if failed else ():
        shard, _, position = path.read_text(encoding="ascii").strip().partition(" ")
        if shard in names:
            yield names[shard], int(position)
            path.unlink()


def _condemn(task: ShardTask, positions: Collection[int]) -> dict[str, Reason]:
    """Return id -> reason of the clips that end a process of their own too."""
    if not positions:
        return {}
    verdicts = {}
    for position in sorted(positions):
        process = multiprocessing.get_context("spawn").Process(target=try_clip, args=(task, position))
        process.start()
        try:
            process.join()
        finally:
            process.kill()
        if process.exitcode:
            verdicts[task.rows[position].id] = (
                Reason.TIMEOUT if process.exitcode == -signal.SIGALRM else Reason.DECODER_CRASHED
            )
    return verdicts


def dask_pool(scheduler: str) -> Pool:
    """Return the cluster behind a scheduler's address as a pool."""
    return Pool(partial(_dask_executor, scheduler), TASKS_ON_A_CLUSTER)


@contextmanager
def _dask_executor(scheduler: str) -> Iterator[Executor]:
    """Yield the cluster as an executor.

    A task whose worker dies is run again by the scheduler, and given up after `distributed.scheduler.allowed-failures` deaths.
    Raises ConfigError without the extra, CacheError if no scheduler answers.
    """
    try:
        from distributed import Client
    except ImportError:
        raise ConfigError(
            "--backend dask: distributed is not installed; run pip install 'xtts-pipeline[dask]'"
        ) from None
    try:
        client = Client(scheduler, timeout=SCHEDULER_SECONDS, set_as_default=False)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        problem = " ".join(str(error).split())
        raise CacheError(
            f"--scheduler {scheduler}: no scheduler answers ({problem}); expected HOST:PORT of a running one"
        ) from None
    with client:
        yield _DaskExecutor(client)


class _DaskExecutor(Executor):
    """Makes a cluster's futures look like any other's: a dead worker is a BrokenExecutor."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._remote: list[Any] = []  # a remote future that nobody holds is forgotten by the scheduler

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Hand one call to the cluster."""
        local: Future[Any] = Future()
        remote = self._client.submit(function, *args, **kwargs, pure=False)
        self._remote.append(remote)
        remote.add_done_callback(lambda done: _settle(local, done))
        return local


def _settle(local: Future[Any], remote: Any) -> None:
    from distributed.scheduler import KilledWorker

    try:
        if remote.status == "finished":
            local.set_result(remote.result())
        elif remote.status == "error":
            error = remote.exception()
            local.set_exception(BrokenExecutor(str(error)) if isinstance(error, KilledWorker) else error)
        else:
            # Lost or cancelled: with a worker, or with the scheduler, and then the next round finds that none answers.
            local.set_exception(BrokenExecutor(f"the task was {remote.status}"))
    except (OSError, CancelledError) as error:
        # The worker died with the task done and its result not yet handed over.
        local.set_exception(BrokenExecutor(str(error)))
