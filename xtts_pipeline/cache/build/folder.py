"""The cache folder during a build: its lock, its files and the leftovers of killed processes.

Knows file names, not their content.
"""

import errno
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from xtts_pipeline.cache.build.receipts import RECEIPTS_FOLDER
from xtts_pipeline.cache.format.manifest import MANIFEST_NAME, REJECTED_NAME, UTTERANCES_NAME
from xtts_pipeline.cache.format.shards import ShardName, parse_shard_name
from xtts_pipeline.errors import CacheError, listed
from xtts_pipeline.system.atomic_files import remove, sync_path

LOCK_NAME = ".lock"
_OWN_NAMES = frozenset({MANIFEST_NAME, UTTERANCES_NAME, REJECTED_NAME, RECEIPTS_FOLDER, LOCK_NAME, ".gitignore"})
_WORK_PREFIX = ".work-"
_OTHER_CACHE = "choose another --cache"
_LEFTOVER = re.compile(rf"{re.escape(_WORK_PREFIX)}[0-9a-f]{{8}}|\..+\.[0-9a-f]{{8}}\.tmp")


@contextmanager
def locked_folder(
    folder: Path, *, on_wait: Callable[[str], object] | None = None, other_place: str = _OTHER_CACHE
) -> Iterator[Path]:
    """Create the folder if needed, lock it, and yield an empty work folder inside it.

    Leftovers of dead processes are removed first. The work folder is removed at the end, and so is a cache folder that
    is still empty. A late worker of a dead process cannot rename files into the cache, because its work folder is gone.
    Raises CacheError if another process writes the cache, the folder holds anything but a cache, or it cannot be
    written. With `on_wait` it waits for the other process, after passing one line to it. `other_place` is the remedy in
    errors.
    """
    lock = FileLock(folder / LOCK_NAME)
    with _explained(folder, other_place):
        was_there = folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
        _refuse_foreign(folder, other_place)
        _acquire(lock, folder, on_wait)
    work_folder = folder / f"{_WORK_PREFIX}{secrets.token_hex(4)}"
    try:
        with _explained(folder, other_place):
            _remove_leftovers(folder)
            work_folder.mkdir()
            (folder / RECEIPTS_FOLDER).mkdir(exist_ok=True)
        yield work_folder
    finally:
        shutil.rmtree(work_folder, ignore_errors=True)
        _remove_if_unused(folder, was_there=was_there)
        lock.release()


