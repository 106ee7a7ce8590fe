"""Run joblib tasks in worker processes, and say in one line if one of them was killed."""

from collections.abc import Iterator, Sequence
from concurrent.futures import BrokenExecutor
from typing import Any

import joblib

from xtts_pipeline.errors import WorkerError


def in_processes(jobs: int, tasks: Sequence[Any]) -> Iterator[Any]:
    """Yield the results of `joblib.delayed` tasks in their order; one job is this process.

    joblib starts all processes at once, so there are never more than tasks. They wait some minutes for more tasks.
    Raises WorkerError if one is killed.
    """
    try:
        yield from joblib.Parallel(max(1, min(jobs, len(tasks))), return_as="generator")(tasks)
    except BrokenExecutor:
        raise WorkerError("a worker process was killed, perhaps since memory ran out; use fewer --jobs") from None
