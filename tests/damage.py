"""Damage files by chance, or forge them with a right checksum."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from xtts_pipeline.system.sealed_json import seal_json, unseal_json


def flip_bit(path: Path, place: int, bit: int = 0) -> None:
    """Change one bit of the byte at this place; a negative place counts from the end."""
    # In place: a file that is written anew waits for the disk, some hundred times longer.
    with path.open("r+b") as file:
        file.seek(place, os.SEEK_END if place < 0 else os.SEEK_SET)
        (byte,) = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1 << bit]))


@contextmanager
def forged(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the content of a sealed file, and seal what the block made of it, as one who knows the checksum would."""
    content = unseal_json(path.read_bytes())
    yield content
    path.write_bytes(seal_json(content))
