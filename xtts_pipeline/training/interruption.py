"""Handle SIGTERM, Ctrl-C and a closed terminal (SIGHUP) during training.

The first signal requests a stop after the step, the second exits at once. A thread receives them. Python's own handlers
would wait for native code, which may compile for a minute.
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Self

from xtts_pipeline.errors import EXIT_INTERRUPTED

# Programs such as `timeout` send a signal to a process and then to its group. Both count as one.
SAME_SIGNAL_SECONDS = 0.5
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interruption:
    """Listens for signals while active. Must be entered in the main thread; calls `log` from another one.

    A signal that the process was started to ignore stays ignored.
    """

    def __init__(self, log: Callable[[str], None]) -> None:
        self._log = log
        self._asked = threading.Event()

    @property
    def is_asked(self) -> bool:
        """Whether the run should stop."""
        return self._asked.is_set()

    def __enter__(self) -> Self:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self._previous = {
            number: signal.getsignal(number) for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN
        }
        for number in self._previous:
            signal.signal(number, _do_nothing)
        self._previous_wakeup = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        self._thread = threading.Thread(target=self._listen, name="interruption", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(self._previous_wakeup)
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        os.close(self._writer)
        self._thread.join()
        os.close(self._reader)

    def _listen(self) -> None:
        asked_at = 0.0
        while received := os.read(self._reader, 1):
            if received[0] not in self._previous:
                continue
            if self._asked.is_set():
                if time.monotonic() - asked_at < SAME_SIGNAL_SECONDS:
                    continue
                # Checkpoints are renamed into place when complete, so nothing needs clean-up.
                os._exit(EXIT_INTERRUPTED)
            self._asked.set()
            asked_at = time.monotonic()
            # The reader of stderr may have been interrupted as well.
            with contextlib.suppress(OSError):
                self._log("interrupted: stopping after this step, with a checkpoint; interrupt again to stop at once")


def _do_nothing(_signal_number: int, _frame: FrameType | None) -> None:
    """Replace the handlers that raise. Python writes a signal to the wakeup descriptor only if it has a handler."""
