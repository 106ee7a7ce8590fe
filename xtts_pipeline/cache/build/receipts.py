"""Receipts record what each shard was made of, so that a rerun can reuse it.

A deleted receipt only makes its shard be written again. Only receipts hold modification times.
"""

import stat
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter
from pydantic.dataclasses import dataclass

from xtts_pipeline.cache.build.planned_rows import PlannedRow, RowContent, content_of
from xtts_pipeline.cache.format.manifest import Checksum, file_checksum
from xtts_pipeline.cache.format.schema import RecordSpec, bucket_of
from xtts_pipeline.cache.format.shards import ShardName
from xtts_pipeline.config.schema import Bucket
from xtts_pipeline.errors import Reason
from xtts_pipeline.system.regular_files import read_regular_file
from xtts_pipeline.system.sealed_json import seal_json, strip_seal
from xtts_pipeline.system.strict_json import STRICT, Natural

RECEIPTS_FOLDER = "receipts"
# 32,768 rows with texts of 1,000 letters in most scripts.
MAX_RECEIPT_BYTES = 192 << 20
# Found before the sound is opened.
_TEXT_REASONS = (Reason.UNKNOWN_SYMBOL, Reason.EMPTY_TEXT, Reason.TEXT_TOO_LONG)
# May be the machine's fault: retried in the next run.
PASSING_REASONS = (Reason.DECODER_CRASHED, Reason.TIMEOUT, Reason.CHANGED_WHILE_READ)

SourceCheck = Literal["stat", "content"]


@dataclass(frozen=True, config=STRICT)
class SourceStat:
    """A sound file's identity without reading it."""

    bytes: int
    mtime_ns: int


@dataclass(frozen=True, config=STRICT)
class ClipReceipt(RowContent):
    """One row of a shard: its input and its result.

    `source` is None without a regular file or if the text was rejected first; `checksum` is None if the file was not
    read. A rejected row has a `reason` and no lengths.
    """

    source: SourceStat | None
    checksum: Checksum | None
    seconds: Annotated[float, Field(ge=0)]
    frames: Natural
    tokens: Natural
    reason: Reason | None
    detail: str

    @property
    def is_kept(self) -> bool:
        """Whether the row has a record."""
        return self.reason is None


@dataclass(frozen=True, config=STRICT)
class FileReceipt:
    """One file of a shard."""

    shard: str
    records: Natural
    bytes: Natural
    mtime_ns: int
    shard_checksum: Checksum


@dataclass(frozen=True, config=STRICT)
class Receipt:
    """One shard: its file or its files by bucket, and its rows in order, kept and rejected.

    `shard` to `shard_checksum` describe the first file. With a single file `buckets` and `more_files` are empty and are
    not written, and neither are `waves`, one wave file for each of `files`, without stored waves.
    """

    shard: str
    fingerprint: str
    records: Natural
    bytes: Natural
    mtime_ns: int
    shard_checksum: Checksum
    rows: tuple[ClipReceipt, ...]
    buckets: tuple[Bucket, ...] = ()
    more_files: tuple[FileReceipt, ...] = ()
    waves: tuple[FileReceipt, ...] = ()

    @property
    def files(self) -> tuple[FileReceipt, ...]:
        """Every file of the shard, in the order of the buckets."""
        return (FileReceipt(self.shard, self.records, self.bytes, self.mtime_ns, self.shard_checksum), *self.more_files)

    @property
    def all_files(self) -> tuple[FileReceipt, ...]:
        """`files`, and then the wave files."""
        return (*self.files, *self.waves)

    def kept_rows(self, specs: Sequence[RecordSpec], bucket: int) -> list[ClipReceipt]:
        """Return the rows whose records are in a bucket's file, in order; `specs` are those of all buckets."""
        return [clip for clip in self.rows if clip.is_kept and bucket_of(specs, clip.tokens, clip.frames) == bucket]


def make_receipt(
    fingerprint: str,
    files: Sequence[FileReceipt],
    rows: tuple[ClipReceipt, ...],
    buckets: tuple[Bucket, ...],
    waves: Sequence[FileReceipt] = (),
) -> Receipt:
    """Return the receipt of a shard with these files, at least one, in the order of the buckets."""
    first, *more = files
    sizes = (first.records, first.bytes, first.mtime_ns, first.shard_checksum)
    return Receipt(first.shard, fingerprint, *sizes, rows, buckets, tuple(more), tuple(waves))


_RECEIPT = TypeAdapter(Receipt)


def receipt_path(folder: Path, shard: ShardName) -> Path:
    """Return the path of a shard's receipt."""
    return folder / RECEIPTS_FOLDER / f"{shard}.json"


