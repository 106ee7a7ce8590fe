"""The TFRecord framing: length, masked CRC-32C, payload, masked CRC-32C.

Knows bytes only. https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import google_crc32c
import xxhash

from xtts_pipeline.cache.format.problems import REPAIR
from xtts_pipeline.errors import CacheError
from xtts_pipeline.system.regular_files import open_regular_file
from xtts_pipeline.system.storage import size_of

_LENGTH = struct.Struct("<Q")
_CHECK = struct.Struct("<I")
_HEADER_BYTES = _LENGTH.size + _CHECK.size
FRAME_BYTES = _HEADER_BYTES + _CHECK.size


def masked_crc(data: bytes) -> int:
    """Return the CRC-32C of the data as TFRecord files store it: rotated, plus a constant."""
    crc: int = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


class RecordWriter:
    """Writes framed records to an open binary file and counts records, bytes and the xxh3-128 digest."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._digest = xxhash.xxh3_128()
        self.records = 0
        self.bytes = 0

    def write(self, payload: bytes) -> None:
        """Append one record."""
        length = _LENGTH.pack(len(payload))
        header = length + _CHECK.pack(masked_crc(length))
        footer = _CHECK.pack(masked_crc(payload))
        for part in (header, payload, footer):
            self._file.write(part)
            self._digest.update(part)
        self.records += 1
        self.bytes += FRAME_BYTES + len(payload)

    @property
    def checksum(self) -> str:
        """The xxh3-128 hex digest of everything written so far."""
        return self._digest.hexdigest()


def record_starts(path: Path) -> list[int]:
    """Return the byte offset of each record of a file, by reading the lengths only.

    Raises CacheError if the file is truncated or cannot be read.
    """
    starts, offset = [], 0
    try:
        with open_regular_file(path, buffering=0) as file:
            size = size_of(file)
            while offset < size:
                file.seek(offset)
                header = file.read(_LENGTH.size)
                starts.append(offset)
                offset += FRAME_BYTES + (_LENGTH.unpack(header)[0] if len(header) == _LENGTH.size else size)
    except OSError as error:
        raise CacheError(f"{path}: cannot be read ({error.strerror}); {REPAIR}") from None
    if offset != size:
        raise CacheError(f"{path}: record {len(starts) - 1} at byte {starts[-1]} is cut; {REPAIR}")
    return starts


def read_records(path: Path, digest: xxhash.xxh3_128 | None = None) -> Iterator[bytes]:
    """Yield each record's payload after verifying both checksums; `digest` is updated with every byte.

    Raises CacheError with the file, the record's number from 0 and its byte offset if the file is truncated, damaged or
    cannot be read.
    """
    try:
        # No buffer: a record is larger, and would be copied through it.
        with open_regular_file(path, buffering=0) as file:
            remaining = size_of(file)
            number, offset = 0, 0
            while remaining:
                payload = _read_record(file, remaining, f"{path}: record {number} at byte {offset}", digest)
                yield payload
                framed_bytes = FRAME_BYTES + len(payload)
                number, offset, remaining = number + 1, offset + framed_bytes, remaining - framed_bytes
    except OSError as error:
        raise CacheError(f"{path}: cannot be read ({error.strerror}); {REPAIR}") from None


def read_record(path: Path, start: int) -> bytes:
    """Return the payload of the record at a byte offset. Raises CacheError as `read_records` does."""
    try:
        with open_regular_file(path, buffering=0) as file:
            remaining = size_of(file) - start  # Sets the position.
            file.seek(start)
            return _read_record(file, remaining, f"{path}: the record at byte {start}", None)
    except OSError as error:
        raise CacheError(f"{path}: cannot be read ({error.strerror}); {REPAIR}") from None


def _read_record(file: BinaryIO, remaining: int, where: str, digest: xxhash.xxh3_128 | None) -> bytes:
    header = file.read(_HEADER_BYTES)
    if len(header) < _HEADER_BYTES:
        raise CacheError(
            f"{where}: found {len(header)} bytes of a header, expected {_HEADER_BYTES}; the file is cut; {REPAIR}"
        )
    length_bytes, length_check = header[: _LENGTH.size], header[_LENGTH.size :]
    if masked_crc(length_bytes) != _CHECK.unpack(length_check)[0]:
        raise CacheError(f"{where}: the length's checksum does not match; the file is damaged; {REPAIR}")
    (length,) = _LENGTH.unpack(length_bytes)
    # Compare the length with the file's size before it decides how much memory is allocated.
    if FRAME_BYTES + length > remaining:
        raise CacheError(
            f"{where}: expected {length} bytes of payload, the file ends before; the file is cut; {REPAIR}"
        )
    payload = file.read(length)
    footer = file.read(_CHECK.size)
    if len(payload) < length or len(footer) < _CHECK.size:
        raise CacheError(f"{where}: the file became shorter while it was read; {REPAIR}")
    if masked_crc(payload) != _CHECK.unpack(footer)[0]:
        raise CacheError(f"{where}: the payload's checksum does not match; the file is damaged; {REPAIR}")
    if digest is not None:
        for part in (header, payload, footer):
            digest.update(part)
    return payload
