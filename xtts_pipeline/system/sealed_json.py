"""Canonical JSON with a checksum: one byte sequence for one content, and any changed bit is found."""

import json
from collections.abc import Mapping
from typing import Any

import xxhash

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