def check_folder(folder: Path) -> None:
    """Raise CacheError as `locked_folder` would, without writing anything."""
    with _explained(folder, _OTHER_CACHE):
        if folder.exists():
            _refuse_foreign(folder, _OTHER_CACHE)
        above = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        if not above.is_dir():
            raise NotADirectoryError
        if not os.access(above, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        if (folder / LOCK_NAME).exists():
            with FileLock(folder / LOCK_NAME, blocking=False):
                pass


def _acquire(lock: FileLock, folder: Path, on_wait: Callable[[str], object] | None) -> None:
    try:
        lock.acquire(blocking=False)
    except Timeout:
        if on_wait is None:
            raise
        on_wait(f"{folder}: waiting for another process that writes this cache")
        while not lock.is_locked:
            folder.mkdir(parents=True, exist_ok=True)  # the other one removes it again if it fails
            with suppress(FileNotFoundError):
                lock.acquire()


@contextmanager
def _explained(folder: Path, other_place: str) -> Iterator[None]:
    """Turn system errors about the folder into one line."""
    try:
        yield
    except Timeout:
        raise CacheError(f"{folder}: another process writes this cache; wait for it, or {other_place}") from None
    except (NotADirectoryError, FileExistsError):
        raise CacheError(f"{folder}: is a file or lies under one, expected a folder; {other_place}") from None
    except OSError as error:
        raise CacheError(f"{folder}: cannot be written ({error.strerror}); mend that or {other_place}") from None


def is_cache_name(name: str) -> bool:
    """Return whether a finished or unfinished cache has files or folders of this name."""
    return name in _OWN_NAMES or parse_shard_name(name) is not None or _LEFTOVER.fullmatch(name) is not None


def existing_shards(folder: Path) -> list[ShardName]:
    """Return the shards with at least one file in the folder, of any layout."""
    names = (parse_shard_name(name) for name in existing_shard_files(folder))
    return sorted({name for name in names if name is not None})


def existing_shard_files(folder: Path) -> list[str]:
    """Return the names of the shard and wave files in the folder, of any layout and buckets."""
    return sorted(entry.name for entry in folder.iterdir() if parse_shard_name(entry.name))


def existing_counts(folder: Path) -> dict[str, tuple[int, int]]:
    """Return split -> (shard count of the existing layout, number of those shards that exist).

    Splits whose files disagree are left out.
    """
    counts: dict[str, list[int]] = {}
    for name in existing_shards(folder):
        counts.setdefault(name.split, []).append(name.count)
    return {split: (found[0], len(found)) for split, found in counts.items() if len(set(found)) == 1}


def invalidate(folder: Path) -> None:
    """Remove the manifest durably, before anything that it describes changes."""
    (folder / MANIFEST_NAME).unlink(missing_ok=True)
    sync_path(folder)


def remove_shards_but(folder: Path, wanted: Collection[ShardName], files: Collection[str]) -> None:
    """Remove every file of a shard and every receipt outside the plan. The manifest must be removed before."""
    for file in set(existing_shard_files(folder)) - set(files):
        (folder / file).unlink()
    remove_receipts_but(folder, {str(name) for name in wanted})


def remove_receipts_but(folder: Path, wanted_stems: Collection[str]) -> None:
    """Remove every receipt whose stem is not wanted. The manifest must be removed before."""
    for path in (folder / RECEIPTS_FOLDER).iterdir():
        if _is_receipt_name(path.name) and path.stem not in wanted_stems:
            path.unlink()


def check_free_space(folder: Path, needed_bytes: int, other_place: str = _OTHER_CACHE) -> None:
    """Raise CacheError if the disk has less free space than needed."""
    free_bytes = shutil.disk_usage(folder).free
    if needed_bytes > free_bytes:
        found, expected = format_bytes(free_bytes), format_bytes(needed_bytes)
        raise CacheError(f"{folder}: the disk has {found} free, the cache needs {expected}; make room or {other_place}")


def format_bytes(count: int) -> str:
    """Return a size for people: `1.9 GB`."""
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1_000:
            return f"{size:.3g} {unit}"
        size /= 1_000
    return f"{size:.3g} TB"


def _refuse_foreign(folder: Path, other_place: str) -> None:
    """Raise CacheError if the folder holds anything that is no part of a cache, since a build removes files.

    Another process may be at work, so an entry may vanish before it is examined.
    """
    foreign, receipts = [], folder / RECEIPTS_FOLDER
    for entry in sorted(folder.iterdir()):
        is_folder = entry.name == RECEIPTS_FOLDER or entry.name.startswith(_WORK_PREFIX)
        try:
            mode = entry.lstat().st_mode
        except FileNotFoundError:
            continue
        if not is_cache_name(entry.name):
            foreign.append(f"{entry.name}/" if stat.S_ISDIR(mode) else entry.name)
        elif not (stat.S_ISDIR(mode) if is_folder else stat.S_ISREG(mode)):
            is_real = stat.S_ISDIR(mode) or stat.S_ISREG(mode)
            found = ("a file" if is_folder else "a folder") if is_real else "a link, pipe or the like"
            expected = "a folder" if is_folder else "a file"
            remedy = other_place if is_real else f"remove it, or {other_place}"
            raise CacheError(f"{entry}: {found}, expected {expected}; {remedy}")
    if receipts.is_dir():
        foreign += sorted(
            f"{RECEIPTS_FOLDER}/{path.name}" for path in receipts.iterdir() if not _is_receipt_name(path.name)
        )
    if foreign:
        raise CacheError(f"{folder}: holds {listed(foreign, 3)}, which is no part of a cache; {other_place}")


def _is_receipt_name(name: str) -> bool:
    """Return whether a receipt or its temporary file has this name."""
    shard = parse_shard_name(f"{Path(name).stem}.tfrecord")
    return (shard is not None and name == f"{shard}.json") or _LEFTOVER.fullmatch(name) is not None


def _remove_leftovers(folder: Path) -> None:
    for entry in folder.iterdir():
        if _LEFTOVER.fullmatch(entry.name):
            remove(entry)


def _remove_if_unused(folder: Path, *, was_there: bool) -> None:
    """Remove what locking created if nothing came of it: a failed run leaves no empty cache."""
    receipts = folder / RECEIPTS_FOLDER
    # Must not hide the error being raised.
    with suppress(OSError):
        if (
            was_there
            or any(receipts.iterdir())
            or {entry.name for entry in folder.iterdir()} != {LOCK_NAME, RECEIPTS_FOLDER}
        ):
            return
        receipts.rmdir()
        (folder / LOCK_NAME).unlink()
        folder.rmdir()