def receipt_bytes(receipt: Receipt) -> bytes:
    """Return a receipt's file content: one sealed line of canonical JSON."""
    content = _RECEIPT.dump_python(receipt, mode="json")
    if not receipt.buckets:
        del content["buckets"], content["more_files"]
    if not receipt.waves:
        del content["waves"]
    return seal_json(content)


def load_receipt(folder: Path, shard: ShardName) -> Receipt | None:
    """Return a shard's receipt, or None if there is no valid one of this shard."""
    try:
        receipt = _RECEIPT.validate_json(strip_seal(read_regular_file(receipt_path(folder, shard), MAX_RECEIPT_BYTES)))
    except (OSError, ValueError):  # pydantic's ValidationError is a ValueError
        return None
    bucket_count = len(receipt.buckets) or 1
    names = [*shard.files(bucket_count), *(shard.wave_files(bucket_count) if receipt.waves else ())]
    is_named = [file.shard for file in receipt.all_files] == names
    is_counted = sum(file.records for file in receipt.files) == sum(clip.is_kept for clip in receipt.rows)
    return receipt if is_named and is_counted else None


def source_stat(path: Path) -> SourceStat | None:
    """Return the identity of a regular file, or None; a FIFO or a device is never opened."""
    try:
        status = path.stat()
    except OSError:
        return None
    return SourceStat(status.st_size, status.st_mtime_ns) if stat.S_ISREG(status.st_mode) else None


def reusable_receipt(
    receipt: Receipt, folder: Path, rows: Sequence[PlannedRow], roots: Sequence[Path], check: SourceCheck
) -> Receipt | None:
    """Return the receipt with current modification times if these rows would make the same shard; else None.

    With `stat` a source is unchanged if size and modification time are; with `content` if its bytes are.
    """
    if len(receipt.rows) != len(rows) or not all(map(_is_same_row, receipt.rows, rows)):
        return None
    sources = [
        None if clip.reason in _TEXT_REASONS else source_stat(roots[clip.corpus] / clip.audio) for clip in receipt.rows
    ]
    found = [source_stat(folder / file.shard) for file in receipt.all_files]
    files = [
        replace(file, mtime_ns=now.mtime_ns)
        for file, now in zip(receipt.all_files, found, strict=True)
        if now and now.bytes == file.bytes
    ]
    is_same_source = _has_same_stat if check == "stat" else _may_have_same_content
    if len(files) != len(found) or not all(map(is_same_source, receipt.rows, sources)):
        return None
    if check == "content" and not all(_has_same_content(clip, roots[clip.corpus]) for clip in receipt.rows):
        return None
    # Another modification time means another copy of the shard: compare its bytes.
    doubtful = [
        file for file, before in zip(files, receipt.all_files, strict=True) if check == "content" or file != before
    ]
    if any(file_checksum(folder / file.shard) != file.shard_checksum for file in doubtful):
        return None
    if tuple(files) == receipt.all_files and all(map(_has_same_stat, receipt.rows, sources)):
        return receipt
    rows_now = tuple(replace(clip, source=source) for clip, source in zip(receipt.rows, sources, strict=True))
    shards = len(receipt.files)
    return make_receipt(receipt.fingerprint, files[:shards], rows_now, receipt.buckets, files[shards:])


def changed_rows(receipt: Receipt, roots: Sequence[Path]) -> list[str]:
    """Return the ids of the rows whose sound file is no longer the one that was read."""
    unread = (*_TEXT_REASONS, Reason.CHANGED_WHILE_READ)
    read = (clip for clip in receipt.rows if clip.reason not in unread)
    return [clip.id for clip in read if source_stat(roots[clip.corpus] / clip.audio) != clip.source]


def _has_same_stat(clip: ClipReceipt, found: SourceStat | None) -> bool:
    return clip.source == found


def _may_have_same_content(clip: ClipReceipt, found: SourceStat | None) -> bool:
    return clip.source == found or (clip.source is not None and found is not None and clip.source.bytes == found.bytes)


def _has_same_content(clip: ClipReceipt, root: Path) -> bool:
    if clip.checksum is None:
        return True
    try:
        return file_checksum(root / clip.audio) == clip.checksum
    except OSError:
        return False


def _is_same_row(clip: ClipReceipt, row: PlannedRow) -> bool:
    # The cause of a read error may be gone without a change of size or time.
    is_unread = clip.reason is Reason.AUDIO_UNREADABLE and clip.source is not None and clip.checksum is None
    return content_of(clip) == content_of(row) and clip.reason not in PASSING_REASONS and not is_unread
