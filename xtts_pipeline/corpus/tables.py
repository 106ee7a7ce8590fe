"""Read tables of one row per line: their delimiter, columns and rows, with a header or without one.

A quoted field ends on its own line: otherwise one stray quote would swallow every row after it.
"""

import csv
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from xtts_pipeline.corpus.encodings import FirstLine, decode_head, first_line
from xtts_pipeline.corpus.rows import SPLIT_NAMES, RowCollector, read_lines
from xtts_pipeline.errors import CorpusError, Reason

SUFFIXES = (".csv", ".tsv", ".txt")
HEADER_BYTES = 4_096
SAMPLE_BYTES = 1 << 18
LONG_SAMPLE_BYTES = 1 << 24
SAMPLE_ROWS = 50
DELIMITERS = "\t|,;"
# Between tabs or bars fields need no quotes, and transcripts contain many: there a quote hides no delimiter.
QUOTED = (",", ";")
_QUOTED_FIELD = re.compile(r'"(?:[^"]|"")*"')
NUMBER = re.compile(r"[\d.,:\s]*")
_SPLIT_IN_NAME = re.compile(rf"(?:^|[-_.])({'|'.join(SPLIT_NAMES)})(?:[-_.]|$)")


@dataclass(frozen=True)
class TableHeader:
    """A table's delimiter and its column names in lower case; positions, if it has no header.

    Rows begin at line `first_row` and have `least_fields` fields or more, by default all. In a shorter one, the last
    field stands for those that are left out. `takes_rest`: the last column goes to the end of the line.
    """

    delimiter: str
    columns: tuple[str, ...]
    first_row: int = 2
    least_fields: int | None = None
    takes_rest: bool = False


def fields_vary(counts: Sequence[int]) -> bool:
    """Return whether the rows of a table have such numbers of fields that a text in them must hold the delimiter."""
    return 10 * max(map(counts.count, counts), default=0) < 9 * len(counts)


def read_first_line(path: Path, encoding: str = "") -> FirstLine:
    """Return the first line of a file that is not blank; an empty one if there is none in the encoding."""
    try:
        return first_line(read_head(path, HEADER_BYTES + 1), encoding)
    except UnicodeDecodeError:
        return FirstLine()


def read_header(path: Path, delimiter: str = "", encoding: str = "") -> TableHeader:
    """Return the first line of the file as column names; no columns if it cannot be a header, such as numbers alone.

    The rows then begin at that line.
    """
    first = read_first_line(path, encoding)
    line, delimiter = first.text, delimiter or first.delimiter or max(DELIMITERS, key=first.text.count)
    columns = [column.strip().lower() for column in line.split(delimiter)]
    is_long = len(line) > HEADER_BYTES or "\x00" in line or len(line.splitlines()) > 1
    if is_long or (len(columns) > 1 and all(map(NUMBER.fullmatch, columns))):
        return TableHeader(delimiter, (), first.number)
    return TableHeader(delimiter, tuple(column.strip('"') for column in columns), first.number + 1)


def read_head(path: Path, size: int) -> bytes:
    """Return the first bytes of a regular file; none if it cannot be read."""
    try:
        if not path.is_file():
            # Opening a pipe would block.
            return b""
        with path.open("rb") as file:
            return file.read(size)
    except OSError:
        return b""


def sample_lines(path: Path, encoding: str = "") -> list[str]:
    """Return whole lines from the beginning of a file; what is no text in the encoding is replaced."""
    lines: list[str] = []
    for size in (SAMPLE_BYTES, LONG_SAMPLE_BYTES):  # One row may be longer than others together.
        head = read_head(path, size)
        lines = decode_head(head, encoding, "replace").split("\n")
        if len(head) < size:
            return lines
        if len(lines) > SAMPLE_ROWS:
            break
    return lines[:-1]


