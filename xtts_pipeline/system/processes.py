"""Run joblib tasks in worker processes that end with this one, and say in one line if one of them was killed."""

import os
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import BrokenExecutor
from typing import Any

import joblib

from xtts_pipeline.errors import WorkerError

_PARENT_CHECK_SECONDS = 1.0


def in_processes(jobs: int, tasks: Sequence[Any]) -> Iterator[Any]:
    """Yield the results of `joblib.delayed` tasks in their order; one job is this process.

    joblib starts all processes at once, so there are never more than tasks. They wait some minutes for more tasks.
    Raises WorkerError if one is killed.
    """
    jobs = max(1, min(jobs, len(tasks)))
    start = {} if jobs == 1 else {"initializer": end_with_parent, "initargs": (os.getpid(),)}
    try:
        with joblib.parallel_config("loky", **start):  # not around the yields: whoever reads the results may use joblib
            parallel = joblib.Parallel(jobs, return_as="generator")
        yield from parallel(tasks)
    except BrokenExecutor:
        raise WorkerError("a worker process was killed, perhaps since memory ran out; use fewer --jobs") from None


def end_with_parent(parent: int) -> None:
    """End this process as soon as its parent, the process `parent`, has been killed.

    Otherwise idle workers would wait on, and hold the pipes of the parent's output open.
    """
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_PARENT_CHECK_SECONDS)
    os._exit(1)
