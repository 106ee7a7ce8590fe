"""The standard error stream of a command: what cannot be said there is lost, and the work goes on."""

import io
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any


class _LossyFile(io.FileIO):
    """A file that takes everything, and loses what it cannot write: to a full disk, or to a terminal that is gone."""

    def write(self, data: Any, /) -> int:
        try:
            written = super().write(data)
        except OSError:
            written = None
        return len(data) if written is None else written


def open_stderr(descriptor: int, encoding: str, *, closefd: bool) -> io.TextIOWrapper:
    """Return a stream of lines on a descriptor that never raises OSError; what cannot be encoded is escaped."""
    file = io.BufferedWriter(_LossyFile(descriptor, "w", closefd=closefd))
    return io.TextIOWrapper(file, encoding, "backslashreplace", line_buffering=True)


@contextmanager
def silent_decoder() -> Iterator[None]:
    """Lose what native code prints on descriptor 2; in the main thread alone, since all threads share it.

    libmpg123 prints a line for each frame of an MP3 that it repairs, also in sound files.
    """
    is_alone = threading.current_thread() is threading.main_thread() and sys.stderr is not None
    with ExitStack() as undo:
        with suppress(OSError):  # a process without descriptor 2
            if is_alone:
                sys.stderr.flush()
                terminal = undo.enter_context(os.fdopen(os.dup(2), "wb"))
                undo.callback(os.dup2, terminal.fileno(), 2)
                null = undo.enter_context(Path(os.devnull).open("wb"))
                os.dup2(null.fileno(), 2)
        yield
