"""Map a function over items in forked processes, which share the memory read so far.

For work that holds the GIL.
"""

import multiprocessing
import signal
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TypeVar

from xtts_pipeline.errors import CacheError

Item = TypeVar("Item")
Result = TypeVar("Result")

_THREADS = Path("/proc/self/task")


def parallel_map(function: Callable[[Item], Result], items: Sequence[Item], jobs: int) -> list[Result]:
    """Return the function's result for each item, in order, computed by this process and `jobs` - 1 forks.

    A process with several threads, or on a system other than Linux, cannot fork safely and computes everything itself.
    Raises CacheError if a fork dies.
    """
    jobs = min(jobs, len(items)) if _can_fork() else 1
    if jobs < 2:
        return [function(item) for item in items]
    context = multiprocessing.get_context("fork")
    copies = []
    try:
        for share in range(1, jobs):
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(target=_send_results, args=(sender, function, items[share::jobs]), daemon=True)
            process.start()
            sender.close()
            copies.append((process, receiver))
        shares = [[function(item) for item in items[::jobs]]]
        shares += [receiver.recv() for _, receiver in copies]
    except EOFError:
        raise CacheError("a process died while it read the cache; give it more memory, or use --jobs 1") from None
    finally:
        for process, _ in copies:
            process.kill()
            process.join()
    return [shares[index % jobs][index // jobs] for index in range(len(items))]


def _can_fork() -> bool:
    return _THREADS.is_dir() and len(list(_THREADS.iterdir())) == 1


def _send_results(sender: Connection, function: Callable[[Item], Result], items: Sequence[Item]) -> None:
    # The parent handles Ctrl-C and SIGTERM and ends its forks.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    sender.send([function(item) for item in items])
