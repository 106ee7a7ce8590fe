"""The rows of a plan: what a record is made of, and where it goes.

Imports no corpus reader and no text rules, so `xtts verify-cache`, which reads receipts, starts without them.
"""

from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True)
class RowContent:
    """Everything a row's record is made of except the sound; equal content means the same row.

    `corpus` is the index of its corpus among the roots.
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


@dataclass(frozen=True)
class PlannedRow(RowContent):
    """One usable row: text prepared, sound not yet read. `is_pinned`: the corpus itself chose the split."""

    where: str
    split: str
    is_pinned: bool
    digest: bytes


def content_of(row: RowContent) -> dict[str, Any]:
    """Return the fields of a row's content by name."""
    return {name: getattr(row, name) for name in _CONTENT_FIELDS}


_CONTENT_FIELDS = tuple(field.name for field in fields(RowContent))
