"""Read generic manifests: tables with a header, or JSON lines.

The columns are `audio`, `text` and optional `id`, `speaker`, `language` and `split`.
"""

import json
from collections.abc import Iterator
from pathlib import Path

from xtts_pipeline.corpus.layouts.layout import FoundCorpus
from xtts_pipeline.corpus.rows import SOUND_SUFFIXES, CorpusRow, RowCollector, read_lines
from xtts_pipeline.corpus.tables import HEADER_BYTES, by_split, find_tables, read_header, read_table, split_in_name
from xtts_pipeline.errors import Reason

REQUIRED = frozenset({"audio", "text"})
OPTIONAL = ("id", "speaker", "language", "split")
JSON_SUFFIXES = (".jsonl", ".ndjson")


class ManifestTable:
    """Paths are relative to the manifest; the default id is the path without its suffix."""

    name = "manifest"
    looked_for = "a CSV with a header, or JSON lines, with audio and text (optional: id, speaker, language, split)"
    parts = (("manifest.csv", "manifest.tsv", "manifest.jsonl", "*.jsonl"),)

    def find(self, source: Path) -> FoundCorpus | None:
        """Return the manifest itself, or those in the folder."""
        if source.is_file():
            fits = source.suffix.lower() in JSON_SUFFIXES or set(read_header(source).columns) >= REQUIRED
            return FoundCorpus(source.parent, (source,)) if fits else None
        if not source.is_dir():
            return None
        lines = sorted(path for path in source.iterdir() if path.suffix.lower() in JSON_SUFFIXES and _is_manifest(path))
        tables = find_tables(source, REQUIRED) + by_split(lines)
        return FoundCorpus(source, tables) if tables else None

    def read(self, found: FoundCorpus, rows: RowCollector) -> None:
        """Add each row of each manifest."""
        for table in found.tables:
            read = _read_json_lines if table.suffix.lower() in JSON_SUFFIXES else read_table
            for where, fields in read(table, rows):
                audio = fields["audio"].strip()
                row_id = fields.get("id", "").strip() or id_of(audio)
                split = fields.get("split", "").strip() or split_in_name(table)
                speaker, language = fields.get("speaker", ""), fields.get("language", "")
                rows.add(CorpusRow(where, row_id, audio, fields["text"], speaker, language, split))


def id_of(audio: str) -> str:
    """Return a sound's path without its suffix: the id of a row without one."""
    return audio.rpartition(".")[0] if audio.lower().endswith(SOUND_SUFFIXES) else audio


def _is_manifest(path: Path) -> bool:
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        start = file.read(HEADER_BYTES)
    return path.stem == "manifest" or (b'"audio"' in start and b'"text"' in start)


def _read_json_lines(path: Path, rows: RowCollector) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield `file:line` and the known fields of each object; numbers become text."""
    # Within JSON's quotes such a separator is text.
    for where, line in read_lines(path, rows.root, rows, is_delimited=False):
        try:
            fields = json.loads(line, object_pairs_hook=_object)
        except (ValueError, RecursionError) as error:
            detail = f"not JSON ({' '.join(str(error).split())}); expected one object a line"
            rows.reject(where, Reason.BAD_ROW, detail, line[:80])
            continue
        problem = _problem(fields)
        if problem:
            row_id = str(fields.get("id", "")) if isinstance(fields, dict) else line[:80]
            rows.reject(where, Reason.BAD_ROW, problem, row_id)
        else:
            yield where, {key: str(fields[key]) for key in (*REQUIRED, *OPTIONAL) if fields.get(key) is not None}


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("a key is repeated in an object")
    return fields


def _problem(fields: object) -> str | None:
    """Return what is wrong with a row's object, or None."""
    if not isinstance(fields, dict):
        return f"found {type(fields).__name__}; expected an object with audio and text"
    for key in sorted(REQUIRED):
        if not isinstance(fields.get(key), str):
            return f"{key} is {'missing' if key not in fields else 'not a string'}; expected a string"
    for key in OPTIONAL:
        value = fields.get(key)
        if isinstance(value, bool) or not isinstance(value, str | int | None):
            return f"{key} is neither a string nor a whole number"
    return None
