"""Say what a folder holds that fits no layout, and which one option would make it work."""

import fnmatch
import itertools
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from xtts_pipeline.corpus.columns import REQUIRED, find_columns, is_complete, unknown_column
from xtts_pipeline.corpus.encodings import HEAD_BYTES, first_line, likely_encoding, wide_encoding
from xtts_pipeline.corpus.json_lines import JSON_SUFFIXES, keys_of, sample_objects
from xtts_pipeline.corpus.layouts.layout import Layout
from xtts_pipeline.corpus.options import ReadOptions, shown_delimiter
from xtts_pipeline.corpus.placement import place_hits
from xtts_pipeline.corpus.sounds import SoundFiles, id_of, sounds_among
from xtts_pipeline.corpus.tables import (
    DELIMITERS,
    HEADER_BYTES,
    QUOTED,
    SUFFIXES,
    TableHeader,
    fields_vary,
    read_first_line,
    read_head,
    read_header,
    sample_fields,
)
from xtts_pipeline.errors import CorpusError, LayoutError
from xtts_pipeline.system.terminal import printable

SPREADSHEET_SUFFIXES = (".xlsx", ".xls", ".ods", ".numbers")
MAX_FOLDERS_TRIED = 20
MAX_FILES_TRIED = 100_000


def explain_no_layout(source: Path, shown: Path, readers: Sequence[Layout], options: ReadOptions) -> CorpusError:
    """Return the error for a source that no reader takes: what it holds, and what would make it a corpus."""
    tables, sounds = _tables_of(source), SoundFiles(source if source.is_dir() else source.parent)
    remedy = _needless_delimiter(source, readers, options)
    if not remedy and (problem := _unknown_column(tables, sounds, options)):
        return CorpusError(problem)
    kind = "no known corpus layout" if len(readers) > 1 else f"not a {readers[0].name} corpus"
    found = f"{shown}: {kind}: found {_describe(source, tables)}"
    remedy = remedy or _folder_above_books(source) or _renaming(source, readers)
    if not remedy and len(readers) == 1:
        remedy = f"expected {readers[0].looked_for}; leave out --layout to have it found"
    for table in tables if not remedy else ():
        remedy = _remedy_for(table, sounds, options)
        if remedy:
            break
    default = "write a table metadata.csv with the header file,text and a row for each sound; docs/corpora.md lists all"
    return LayoutError(found, remedy or default)


def folders_of(source: Path) -> list[Path]:
    """Return the first folders in a folder, none of a file."""
    return sorted(path for path in source.iterdir() if path.is_dir())[:MAX_FOLDERS_TRIED] if source.is_dir() else []


def _tables_of(source: Path) -> list[Path]:
    if source.is_file():
        return [source]
    entries = sorted(source.iterdir()) if source.is_dir() else []
    suffixes = (*SUFFIXES, *JSON_SUFFIXES, *SPREADSHEET_SUFFIXES)
    tables = [entry for entry in entries if entry.suffix.lower() in suffixes and entry.is_file()]
    # A table may have been saved from a spreadsheet beside it, and a text file may be a README.
    return sorted(tables, key=lambda table: (table.suffix.lower() == ".txt", _is_spreadsheet(table)))


def _is_spreadsheet(table: Path) -> bool:
    return table.suffix.lower() in SPREADSHEET_SUFFIXES


def _describe(source: Path, tables: Sequence[Path]) -> str:
    """Return the first table with its first line, the folders, and the number of sounds."""
    if not source.is_dir():
        return f"a file{_first_line(source)}"
    if not any(source.iterdir()):
        return "an empty folder"
    table = f"the table {printable(tables[0].name)}{_first_line(tables[0])}" if tables else "no table"
    folders = folders_of(source)
    listed = f", the folder{'s' * (len(folders) > 1)} {', '.join(printable(path.name) for path in folders)}"
    return f"{table}{listed if folders else ''} and {_count_sounds(source)}"


def _count_sounds(source: Path) -> str:
    """Return the number of sounds below a folder, in words; not all are counted where there are very many files."""
    count = tried = 0
    for _, _, names in os.walk(source):
        count += len(sounds_among(names))
        tried += len(names)
        if tried > MAX_FILES_TRIED:
            return f"{count} or more sounds"
    return f"{count or 'no'} sound{'s' * (count != 1)}"


