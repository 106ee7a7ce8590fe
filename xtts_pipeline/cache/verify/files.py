"""Compare the names, kinds and sizes of a cache's files, and its receipts, with the manifest.

Opens only receipts; links, pipes and devices are reported and never followed.
"""

import stat
from collections.abc import Iterator
from pathlib import Path

from xtts_pipeline.cache.build.folder import LOCK_NAME, is_cache_name
from xtts_pipeline.cache.build.receipts import MAX_RECEIPT_BYTES, RECEIPTS_FOLDER, Receipt, load_receipt, receipt_path
from xtts_pipeline.cache.format.manifest import MANIFEST_NAME, Manifest, listed_shards
from xtts_pipeline.cache.format.problems import Kind, Problem
from xtts_pipeline.cache.format.shards import ShardName
from xtts_pipeline.system.regular_files import read_regular_file
from xtts_pipeline.system.sealed_json import unseal_json

IGNORED_NAMES = frozenset({".gitignore"})


def check_files(folder: Path, manifest: Manifest) -> list[Problem]:
    """Return the missing, extra, irregular and wrongly sized files, ordered by name."""
    entries = manifest.all_files
    found = list(folder.iterdir())
    missing = entries.keys() - {path.name for path in found}
    problems = [Problem(Kind.MISSING, name, "no such file") for name in missing]
    for path in found:
        if path.name in entries:
            problems += _file_problems(path, entries[path.name].bytes)
        elif path.name == LOCK_NAME:
            problems += _file_problems(path, 0)
        elif path.name == RECEIPTS_FOLDER:
            problems += _receipts_folder_problems(path, manifest)
        elif path.name != MANIFEST_NAME and path.name not in IGNORED_NAMES:
            unfinished = "not in the manifest; remove it, or run xtts preprocess to finish the cache"
            detail = unfinished if is_cache_name(path.name) else "no part of a cache; remove it"
            problems.append(Problem(Kind.EXTRA, path.name, detail))
    return sorted(problems, key=lambda problem: problem.where)


def check_receipts(folder: Path, manifest: Manifest) -> dict[ShardName, Receipt | Problem]:
    """Return, for each shard that has a receipt, the receipt or its problem."""
    checked: dict[ShardName, Receipt | Problem] = {}
    if not (folder / RECEIPTS_FOLDER).is_dir():
        return checked  # copies have none, and a store would cost one request each
    for name in listed_shards(manifest):
        if regular_size(receipt_path(folder, name)) is None:
            continue  # may be deleted; check_files reports irregular files
        receipt = load_receipt(folder, name)
        contradiction = (
            next(_receipt_contradictions(receipt, name, manifest), None)
            if receipt
            else _receipt_error(receipt_path(folder, name))
        )
        if receipt is not None and contradiction is None:
            checked[name] = receipt
        else:
            where = receipt_path(folder, name).relative_to(folder).as_posix()
            checked[name] = Problem(Kind.RECEIPT, where, str(contradiction))
    return checked


def regular_size(path: Path) -> int | None:
    """Return the size of a regular file, or None for anything else, such as a link to one."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _file_problems(path: Path, expected_bytes: int) -> Iterator[Problem]:
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode):
        yield Problem(Kind.NOT_A_FILE, path.name, f"found {_kind_of(status.st_mode)}, expected a regular file")
    elif status.st_size != expected_bytes:
        yield Problem(Kind.SIZE, path.name, f"found {status.st_size} bytes, expected {expected_bytes}")


def _receipts_folder_problems(folder: Path, manifest: Manifest) -> Iterator[Problem]:
    if not stat.S_ISDIR(folder.lstat().st_mode):
        yield Problem(Kind.NOT_A_FILE, folder.name, f"found {_kind_of(folder.lstat().st_mode)}, expected a folder")
        return
    names = {receipt_path(folder.parent, name).name for name in listed_shards(manifest)}
    for path in folder.iterdir():
        where = f"{folder.name}/{path.name}"
        if path.name not in names:
            yield Problem(Kind.EXTRA, where, "the receipt of no shard in the manifest; remove it")
        elif regular_size(path) is None:
            yield Problem(Kind.NOT_A_FILE, where, f"found {_kind_of(path.lstat().st_mode)}, expected a regular file")


def _receipt_error(path: Path) -> str:
    try:
        unseal_json(read_regular_file(path, MAX_RECEIPT_BYTES))
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    except ValueError as error:
        return f"found {error}"
    return "is not the receipt of this shard"


def _receipt_contradictions(receipt: Receipt, name: ShardName, manifest: Manifest) -> Iterator[str]:
    entries = {shard.name: shard for shard in manifest.shards}
    names, wave_names = name.files(manifest.bucket_count), name.wave_files(manifest.bucket_count)
    files = [(file, entries[shard]) for file, shard in zip(receipt.files, names, strict=False)]
    listed = manifest.wave_files
    waves = [(listed[wave].bytes, listed[wave].checksum) for wave in wave_names if listed]
    expected = [
        ("fingerprint", receipt.fingerprint, manifest.fingerprint),
        ("buckets", receipt.buckets, manifest.buckets),
        *(("records", file.records, entry.records) for file, entry in files),
        *(("bytes", file.bytes, entry.bytes) for file, entry in files),
        *(("shard_checksum", file.shard_checksum, entry.checksum) for file, entry in files),
        ("waves", [(file.bytes, file.shard_checksum) for file in receipt.waves], waves),
    ]
    for what, have, want in expected:
        if have != want:
            yield f"{what}: found {have}, the manifest says {want}"


def _kind_of(mode: int) -> str:
    kinds = {
        stat.S_IFLNK: "a symbolic link",
        stat.S_IFDIR: "a folder",
        stat.S_IFIFO: "a pipe",
        stat.S_IFSOCK: "a socket",
    }
    return kinds.get(stat.S_IFMT(mode), "a device")
