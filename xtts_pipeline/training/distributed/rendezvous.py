"""Wait until every worker of a run has started, before TensorFlow connects them: it waits an hour and hears no signal.

Imports no TensorFlow, which later listens on the same ports.
"""

import contextlib
import os
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from xtts_pipeline.errors import ConfigError, TrainingError, listed
from xtts_pipeline.training.distributed.cluster import Cluster

# Silence until the line about missing workers, and the time for one try to reach one.
QUIET_SECONDS, TRY_SECONDS = 5.0, 2.0
PAUSE_SECONDS = 0.2
_MOST_NAMED = 3


def wait_for_workers(cluster: Cluster, log: Callable[[str], None]) -> None:
    """Return once every other worker listens at its address; this one listens at its own meanwhile.

    `log` receives one line after `QUIET_SECONDS`. Raises TrainingError if a worker is missing after the cluster's
    `wait_seconds`, ConfigError if an address has no valid port or this worker's port cannot be opened.
    """
    host, port = _parse(cluster.workers[cluster.index])
    missing = {number: _parse(address) for number, address in enumerate(cluster.workers) if number != cluster.index}
    started, is_told = time.monotonic(), False
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(socket.create_server(("", port), backlog=max(len(cluster.workers), 128)))
        except OSError as error:
            problem = f"port {port} of {host} cannot be opened ({os.strerror(error.errno or 0)})"
            raise ConfigError(f"worker {cluster.index}: {problem}; choose another") from None
        threads = stack.enter_context(ThreadPoolExecutor(min(len(missing), 32), thread_name_prefix="rendezvous"))
        while True:
            found = threads.map(_is_listening, missing.values())
            missing = {
                number: place for (number, place), is_there in zip(missing.items(), found, strict=True) if not is_there
            }
            if not missing:
                return
            waited = time.monotonic() - started
            named = listed([f"worker {number} at {cluster.workers[number]}" for number in missing], _MOST_NAMED)
            where = f"worker {cluster.index} of {len(cluster.workers)}"
            if waited >= QUIET_SECONDS and not is_told:
                log(f"{where}: waiting for {named}, for {cluster.wait_seconds:g} s at most")
                is_told = True
            if waited >= cluster.wait_seconds:
                raise TrainingError(
                    f"{where}: {named} did not answer for {waited:.0f} s; "
                    "start the same command there, or raise --wait-workers"
                )
            time.sleep(PAUSE_SECONDS)


def _parse(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not (port.isdecimal() and 0 < int(port) < 1 << 16):
        raise ConfigError(f"worker at {address}: found port {port!r}, expected a number from 1 to 65535")
    return host.strip("[]"), int(port)


def _is_listening(place: tuple[str, int]) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(place, TRY_SECONDS):
        return True
    return False