def _first_line(table: Path) -> str:
    """Return what is found at the beginning of a table, in brackets."""
    problem = _problem_of(table)
    if problem:
        return f" ({problem[0]})"
    if table.suffix.lower() in JSON_SUFFIXES:
        keys = printable(", ".join(keys_of(sample_objects(table))))
        return f" (keys {keys})" if keys else " (no line is a JSON object)"
    line = printable(read_first_line(table).text)
    return f" (first line {line})" if line else " (no first line in UTF-8)"


def _problem_of(table: Path) -> Sequence[str] | None:
    """Return what is wrong with a file whatever its rows, and the remedy; or None."""
    head, name = read_head(table, HEAD_BYTES), printable(table.name)
    is_long = len(head.partition(b"\n")[0]) > HEADER_BYTES and table.suffix.lower() not in JSON_SUFFIXES
    order = "be" if head.startswith(b"\x00") else "le"
    remedies = (
        (table.is_symlink(), "a symlink", f"copy the file that {name} links to in its place"),
        (not head.strip(), "empty", ""),
        (_is_spreadsheet(table), "a spreadsheet", f"save {name} as CSV, with the file and the text of each sound"),
        (_is_sound_name(table.name), "a sound", "name its folder, or a table of sounds and their texts"),
        (b"\x00" in head, "NUL bytes", f"add --encoding utf-16-{order} if {name} is UTF-16; or save it as UTF-8"),
        (b"\r" in head and b"\n" not in head, "lines that end in CR", f"save {name} with lines that end in LF or CRLF"),
        (is_long, f"a first line of over {HEADER_BYTES} bytes", f"write a first line file,text into {name}"),
    )
    is_wide = wide_encoding(head) and not table.is_symlink()
    return None if is_wide else next((problem for is_so, *problem in remedies if is_so), None)


def _remedy_for(table: Path, sounds: SoundFiles, options: ReadOptions) -> str:
    """Return the option that makes a table readable, or an empty text."""
    problem = _problem_of(table)
    if problem:
        return problem[1]
    if table.suffix.lower() in JSON_SUFFIXES:
        return _remedy_for_json(table, sounds, options)
    head = read_head(table, HEAD_BYTES)
    try:
        line = first_line(head, options.encoding).text
    except UnicodeDecodeError:
        return f"add --encoding {likely_encoding(head, '')} or that of {printable(table.name)}, or save it as UTF-8"
    if delimiter := _unusual_delimiter(line):
        return f"add --delimiter {shown_delimiter(delimiter)}"
    header = _header_of(table, sounds, options)
    sampled = [row for row in sample_fields(table, header, options.encoding) if len(row) > 1]
    if header.delimiter in QUOTED and header.columns[:1] == ("1",) and fields_vary([len(row) for row in sampled]):
        # The text goes to the end of the line.
        whole = TableHeader(header.delimiter, ("1", "2"), header.first_row, takes_rest=True)
        rows = [row for row in sample_fields(table, whole, options.encoding) if len(row) == len(whole.columns)]
        if remedy := _columns_remedy(whole.columns, rows, sounds):
            return remedy
    rows = [row for row in sampled if len(row) == len(header.columns)]
    return _columns_remedy(header.columns, rows, sounds)


def _needless_delimiter(source: Path, readers: Sequence[Layout], options: ReadOptions) -> str:
    """Return the remedy if a reader takes the source without the given delimiter, else an empty text."""
    others = replace(options, delimiter="")
    try:
        is_read = options != others and any(reader.find(source, others) is not None for reader in readers)
    except CorpusError:
        is_read = True  # It is a table; only its columns must be chosen.
    return f"leave out --delimiter {shown_delimiter(options.delimiter)}: it is found" if is_read else ""


def _unusual_delimiter(line: str) -> str:
    """Return what separates known column names in a header, or an empty text."""
    delimiters: list[str] = re.findall(r"[^\w\s,]| {2,}", line)
    for delimiter in dict.fromkeys(delimiters):
        columns = [column.strip().lower() for column in line.split(delimiter)]
        if is_complete(find_columns(columns, {}), columns):
            return delimiter
    return ""


def _unknown_column(tables: Sequence[Path], sounds: SoundFiles, options: ReadOptions) -> str:
    """Return what is wrong with `--columns` if no table has these columns; an empty text if one may have them."""
    problems = []
    for table in tables if options.columns else ():
        is_json = table.suffix.lower() in JSON_SUFFIXES
        line = read_first_line(table, options.encoding).text
        is_unusual = bool(_unusual_delimiter(line).strip(DELIMITERS))
        if _problem_of(table) or not line or (is_unusual and not options.delimiter and not is_json):
            continue
        if is_json:
            columns = [key.lower() for key in keys_of(sample_objects(table, options.encoding))]
        else:
            columns = list(_header_of(table, sounds, options).columns)
        if len(columns) > 1:
            problems.append((table, unknown_column(options.columns, columns, has_positions=not is_json)))
    return f"{problems[0][0]}: {problems[0][1]}" if problems and all(problem for _, problem in problems) else ""


