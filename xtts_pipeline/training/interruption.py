"""SIGTERM and Ctrl-C while a run trains: the first asks it to stop after its step, the second ends the process at once.

Knows signals only. A thread hears them, because Python's own handlers would wait for native code, and that may compile for a minute.
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Self

EXIT_INTERRUPTED = 130
# `timeout` and the like send a signal to a process and then to its group: that is one and the same.
SAME_SIGNAL_SECONDS = 0.5
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """Listens while active; must be entered in the main thread. `say` is told of the first signal, in another thread.

    A signal that the process was started to ignore stays ignored.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
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
        while heard := os.read(self._reader, 1):
            if heard[0] not in self._previous:
                continue
            if self._asked.is_set():
                if time.monotonic() - asked_at < SAME_SIGNAL_SECONDS:
                    continue
                # Checkpoints appear whole or not at all, so there is nothing to clear up.
                os._exit(EXIT_INTERRUPTED)
            self._asked.set()
            asked_at = time.monotonic()
            # Who reads what is said may have been interrupted as well.
            with contextlib.suppress(OSError):
                self._say("interrupted: stopping after this step, with a checkpoint; interrupt again to stop at once")


def _do_nothing(_signal_number: int, _frame: FrameType | None) -> None:
    """Take the place of the handlers that raise; Python writes the signal to the wakeup descriptor for any handler of its own."""
