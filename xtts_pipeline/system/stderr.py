"""The standard error stream of a command: what cannot be said there is lost, and the work goes on."""

import io
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