def _remedy_for_json(table: Path, sounds: SoundFiles, options: ReadOptions) -> str:
    objects = sample_objects(table, options.encoding)
    keys = keys_of(objects)
    if not objects:
        return f"write one JSON object a line into {printable(table.name)}, with the sound's file and its text"
    columns = find_columns(keys, options.columns, has_ids=False)
    texts = [key for key in keys if any(isinstance(row.get(key), str) for row in objects)]
    wrong = next((columns[role] for role in REQUIRED if columns.get(role) in set(keys) - set(texts)), None)
    if wrong is not None:
        return f"write {printable(wrong)} as a string; or name another key by --columns, such as text=KEY"
    return _columns_remedy(texts, [[str(row.get(key, "")) for key in texts] for row in objects], sounds)


def _header_of(table: Path, sounds: SoundFiles, options: ReadOptions) -> TableHeader:
    """Return the header of a table, or positions as its columns if the first line holds numbers or names a sound."""
    header = read_header(table, options.delimiter, options.encoding)
    first_row = read_first_line(table, options.encoding).number
    rows = sample_fields(table, TableHeader(header.delimiter, (), first_row), options.encoding)
    names = [name.strip() for name in rows[0]] if rows else []
    if rows and (not header.columns or any(map(_is_sound_name, names)) or any(place_hits(names, sounds))):
        return TableHeader(header.delimiter, tuple(str(place) for place in range(1, len(rows[0]) + 1)), first_row)
    return header


def _columns_remedy(columns: Sequence[str], rows: Sequence[Sequence[str]], sounds: SoundFiles) -> str:
    """Return the option that names the column of the sounds and the longest one of the others; none without a sound."""
    if len(columns) < len(REQUIRED):
        return ""
    places = range(len(columns))
    hits = [sum(place_hits([row[place].strip() for row in rows], sounds)) for place in places]
    if not any(hits) and not columns[0].isdecimal():
        hits = [sum(_is_sound_name(row[place]) for row in rows) for place in places]
    if not any(hits):
        return ""  # Some other text; its words are no columns.
    audio = hits.index(max(hits))
    # A text names no sound, as the path of a recording does.
    others = [place for place in places if place != audio and not any(_is_sound_name(row[place]) for row in rows)]
    lengths = {place: sum(len(row[place].strip()) for row in rows) for place in others}
    text = max(others, key=lengths.__getitem__, default=audio)
    if not lengths.get(text):
        return ""
    chosen = {role: _as_said(columns, place) for role, place in zip(REQUIRED, (audio, text), strict=True)}
    return f"add {ReadOptions(columns=chosen).to_words()}, with the columns that hold the sound and its text"


def _is_sound_name(text: str) -> bool:
    return id_of(text.strip()) != text.strip()


def _as_said(columns: Sequence[str], place: int) -> str:
    """Return a column as `--columns` takes it: by its position if its name cannot be written there."""
    name = columns[place]
    return str(place + 1) if "," in name or printable(name) != name or columns.count(name) > 1 else name


def _folder_above_books(source: Path) -> str:
    """Return the remedy for a part of M-AILABS, whose layout begins above `by_book`; else an empty text."""
    above = next((folder.parent.name for folder in (source, *source.parents) if folder.name == "by_book"), "")
    return f"pass the folder {printable(above)}/, which holds by_book/" if above else ""


def _renaming(source: Path, readers: Sequence[Layout]) -> str:
    """Return a remedy if a part of a layout is there, and another has only the wrong suffix or case."""
    names = [path.name for path in source.iterdir()] if source.is_dir() else []
    for reader in readers:
        missing = [group for group in reader.parts if not _matches(group, names)]
        if len(missing) < len(reader.parts):
            for wanted, name in itertools.product(itertools.chain(*missing), names):
                if Path(wanted).stem == Path(name).stem.lower():
                    return f"for {reader.name} rename {printable(name)} to {wanted}"
    return ""


def _matches(group: Sequence[str], names: Sequence[str]) -> bool:
    return any(fnmatch.fnmatch(name, pattern) for pattern in group for name in names)
