"""Copy a cache to or from a store; each file is checked by the manifest's checksum, the manifest comes last.

Object stores have no rename. The manifest makes a cache: it is removed before any change and written after all files.
Receipts are not copied, since only the machine that made the cache can use them.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import xxhash

from xtts_pipeline.cache.build.folder import (
    check_free_space,
    existing_shard_files,
    format_bytes,
    invalidate,
    is_cache_name,
    locked_folder,
    remove_receipts_but,
)
from xtts_pipeline.cache.format.manifest import (
    MANIFEST_NAME,
    FileEntry,
    Manifest,
    find_manifest,
    is_file_of,
    load_manifest,
    manifest_bytes,
)
from xtts_pipeline.cache.format.problems import refuse, verify_command
from xtts_pipeline.cache.verify.files import check_files, regular_size
from xtts_pipeline.errors import CacheError
from xtts_pipeline.system.atomic_files import atomic_write
from xtts_pipeline.system.regular_files import open_regular_file
from xtts_pipeline.system.storage import StoredPath, check_apart
from xtts_pipeline.system.terminal import counted

_CHUNK_BYTES = 8 << 20
# Enough hex digits of the manifest's digest to distinguish caches.
_STAGED_NAME_LENGTH = 16


@dataclass(frozen=True)
class CopyReport:
    """Files and bytes of the cache, those copied, the names removed from the target, and whether it held another."""

    target: str
    files: int
    bytes: int
    copied_files: int
    copied_bytes: int
    removed: tuple[str, ...] = ()
    has_replaced_another: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the result of `xtts cache push --json`."""
        return asdict(self)

    def to_text(self) -> str:
        """Return the report in a line for people."""
        removed = f"; removed {', '.join(self.removed)}" if self.removed else ""
        if self.has_replaced_another:
            removed += "; replaced another cache"
        copied = (
            f"{counted(self.copied_files, 'file')}, {format_bytes(self.copied_bytes)}, copied"
            if self.copied_files
            else "nothing to copy"
        )
        return f"{self.target}: whole, {counted(self.files, 'file')}, {format_bytes(self.bytes)}; {copied}{removed}"


def copy_cache(
    source: Path,
    target: Path,
    jobs: int,
    on_bytes: Callable[[int], object],
    on_wait: Callable[[str], object],
    other_place: str = "choose another DST",
) -> CopyReport:
    """Make the target a copy of the source, copying `jobs` files at a time; valid files stay.

    If another process writes the target, wait for it after passing one line to `on_wait`. `other_place` is the remedy
    in errors about the target. Files of the target's own manifest are trusted; those of an interrupted copy are read.
    Raises CacheError if the source is no whole cache, if the target holds anything else, or if either fails; the target
    then has no manifest, or that of a whole cache; OutputError if the target lies inside the source.
    """
    check_apart(target.parent, source, other_place)
    manifest = load_manifest(source)
    refuse(source, check_files(source, manifest))
    entries = manifest.all_files
    nothing = CopyReport(str(target), len(entries) + 1, sum(entry.bytes for entry in entries.values()), 0, 0)
    # Checked before locking: a whole copy needs no lock.
    if find_manifest(target) == manifest and not _missing_files(target, entries, manifest, jobs):
        return nothing
    with _opened_target(target, on_wait, other_place) as place:
        before = find_manifest(target)
        missing = _missing_files(target, entries, before, jobs)
        if before == manifest and not missing:
            return nothing  # another process has just finished it
        # Check space first: without it the old cache stays valid.
        place.make_room(sum(entries[name].bytes for name in missing))
        place.invalidate()
        _for_each(missing, jobs, lambda name: _copy(source / name, place, name, entries[name], on_bytes))
        removed = tuple(name for name in existing_shard_files(target) if name not in entries)
        for name in removed:  # shards of an earlier cache
            (target / name).unlink()
        with place.write(MANIFEST_NAME) as file:
            file.write(manifest_bytes(manifest))
    return replace(
        nothing,
        has_replaced_another=before is not None and before != manifest,
        copied_files=len(missing) + 1,
        copied_bytes=sum(entries[name].bytes for name in missing),
        removed=removed,
    )