def sample_fields(path: Path, header: TableHeader, encoding: str = "") -> list[list[str]]:
    """Return the fields of some rows from the table's beginning, whatever their number."""
    lines = [line for line in sample_lines(path, encoding)[header.first_row - 1 :] if line.strip()][:SAMPLE_ROWS]
    rows = [_fields(line.rstrip("\r"), header) for line in lines]
    return [fields for fields in rows if not isinstance(fields, str) and any(map(str.strip, fields))]


def by_split(tables: Sequence[Path]) -> list[Path]:
    """Return the tables to read. If one is named for training, only those named after splits: others repeat their rows.

    Else tables named after splits come first, and rows that others repeat are rejected as duplicates.
    """
    named = [path for path in tables if split_in_name(path)]
    if any(split_in_name(path) == "train" for path in named):
        return named
    return named + [path for path in tables if path not in named]


def split_in_name(path: Path) -> str:
    """Return the split that a file is named after, `train`, `val` or `test`, or an empty text."""
    match = _SPLIT_IN_NAME.search(path.stem.lower())
    return SPLIT_NAMES[match[1]] if match else ""


def read_table(path: Path, rows: RowCollector, header: TableHeader) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield `file:line` and the fields by column of each row; a row with another number of fields is rejected.

    Fields of columns without a name, such as a row number that pandas writes, are left out. Raises CorpusError if two
    columns have one name.
    """
    repeated = sorted(name for name, count in Counter(header.columns).items() if count > 1 and name)
    if repeated:
        raise CorpusError(f"{path}:1: several columns are called {repeated[0]}; rename all but one of them")
    columns, least = header.columns, header.least_fields or len(header.columns)
    for where, line in read_lines(path, rows.root, rows, first=header.first_row):
        fields = _fields(line, header)
        if isinstance(fields, str):
            rows.reject(where, Reason.BAD_ROW, fields, line[:80])
        elif not any(map(str.strip, fields)):
            continue  # Spreadsheets write empty rows, with more or fewer fields than the others.
        elif not least <= len(fields) <= len(columns):
            detail = f"{len(fields)} field{'s' * (len(fields) > 1)}; expected {_expected(header)}"
            if len(fields) > len(columns) and header.delimiter in QUOTED:
                detail += "; put a text that holds the delimiter in quotes"
            rows.reject(where, Reason.BAD_ROW, detail, fields[0])
        else:
            fields += fields[-1:] * (len(columns) - len(fields))
            row = dict(zip(columns, fields, strict=True))
            row.pop("", None)
            yield where, row


def _expected(header: TableHeader) -> str:
    columns, least = header.columns, header.least_fields
    if least is None:
        return f"{len(columns)}: {', '.join(columns)}"
    return " or ".join(header.delimiter.join(columns[:count]) for count in range(least, len(columns) + 1))


def _fields(line: str, header: TableHeader) -> list[str] | str:
    """Return the fields of a row, or what is wrong with its quotes."""
    if header.delimiter not in QUOTED:
        return [
            field[1:-1].replace('""', '"') if _QUOTED_FIELD.fullmatch(field) else field
            for field in line.split(header.delimiter)
        ]
    problem = ""
    # A quote behind a space opens a quoted field if the line can then be read. A text to the line's end keeps its
    # spaces.
    for skips_space in (not header.takes_rest, False):
        try:
            reader = csv.reader([line], delimiter=header.delimiter, strict=True, skipinitialspace=skips_space)
            fields = next(reader)
        except csv.Error as error:
            problem = str(error)
            continue
        if header.takes_rest and len(fields) > len(header.columns):
            last = len(header.columns) - 1
            fields[last:] = [header.delimiter.join(fields[last:])]
        return fields
    if "expected after" in problem:
        return "a quote closes before the end of its field; quote the whole field, and double the quotes within it"
    found = f"a quote is not closed on its line, or a field is over {csv.field_size_limit()} characters"
    return f"{found}; one row is one line: remove line breaks within quotes"
