"""Run shard tasks in worker processes, local or of a cluster; a clip that kills its worker costs only itself."""

import errno
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
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
from xtts_pipeline.errors import CacheError, Reason

MAX_BARREN_ROUNDS = 3
SHARED_MEMORY = "/dev/shm"  # noqa: S108 (named in an error)
CHECK_SECONDS = 1.0
# One thread each: shards are the unit of parallelism.
WORKER_ENVIRONMENT = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"
)


@dataclass(frozen=True)
class Pool:
    """A way to open an executor for a number of tasks, and the number of tasks to submit to it at a time.

    check_workers: called every `CHECK_SECONDS` while no task ends; raises an XttsError if no worker is left.
    """

    open: Callable[[int], AbstractContextManager[Executor]]
    in_flight: int
    check_workers: Callable[[Any], None] | None = None


def local_pool(jobs: int) -> Pool:
    """Return a pool of up to `jobs` local processes, one a task, which end with the executor's block."""
    # loky cannot shut down cleanly while more tasks than this wait in front of its call queue.
    return Pool(partial(_local_executor, jobs), 2 * jobs)


@contextmanager
def _local_executor(jobs: int, tasks: int) -> Iterator[Executor]:
    with _explaining_start():
        executor = ProcessPoolExecutor(
            max_workers=min(jobs, tasks), env=WORKER_ENVIRONMENT, initializer=start_worker, initargs=(os.getpid(),)
        )
    # Before the workers: Python would start it with the first of them and unblock interruptions.
    resource_tracker.ensure_running()
    try:
        with _interruptions_held(), _explaining_start():
            # The first task starts all workers.
            executor.submit(os.getpid)
        yield executor
    finally:
        with _without_faults_of_the_manager():
            executor.shutdown(wait=True, kill_workers=True)


@contextmanager
def _without_faults_of_the_manager() -> Iterator[None]:
    """Hide a fault of loky's thread that kills the workers: a signal to the whole group may have ended one already."""
    show = threading.excepthook

    def show_others(fault: threading.ExceptHookArgs) -> None:
        if fault.thread is None or fault.thread.name != "ExecutorManagerThread":
            show(fault)

    threading.excepthook = show_others
    try:
        yield
    finally:
        threading.excepthook = show


@contextmanager
def _explaining_start() -> Iterator[None]:
    """Turn a system error of starting processes into one line; it has nothing to do with the cache."""
    try:
        yield
    except OSError as error:
        # The system does not name the place of the semaphores.
        place = error.filename or (SHARED_MEMORY if error.errno == errno.ENOSPC else "this machine")
        problem = f"worker processes cannot be started ({error.strerror})"
        raise CacheError(f"{place}: {problem}; mend that and run again, finished shards are kept") from None


@contextmanager
def _interruptions_held() -> Iterator[None]:
    """Start processes that never receive Ctrl-C, not even while they import; it is delivered after the block."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def run_tasks(tasks: Sequence[ShardTask], pool: Pool, done: Callable[[ShardResult], None]) -> None:
    """Run every task; `done` receives each result when it is ready.

    When workers die, their current clips are retried alone in fresh processes. Clips that kill those too are condemned,
    and the unfinished shards are run again without them. Raises CacheError if workers keep dying without a guilty clip.
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
            raise CacheError(f"{where}, and no single clip causes it; give them more memory or use fewer --jobs")
        pending = [replace(task, condemned={**task.condemned, **condemned[task.name]}) for task in unfinished]


def _run_round(
    tasks: Sequence[ShardTask], pool: Pool, done: Callable[[ShardResult], None]
) -> tuple[list[ShardTask], dict[ShardName, set[int]]]:
    """Return the tasks left unfinished by dead workers, and shard -> positions of suspected clips."""
    failed: list[ShardTask] = []
    suspects: dict[ShardName, set[int]] = {}
    waiting = deque(tasks)
    running: dict[Future[ShardResult], ShardTask] = {}
    with pool.open(len(tasks)) as executor:
        while running or (waiting and not failed):
            while waiting and not failed and len(running) < pool.in_flight:
                try:
                    running[executor.submit(write_shard, waiting[0])] = waiting[0]
                except BrokenExecutor:
                    failed.append(waiting[0])
                waiting.popleft()
            timeout = None if pool.check_workers is None else CHECK_SECONDS
            ended = wait(running, timeout, return_when=FIRST_COMPLETED).done
            if pool.check_workers is not None and not ended:
                pool.check_workers(executor)
            for future in ended:
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
    """Yield shard and position of the clips that dead workers worked on, and remove their heartbeat files."""
    names = {str(task.name): task.name for task in failed}
    for path in sorted(failed[0].work_folder.glob(f"{BEAT_PREFIX}*")) if failed else ():
        shard, _, position = path.read_text(encoding="ascii").strip().partition(" ")
        if shard in names:
            yield names[shard], int(position)
            path.unlink()


def _condemn(task: ShardTask, positions: Collection[int]) -> dict[str, Reason]:
    """Return id -> reason of the clips that kill a process of their own too."""
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
