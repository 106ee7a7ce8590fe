"""Receipts: what each shard was made of, so that a rerun can tell without making it again.

A receipt may be deleted at any time; its shard is then made again. Only receipts hold modification times.
"""

import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import xxhash
from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from xtts_pipeline.cache.canonical import canonical_json, open_sealed, sealed_bytes
from xtts_pipeline.cache.manifest import file_checksum
from xtts_pipeline.cache.plan import PlannedRow
from xtts_pipeline.cache.shards import ShardName
from xtts_pipeline.errors import Reason

RECEIPTS_FOLDER = "receipts"
TEXT_REASONS = frozenset({Reason.UNKNOWN_SYMBOL, Reason.EMPTY_TEXT, Reason.TEXT_TOO_LONG})  # found before the sound file is opened
PASSING_REASONS = frozenset({Reason.DECODER_CRASHED, Reason.TIMEOUT})  # the machine's state may be to blame: tried again in the next run

SourceCheck = Literal["stat", "content"]

_strict = dataclass(frozen=True, config=ConfigDict(strict=True, extra="forbid", allow_inf_nan=False))


@_strict
class SourceStat:
    """A sound file's identity without reading it."""

    bytes: int
    mtime_ns: int


@_strict
class ClipReceipt:
    """One row of a shard: what went in, and what came of it.

    `source` is None where there was no regular file or the text was refused first; `checksum` where the file was not read.
    A rejected row has a `reason` and no lengths.
    """

    id: str
    corpus: int
    audio: str
    raw_text: str
    text: str
    speaker: str
    language: str
    speaker_id: int
    language_id: int
    source: SourceStat | None
    checksum: str | None
    seconds: float
    frames: int
    tokens: int
    reason: str | None
    detail: str

    @property
    def is_kept(self) -> bool:
        """Whether the row has a record."""
        return self.reason is None


@_strict
class Receipt:
    """One shard: its file, and its rows in order, kept and rejected."""

    shard: str
    fingerprint: str
    records: int
    bytes: int
    mtime_ns: int
    shard_checksum: str
    rows: tuple[ClipReceipt, ...]


_RECEIPT = TypeAdapter(Receipt)


def receipt_path(folder: Path, shard: ShardName) -> Path:
    """Return where a shard's receipt lies."""
    return folder / RECEIPTS_FOLDER / f"{Path(str(shard)).stem}.json"


def receipt_bytes(receipt: Receipt) -> bytes:
    """Return what a receipt's file holds: one line of canonical JSON with its own checksum."""
    return sealed_bytes(_RECEIPT.dump_python(receipt, mode="json"))


def load_receipt(folder: Path, shard: ShardName) -> Receipt | None:
    """Return a shard's receipt, or None if there is none that is whole and about this shard."""
    try:
        content = open_sealed(receipt_path(folder, shard).read_bytes())
        receipt = _RECEIPT.validate_json(canonical_json(content))
    except (OSError, ValueError, ValidationError):
        return None
    return receipt if receipt.shard == str(shard) else None


def source_stat(path: Path) -> SourceStat | None:
    """Return the identity of a regular file, or None if there is none: a FIFO or a device is never opened."""
    try:
        status = path.stat()
    except OSError:
        return None
    return SourceStat(status.st_size, status.st_mtime_ns) if stat.S_ISREG(status.st_mode) else None


def reusable_receipt(
    receipt: Receipt, folder: Path, rows: Sequence[PlannedRow], roots: Sequence[Path], check: SourceCheck
) -> Receipt | None:
    """Return the receipt, its times brought up to date, if its shard is what these rows would make again; else None.

    With `stat`, a source is the same if its size and modification time are; with `content`, if its bytes are.
    """
    if len(receipt.rows) != len(rows):
        return None
    sources = []
    for clip, row in zip(receipt.rows, rows, strict=True):
        if not _is_same_row(clip, row) or clip.reason in PASSING_REASONS:
            return None
        found = None if clip.reason in TEXT_REASONS else source_stat(roots[row.corpus] / row.audio)
        if found != clip.source and not (check == "content" and found and clip.source and found.bytes == clip.source.bytes):
            return None
        sources.append(found)
    if check == "content" and not all(_has_same_content(clip, roots[clip.corpus]) for clip in receipt.rows):
        return None
    found_shard = source_stat(folder / receipt.shard)
    if found_shard is None or found_shard.bytes != receipt.bytes:
        return None
    # Another modification time is another copy of the file: only its bytes can tell.
    if (found_shard.mtime_ns != receipt.mtime_ns or check == "content") and file_checksum(folder / receipt.shard) != receipt.shard_checksum:
        return None
    if found_shard.mtime_ns == receipt.mtime_ns and all(clip.source == found for clip, found in zip(receipt.rows, sources, strict=True)):
        return receipt
    content = _RECEIPT.dump_python(receipt)
    content["mtime_ns"] = found_shard.mtime_ns
    for clip, found in zip(content["rows"], sources, strict=True):
        clip["source"] = found
    return _RECEIPT.validate_python(content)


def source_checksum(path: Path) -> str | None:
    """Return the xxh3-128 hex digest of a sound file, or None if it cannot be read."""
    try:
        with path.open("rb") as file:
            digest = xxhash.xxh3_128()
            while block := file.read(1 << 20):
                digest.update(block)
    except OSError:
        return None
    return digest.hexdigest()


def _has_same_content(clip: ClipReceipt, root: Path) -> bool:
    return clip.checksum is None or source_checksum(root / clip.audio) == clip.checksum


def _is_same_row(clip: ClipReceipt, row: PlannedRow) -> bool:
    return (
        clip.id == row.id
        and clip.corpus == row.corpus
        and clip.audio == row.audio
        and clip.text == row.text
        and clip.raw_text == row.raw_text
        and clip.speaker == row.speaker
        and clip.language == row.language
        and clip.speaker_id == row.speaker_id
        and clip.language_id == row.language_id
    )
