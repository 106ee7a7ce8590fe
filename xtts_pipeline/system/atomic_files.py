"""Durable output: a file or a folder appears whole under its name, or not at all."""

import errno
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
    rename: after a crash the old or the new file is there, never a part. An OSError of it, such as for a full disk,
    names `path`.
    """
    temporary = (work_folder or path.parent) / f".{path.name}.{secrets.token_hex(4)}.tmp"
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename in (None, os.fspath(temporary)):
            error.filename = os.fspath(path)
        raise
    sync_path(path.parent)


def write_output(path: Path, content: bytes) -> None:
    """Write a file that the user named, and make its folder: the file appears whole or not at all.

    A symlink is followed; anything but a regular file, such as a pipe, is written directly. Raises OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and not path.is_file():
        path.write_bytes(content)
    else:
        with atomic_write(Path(os.path.realpath(path))) as file:
            file.write(content)


@contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """Yield an empty folder that becomes `folder` when the block succeeds and is removed when it fails.

    It lies in `.NAME.partial` beside `folder`, and what another process left there is removed first. Of two processes
    that write one folder the later one removes the work of the first, which fails: what appears is of one alone.
    Everything is synced before the rename. `folder` must not exist. An OSError names a file by its later path.
    """
    outer = folder.with_name(f".{folder.name}.partial")
    partial = outer / secrets.token_hex(4)
    folder.parent.mkdir(parents=True, exist_ok=True)
    outer.mkdir(exist_ok=True)
    for left in list(outer.iterdir()):
        # Renamed first: a removal would go on inside a folder that its process gives its name meanwhile.
        removed = outer / f"{secrets.token_hex(4)}.old"
        with suppress(FileNotFoundError):
            left.rename(removed)
            if removed.is_dir():
                shutil.rmtree(removed, ignore_errors=True)
            else:
                removed.unlink()
    partial.mkdir(parents=True)
    try:
        yield partial
        for path in (*sorted(partial.rglob("*")), partial):
            sync_path(path)
        partial.rename(folder)
    except Exception as error:
        if not partial.exists():
            raise OSError(errno.EBUSY, "another process has begun to write it", os.fspath(folder)) from error
        if not isinstance(error, OSError):
            raise
        if isinstance(error.filename, str) and Path(error.filename).is_relative_to(partial):
            error.filename = os.fspath(folder / Path(error.filename).relative_to(partial))
        raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        with suppress(OSError):  # another process writes there, or has removed it
            outer.rmdir()
    sync_path(folder.parent)


def remove(path: Path) -> None:
    """Remove a folder, a file or nothing; of a link, the link alone."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def sync_path(path: Path) -> None:
    """Flush a file's data, or a folder's names (renames, removals), to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
