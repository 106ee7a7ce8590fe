"""The same tasks on a dask.distributed cluster: the extra `[dask]`.

Its workers must see the corpus and the cache under the same paths as the parent does.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from contextlib import contextmanager
from functools import partial
from typing import Any

from xtts_pipeline.cache.build.pool import Pool
from xtts_pipeline.errors import CacheError, ConfigError

SCHEDULER_SECONDS = 10
IN_FLIGHT = 1_000  # a scheduler spreads what it knows of over all its workers


def dask_pool(scheduler: str) -> Pool:
    """Return the cluster behind a scheduler's address as a pool."""
    return Pool(partial(_dask_executor, scheduler), IN_FLIGHT)


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
