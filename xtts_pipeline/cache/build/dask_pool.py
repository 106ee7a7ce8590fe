"""A dask cluster as a pool: its workers must see the corpus and the cache under the same paths as this process.

Needs the extra `dask`.
"""

import socket
import struct
import time
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from distributed import Client
from distributed.comm.addressing import parse_address, parse_host_port
from distributed.scheduler import KilledWorker

from xtts_pipeline.cache.build.pool import Pool
from xtts_pipeline.cache.build.workers import ShardTask
from xtts_pipeline.errors import CacheError

SCHEDULER_SECONDS = 10
# Silence until the first line about a missing worker.
QUIET_SECONDS = 5.0
TASKS_ON_A_CLUSTER = 1_000  # the scheduler spreads the tasks that it knows over all its workers
# A scheduler greets with the length of its first message. Other services send text or wait; distributed would take the
# text for a length and ask for exabytes.
_LENGTH, _GREETING = struct.Struct("<Q"), b"pickle-protocol"
_MOST_GREETING_BYTES = 1 << 16


def dask_pool(scheduler: str, wait_seconds: float, log: Callable[[str], object]) -> Pool:
    """Return the cluster at a scheduler's address as a pool.

    A cluster without a living worker is one line after `QUIET_SECONDS`, and a CacheError after `wait_seconds`.
    """
    return Pool(partial(_open, scheduler, wait_seconds, log), TASKS_ON_A_CLUSTER, DaskExecutor.check_workers)


@contextmanager
def _open(scheduler: str, wait_seconds: float, log: Callable[[str], object], _tasks: int) -> Iterator[Executor]:
    """Yield the cluster as an executor.

    The scheduler retries a task whose worker dies, up to `distributed.scheduler.allowed-failures` deaths.
    Raises CacheError if no scheduler answers.
    """
    try:
        _check_greeting(scheduler)
        client = Client(scheduler, timeout=SCHEDULER_SECONDS, set_as_default=False)  # type: ignore[no-untyped-call]
        # A worker answers too, but not as a scheduler does.
        _last_seen(client)
    except (OSError, OverflowError, ValueError, AttributeError, KeyError) as error:
        problem = " ".join(str(error).split()) or type(error).__name__
        raise CacheError(
            f"--scheduler {scheduler}: no scheduler answers ({problem}); expected HOST:PORT of a running one"
        ) from None
    with client:
        yield DaskExecutor(client, scheduler, wait_seconds, log)


def _check_greeting(scheduler: str) -> None:
    """Raise OSError or ValueError unless what listens at a TCP address greets as a dask scheduler does."""
    scheme, place = parse_address(scheduler)
    if scheme != "tcp":
        return
    with socket.create_connection(parse_host_port(place), SCHEDULER_SECONDS) as connection:
        try:
            start = connection.recv(_LENGTH.size, socket.MSG_WAITALL)
            length = _LENGTH.unpack(start)[0] if len(start) == _LENGTH.size else 0
            rest = connection.recv(min(length, _MOST_GREETING_BYTES), socket.MSG_WAITALL)
        except TimeoutError:
            raise OSError(f"it says nothing for {SCHEDULER_SECONDS} s, so it is no dask scheduler") from None
    if len(rest) < length or _GREETING not in rest:
        raise OSError(f"it greets with {start + rest[: _LENGTH.size]!r}, so it is no dask scheduler")


def _last_seen(client: Any) -> dict[str, float]:
    """Return when the scheduler last heard of each worker. Raises OSError if it does not answer."""
    identity = client.sync(client.scheduler.identity, callback_timeout=SCHEDULER_SECONDS)
    return {address: worker["last_seen"] for address, worker in identity["workers"].items()}


class DaskExecutor(Executor):
    """Adapts a cluster's futures to those of `concurrent.futures`: a dead worker is a BrokenExecutor."""

    def __init__(self, client: Any, scheduler: str, wait_seconds: float, log: Callable[[str], object]) -> None:
        self._client, self._scheduler, self._wait_seconds, self._log = client, scheduler, wait_seconds, log
        self._remote: list[Any] = []  # the scheduler drops futures without a reference
        self._seen: dict[str, float] = {}
        self._seen_at, self._is_told = time.monotonic(), False

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Submit one call to the cluster."""
        local: Future[Any] = Future()
        absolute = [_with_absolute_paths(each) if isinstance(each, ShardTask) else each for each in args]
        remote = self._client.submit(function, *absolute, **kwargs, pure=False)
        self._remote.append(remote)
        remote.add_done_callback(lambda done: _copy_outcome(local, done))
        return local

    def check_workers(self) -> None:
        """Say once that no worker gives a sign of life; raise CacheError after the longest wait."""
        try:
            seen = _last_seen(self._client)
        except (OSError, ValueError):
            seen = self._seen
        now = time.monotonic()
        if seen and seen != self._seen:
            self._seen, self._seen_at, self._is_told = seen, now, False
            return
        found = f"none of its {len(seen)} workers answers" if seen else "it has no worker"
        waited, remedy = now - self._seen_at, f"start one with `dask worker {self._scheduler}`"
        if waited >= QUIET_SECONDS and not self._is_told:
            self._is_told = True
            self._log(f"--scheduler {self._scheduler}: {found}, waiting for {self._wait_seconds:g} s at most; {remedy}")
        if waited >= self._wait_seconds:
            raise CacheError(
                f"--scheduler {self._scheduler}: {found} for {waited:.0f} s; {remedy}, or raise --wait-workers"
            )


def _with_absolute_paths(task: ShardTask) -> ShardTask:
    roots = tuple(root.absolute() for root in task.roots)
    return replace(task, folder=task.folder.absolute(), work_folder=task.work_folder.absolute(), roots=roots)


def _copy_outcome(local: Future[Any], remote: Any) -> None:
    try:
        if remote.status == "finished":
            local.set_result(remote.result())
        elif remote.status == "error":
            error = remote.exception()
            local.set_exception(BrokenExecutor(str(error)) if isinstance(error, KilledWorker) else error)
        else:
            # Lost or cancelled with its worker or its scheduler; the next round finds a missing scheduler.
            local.set_exception(BrokenExecutor(f"the task was {remote.status}"))
    except (OSError, CancelledError) as error:
        # The worker died after the task and before it delivered the result.
        local.set_exception(BrokenExecutor(str(error)))