def stage_cache(
    source: Path, folder: Path, jobs: int, on_bytes: Callable[[int], object], on_wait: Callable[[str], object]
) -> Path:
    """Return a whole copy of a cache in a subfolder of a local folder, made or completed if needed.

    The subfolder is named after the manifest's content, so every cache has its own. Raises CacheError like
    `copy_cache`.
    """
    digest = xxhash.xxh3_128_hexdigest(manifest_bytes(load_manifest(source)))
    target = folder / digest[:_STAGED_NAME_LENGTH]
    copy_cache(source, target, jobs, on_bytes, on_wait, "choose another --stage")
    return target


class _LocalTarget:
    """A locked local folder; its files are written atomically."""

    def __init__(self, folder: Path, work_folder: Path, other_place: str) -> None:
        self.folder, self._work_folder, self._other_place = folder, work_folder, other_place

    def invalidate(self) -> None:
        invalidate(self.folder)
        # Old receipts do not describe the new shards.
        remove_receipts_but(self.folder, ())

    def make_room(self, needed_bytes: int) -> None:
        check_free_space(self.folder, needed_bytes, self._other_place)

    def write(self, name: str) -> AbstractContextManager[BinaryIO]:
        return atomic_write(self.folder / name, self._work_folder)


class _StoredTarget:
    """A folder in a store; a file that fails half-way is removed."""

    def __init__(self, folder: StoredPath) -> None:
        self.folder = folder

    def invalidate(self) -> None:
        (self.folder / MANIFEST_NAME).unlink(missing_ok=True)

    def make_room(self, needed_bytes: int) -> None:
        """Do nothing: a store reports a lack of space itself."""

    @contextmanager
    def write(self, name: str) -> Iterator[BinaryIO]:
        path = self.folder / name
        try:
            with path.write() as file:
                yield file
        except BaseException:
            with suppress(OSError):
                path.unlink()
            raise


@contextmanager
def _opened_target(
    folder: Path, on_wait: Callable[[str], object], other_place: str
) -> Iterator[_LocalTarget | _StoredTarget]:
    """Yield the writable target. Raises CacheError if it holds anything but a cache or cannot be written."""
    try:
        if isinstance(folder, StoredPath):
            foreign = (
                sorted(path.name for path in folder.iterdir() if not is_cache_name(path.name))
                if folder.is_dir()
                else []
            )
            if foreign:
                raise CacheError(
                    f"{folder}: holds {foreign[0]}, which is no part of a cache; choose an empty place or another cache"
                )
            yield _StoredTarget(folder)
        else:
            with locked_folder(folder, on_wait=on_wait, other_place=other_place) as work_folder:
                yield _LocalTarget(folder, work_folder, other_place)
    except OSError as error:
        raise CacheError(
            f"{error.filename or folder}: cannot be read or written ({error.strerror}); mend that and copy again"
        ) from None


def _missing_files(target: Path, entries: dict[str, FileEntry], before: Manifest | None, jobs: int) -> list[str]:
    """Return the files that the target lacks or has with other bytes."""
    vouched = {} if before is None else before.all_files

    def is_missing(name: str) -> bool:
        path, entry = target / name, entries[name]
        return regular_size(path) != entry.bytes or (vouched.get(name) != entry and not is_file_of(path, entry))

    return [name for name, missing in zip(entries, _for_each(list(entries), jobs, is_missing), strict=True) if missing]


def _for_each(names: list[str], jobs: int, function: Callable[[str], Any]) -> list[Any]:
    """Return the function's result for each name, computed in threads; the first error cancels the rest."""
    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(function, names))


def _copy(
    source: Path, place: _LocalTarget | _StoredTarget, name: str, entry: FileEntry, on_bytes: Callable[[int], object]
) -> None:
    digest = xxhash.xxh3_128()
    with open_regular_file(source, entry.bytes) as file, place.write(name) as out:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
            out.write(chunk)
            on_bytes(len(chunk))
        if digest.hexdigest() != entry.checksum:
            raise CacheError(
                f"{source}: found checksum {digest.hexdigest()}, expected {entry.checksum}; "
                f"run {verify_command(source.parent)}"
            )
    found = (place.folder / name).stat().st_size
    if found != entry.bytes:
        raise CacheError(
            f"{place.folder / name}: found {found} bytes after writing, expected {entry.bytes}; copy again"
        )
