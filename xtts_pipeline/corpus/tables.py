"""Read tables with a header of column names, one row per line.

A quoted field ends on its own line: otherwise one stray quote would swallow every row after it.
"""

import csv
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from xtts_pipeline.corpus.rows import RowCollector, read_lines
from xtts_pipeline.errors import CorpusError, Reason

SUFFIXES = (".csv", ".tsv", ".txt")
HEADER_BYTES = 4_096
_DELIMITERS = "\t|,;"
_QUOTED = ",;"  # fields between tabs or bars need no quotes, and transcripts contain many
_SPLIT_IN_NAME = re.compile(r"(?:^|[-_.])(train|val|valid|validation|dev|eval|test)(?:[-_.]|$)")


@dataclass(frozen=True)
class TableHeader:
    """The first line of a table: its delimiter and its column names in lower case."""

    delimiter: str
    columns: tuple[str, ...]


def read_header(path: Path) -> TableHeader:
    """Return the first line of the file as column names; no columns if it cannot be a header."""
    try:
        if not path.is_file():
            # Opening a pipe would block.
            return TableHeader(",", ())
        with path.open("rb") as file:
            raw = file.read(HEADER_BYTES + 1).split(b"\n", 1)[0]
        line = raw.removeprefix(b"\xef\xbb\xbf").decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return TableHeader(",", ())
    line = line.rstrip("\r")
    if len(raw) > HEADER_BYTES or "\x00" in line or len(line.splitlines()) > 1:
        return TableHeader(",", ())
    delimiter = max(_DELIMITERS, key=line.count)
    columns = [column.strip().lower() for column in line.split(delimiter)]
    return TableHeader(delimiter, tuple(column.strip('"') for column in columns))


def find_tables(folder: Path, wanted: frozenset[str]) -> list[Path]:
    """Return the tables in the folder that have all wanted columns, chosen and ordered by `by_split`."""
    files = [path for path in sorted(folder.iterdir()) if path.suffix.lower() in SUFFIXES and not path.is_symlink()]
    # `read_header` finds no columns in what is not a regular file.
    return by_split([path for path in files if wanted <= set(read_header(path).columns)])


def by_split(tables: Sequence[Path]) -> list[Path]:
    """Return the tables to read. If one is named for training, only those named after splits: others repeat their rows.

    Else tables named after splits come first, and rows that others repeat are rejected as duplicates.
    """
    named = [path for path in tables if split_in_name(path)]
    if any(split_in_name(path) == "train" for path in named):
        return named
    return named + [path for path in tables if path not in named]


def split_in_name(path: Path) -> str:
    """Return the split that a file is named after, such as `train` for metadata_train.csv, or an empty text."""
    match = _SPLIT_IN_NAME.search(path.stem.lower())
    return ("val" if match[1] == "eval" else match[1]) if match else ""


def read_table(path: Path, rows: RowCollector) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield `file:line` and the fields by column of each row; a row with another number of fields is rejected.

    Raises CorpusError if two columns have one name.
    """
    header = read_header(path)
    repeated = sorted(name for name, count in Counter(header.columns).items() if count > 1 and name)
    if repeated:
        raise CorpusError(f"{path}:1: several columns are called {repeated[0]}; rename all but one of them")
    for where, line in read_lines(path, rows.root, rows, first=2):
        fields = _fields(line, header.delimiter)
        if fields is None:
            limit = f"a field is over {csv.field_size_limit()} characters"
            detail = f"a quote is not closed on its line, or {limit}; one row is one line"
            rows.reject(where, Reason.BAD_ROW, detail, line[:80])
        elif len(fields) != len(header.columns):
            expected = f"expected {len(header.columns)}: {', '.join(header.columns)}"
            detail = f"{len(fields)} field{'s' * (len(fields) > 1)}; {expected}"
            rows.reject(where, Reason.BAD_ROW, detail, fields[0])
        else:
            yield where, dict(zip(header.columns, fields, strict=True))


def _fields(line: str, delimiter: str) -> list[str] | None:
    """Return the fields of a row, or None if its quotes do not match."""
    if delimiter not in _QUOTED:
        return line.split(delimiter)
    try:
        return next(csv.reader([line], delimiter=delimiter, strict=True))
    except csv.Error:
        return None
