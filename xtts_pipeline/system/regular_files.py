"""Open files that others made: regular files of a limited size only, and never a wait for a pipe or a device."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO

from xtts_pipeline.system.storage import is_stored, open_stored, size_of


@contextmanager
def open_regular_file(
    path: Path, most_bytes: int | None = None, *, follow_links: bool = True, buffering: int = -1
) -> Iterator[BinaryIO]:
    """Open a file for reading without ever blocking.

    `buffering` applies to local files. Raises OSError unless it is a regular file of at most `most_bytes`, and no link
    where links are not followed.
    """
    if is_stored(path):
        status = path.stat()
        _check_regular(path, status, most_bytes)
        with open_stored(path, known_bytes=status.st_size) as file:
            yield file
    else:
        with open(path, "rb", buffering, opener=partial(_open_without_waiting, follow_links=follow_links)) as file:
            _check_regular(path, os.fstat(file.fileno()), most_bytes)
            yield file


def read_regular_file(path: Path, most_bytes: int, *, follow_links: bool = True) -> bytes:
    """Return a file's bytes without ever blocking; raise as `open_regular_file` does."""
    with open_regular_file(path, most_bytes, follow_links=follow_links) as file:
        return file.read(size_of(file))


def open_to_append(path: Path) -> BinaryIO:
    """Open or create a file to append to it, unbuffered.

    Raises OSError, before anything is written, unless it is a regular file and no link.
    """
    file = open(path, "ab", buffering=0, opener=partial(_open_without_waiting, follow_links=False))  # noqa: SIM115 (the caller closes it)
    try:
        _check_regular(path, os.fstat(file.fileno()), None)
    except OSError:
        file.close()
        raise
    return file


def identity_of(file: Path | int) -> tuple[int, int] | None:
    """Return size and modification time in ns of a path or descriptor, which a change alters; None for no such file."""
    try:
        status = os.stat(file)  # noqa: PTH116 (takes descriptors too)
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns


def _check_regular(path: Path, status: os.stat_result, most_bytes: int | None) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "no regular file", str(path))
    if most_bytes is not None and status.st_size > most_bytes:
        raise OSError(errno.EFBIG, f"found {status.st_size} bytes, expected at most {most_bytes}", str(path))


def _open_without_waiting(path: str, flags: int, *, follow_links: bool) -> int:
    # O_NONBLOCK: a pipe without a writer opens at once and is then refused.
    if follow_links:
        return os.open(path, flags | os.O_NONBLOCK, 0o666)
    try:
        return os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "a link, expected a regular file", path) from None
        raise
