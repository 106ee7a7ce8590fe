"""Read tables of JSON lines: one object a row."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from xtts_pipeline.corpus.columns import REQUIRED
from xtts_pipeline.corpus.rows import RowCollector, read_lines
from xtts_pipeline.corpus.tables import SAMPLE_ROWS, sample_lines
from xtts_pipeline.errors import Reason

# NeMo's manifests are JSON lines that are called .json.
JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")


def sample_objects(path: Path, encoding: str = "") -> list[dict[str, Any]]:
    """Return the objects of the first lines that are JSON objects."""
    found = []
    for line in sample_lines(path, encoding)[:SAMPLE_ROWS]:
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            found.append(value)
    return found


def keys_of(objects: Sequence[Mapping[str, object]]) -> list[str]:
    """Return every key of the objects once, in the order in which they come."""
    return list(dict.fromkeys(key for row in objects for key in row))


def read_json_lines(path: Path, rows: RowCollector, columns: Mapping[str, str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield `file:line` and the strings and whole numbers of each object, by key; numbers become text."""
    # Within JSON's quotes such a separator is text.
    for where, line in read_lines(path, rows.root, rows, is_delimited=False):
        try:
            fields = json.loads(line, object_pairs_hook=_object)
        except (ValueError, RecursionError) as error:
            detail = f"not JSON ({' '.join(str(error).split())}); expected one object a line"
            rows.reject(where, Reason.BAD_ROW, detail, line[:80])
            continue
        problem = _problem(fields, columns)
        if problem:
            row_id = str(fields.get("id", "")) if isinstance(fields, dict) else line[:80]
            rows.reject(where, Reason.BAD_ROW, problem, row_id)
        else:
            texts = {key: text for key, value in fields.items() if (text := _as_text(value)) is not None}
            texts.pop("", None)  # as in tables
            yield where, texts


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("a key is repeated in an object")
    return fields


def _as_text(value: object) -> str | None:
    """Return a string or whole number as text; 1.0 is one, since pandas writes it where others are missing."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else None


def _problem(fields: object, columns: Mapping[str, str]) -> str | None:
    """Return what is wrong with a row's object, or None."""
    if not isinstance(fields, dict):
        return f"found {type(fields).__name__}; expected an object with {columns['audio']} and {columns['text']}"
    for role, key in columns.items():
        value = fields.get(key)
        if role in REQUIRED and not isinstance(value, str):
            return f"{key} is {'missing' if key not in fields else 'not a string'}; expected a string"
        if value is not None and _as_text(value) is None:
            return f"{key} is neither a string nor a whole number"
    offset = fields.get("offset")
    if isinstance(offset, int | float) and offset > 0:
        return f"the row is a part of a sound, from {offset} s on; cut the sound into clips"
    return None
