"""Wait for a state of another thread or process, never for a time."""

import subprocess
import time
from collections.abc import Callable
from typing import Any

WAIT_SECONDS = 300.0  # for what takes a second on a quiet machine


def wait_until(is_true: Callable[[], object], process: subprocess.Popen[Any] | None = None) -> None:
    """Return once the state is there. Fail after minutes, or if the process that brings it about has ended before."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        has_ended = process is not None and process.poll() is not None
        if is_true():
            return
        assert not has_ended, "the process ended before the state came"
        assert time.monotonic() < deadline, "the state never came"
        time.sleep(0.001)
