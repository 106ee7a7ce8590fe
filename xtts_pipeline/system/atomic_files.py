"""Durable files: a file appears whole under its name, or not at all."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def atomic_write(path: Path, work_folder: Path | None = None) -> Iterator[BinaryIO]:
    """Open a temporary file that becomes `path` when the block ends well, and is removed when it does not.

    The temporary file lies beside `path`, or in `work_folder` of the same file system. The data is on the disk before the name is:
    after a crash there is the old file or the new one, never a part. Raises OSError (full disk, no permission) unchanged.
    """
    temporary = (work_folder or path.parent) / f".{path.name}.{secrets.token_hex(4)}.tmp"
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Bring the folder's names (renames, removals) to the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
