"""Canonical JSON with a checksum: one byte sequence for one content, and any changed bit is found.

Also opens such files safely: only regular files of a limited size.
"""

import errno
import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import xxhash

from xtts_pipeline.system.storage import is_stored, open_to_read, size_of

_CHECKSUM_LENGTH = 2 * 16  # xxh3-128 in hexadecimal
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def canonical_json(content: object) -> str:
    """Return one line of JSON: sorted keys, no spaces, no ASCII escapes, floats as `repr`.

    Raises ValueError for NaN.
    """
    return _ENCODER.encode(content)


def seal_json(content: Mapping[str, Any]) -> bytes:
    """Return the canonical line of the content with its `checksum` added, and a newline."""
    checksum = xxhash.xxh3_128_hexdigest(canonical_json(content).encode())
    return f"{canonical_json({**content, 'checksum': checksum})}\n".encode()


def unseal_json(data: bytes) -> dict[str, Any]:
    """Return the content of a sealed line without its checksum.

    Raises ValueError, saying what is wrong, unless the data is exactly what `seal_json` makes of that content.
    """
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        raise ValueError("not valid JSON") from None
    if not isinstance(content, dict):
        raise ValueError(f"a JSON {type(content).__name__}, expected an object")  # noqa: TRY004 (the data is wrong, not the call)
    found = content.pop("checksum", None)
    try:
        sealed = seal_json(content)
    except ValueError:
        raise ValueError("JSON with numbers or characters that have no canonical form") from None
    if sealed != data:
        expected = xxhash.xxh3_128_hexdigest(canonical_json(content).encode())
        if found != expected:
            raise ValueError(f"checksum {found}, expected {expected} for this content")
        raise ValueError("JSON that is not in its canonical form")
    return content


@contextmanager
def open_regular_file(path: Path, most_bytes: int | None = None) -> Iterator[BinaryIO]:
    """Open a file for reading without ever blocking.

    Raises OSError unless it is a regular file of at most `most_bytes`.
    """
    if is_stored(path):
        status = path.stat()
        _check_regular(path, status, most_bytes)
        with open_to_read(path, known_bytes=status.st_size) as file:
            yield file
    else:
        with open(path, "rb", opener=_open_without_waiting) as file:
            _check_regular(path, os.fstat(file.fileno()), most_bytes)
            yield file


def _check_regular(path: Path, status: os.stat_result, most_bytes: int | None) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "no regular file", str(path))
    if most_bytes is not None and status.st_size > most_bytes:
        raise OSError(errno.EFBIG, f"found {status.st_size} bytes, expected at most {most_bytes}", str(path))


def read_regular_file(path: Path, most_bytes: int) -> bytes:
    """Return a file's bytes without ever blocking.

    Raises OSError unless it is a regular file of at most `most_bytes`.
    """
    with open_regular_file(path, most_bytes) as file:
        return file.read(size_of(file))


def _open_without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # a pipe without a writer opens at once and is then refused


def strip_seal(data: bytes) -> bytes:
    """Return the JSON of a sealed line without its checksum, which must be the first key of that name.

    Raises ValueError if the checksum is missing or wrong. Much faster than `unseal_json`, which also checks the form.
    """
    before, _, after = data.partition(b'"checksum":"')
    checksum, rest = after[:_CHECKSUM_LENGTH], after[_CHECKSUM_LENGTH:]
    content = before + rest.removeprefix(b'",').removesuffix(b"\n")
    is_framed = rest.startswith(b'",') and rest.endswith(b"\n")
    if not is_framed or checksum != xxhash.xxh3_128_hexdigest(content).encode():
        raise ValueError("no checksum, or a wrong one")
    return content
