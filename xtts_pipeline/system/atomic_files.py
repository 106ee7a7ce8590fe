"""Durable output: a file or a folder appears whole under its name, or not at all."""

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


@contextmanager
def atomic_write(path: Path, work_folder: Path | None = None) -> Iterator[BinaryIO]:
    """Open a temporary file that becomes `path` when the block succeeds and is removed when it fails.

    The temporary file lies beside `path`, or in `work_folder` on the same file system. Data is synced before the
    rename: after a crash the old or the new file is there, never a part. Raises OSError (full disk) unchanged.
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
    sync_path(path.parent)


@contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """Yield an empty folder that becomes `folder` when the block succeeds and is removed when it fails.

    It lies in `.NAME.partial` beside `folder`, which is removed first if another process left it. Of two processes that
    write one folder the later one removes the work of the first, which fails: what appears is of one process alone.
    Everything is synced before the rename. `folder` must not exist. Raises OSError unchanged.
    """
    outer = folder.with_name(f".{folder.name}.partial")
    partial = outer / secrets.token_hex(4)
    folder.parent.mkdir(parents=True, exist_ok=True)
    if outer.exists():
        shutil.rmtree(outer)
    try:
        partial.mkdir(parents=True)
        yield partial
        for path in (*sorted(partial.rglob("*")), partial):
            sync_path(path)
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        with suppress(OSError):  # another process writes there, or has removed it
            outer.rmdir()
    sync_path(folder.parent)


def sync_path(path: Path) -> None:
    """Flush a file's data, or a folder's names (renames, removals), to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
