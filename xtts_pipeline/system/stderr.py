"""The standard error stream of a command: what cannot be said there is lost, and the work goes on."""

import io
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path


class _LossyStream(io.TextIOWrapper):
    """A stream that takes everything, and loses what cannot be written: a disk is full, or a terminal is gone."""

    def write(self, text: str, /) -> int:
        with suppress(OSError):
            super().write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            super().flush()

    def close(self) -> None:
        with suppress(OSError):
            super().close()


def open_stderr(descriptor: int, encoding: str, *, closefd: bool) -> io.TextIOWrapper:
    """Return a stream of lines on a descriptor that never raises OSError; what cannot be encoded is escaped."""
    # Not a raw file of our own: a signal within its `write` would leave the line in the buffer, to be written again.
    file = io.BufferedWriter(io.FileIO(descriptor, "w", closefd=closefd))
    return _LossyStream(file, encoding, "backslashreplace", line_buffering=True)


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
