"""Read corpora whose rows stand in tables: with a header or without one, or as JSON lines.

A layout is an entry of TABLE_LAYOUTS. All are read by the same code.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

from xtts_pipeline.corpus.columns import (
    NO_SPEAKERS,
    REQUIRED,
    ROLES,
    by_position,
    column_key,
    find_columns,
    is_complete,
    unknown_column,
)
from xtts_pipeline.corpus.encodings import require_encoding
from xtts_pipeline.corpus.json_lines import JSON_SUFFIXES, keys_of, read_json_lines, sample_objects
from xtts_pipeline.corpus.layouts.layout import FoundCorpus
from xtts_pipeline.corpus.layouts.text_column import MAX_COLUMN_NAME, is_no_text, text_column
from xtts_pipeline.corpus.options import ReadOptions
from xtts_pipeline.corpus.placement import Placement, place_hits, place_names
from xtts_pipeline.corpus.rows import SPLIT_NAMES, CorpusRow, RowCollector
from xtts_pipeline.corpus.sounds import SoundFiles, id_of
from xtts_pipeline.corpus.tables import (
    DELIMITERS,
    NUMBER,
    QUOTED,
    SUFFIXES,
    TableHeader,
    by_split,
    fields_vary,
    read_first_line,
    read_header,
    read_table,
    sample_fields,
    split_in_name,
)
from xtts_pipeline.corpus.unused_columns import UnusedColumns
from xtts_pipeline.errors import CorpusError
from xtts_pipeline.system.terminal import printable

MAX_COLUMN_WORDS = 3
_LANGUAGE_FOLDER = re.compile(r"[a-z]{2}_[A-Z]{2}")


@dataclass(frozen=True)
class TablePlan:
    """How one table is read: role -> column, and the header, which JSON lines have not."""

    path: Path
    columns: Mapping[str, str]
    header: TableHeader | None

    def sample(self, encoding: str) -> list[str]:
        """Return the names of sounds in the first rows."""
        column = self.columns["audio"]
        if self.header is None:
            objects = sample_objects(self.path, encoding)
            return [name.strip() for row in objects if isinstance(name := row.get(column), str)]
        place = self.header.columns.index(column)
        sampled = sample_fields(self.path, self.header, encoding)
        return [fields[place].strip() for fields in sampled if len(fields) > place]


@dataclass(frozen=True)
class TableLayout:
    """A layout with tables. Without `tables` the folder's are tried; of several groups, the first that fits is taken.

    `columns` are the columns that the header must have, `no_header` those of tables without header, of which rows may
    lack the last; without either, known names are looked for. Beside a table lies one of `folders`, with the sounds.
    `infer` returns speaker and language by the path of the table's folder and the id.
    """

    name: str
    looked_for: str
    parts: Sequence[Sequence[str]]
    tables: Sequence[Sequence[str]] = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    no_header: TableHeader | None = None
    folders: Sequence[str] = ()
    infer: Callable[[str, str], tuple[str, str]] | None = None
    keeps_ids: bool = False

    def find(self, source: Path, options: ReadOptions) -> FoundCorpus | None:
        """Return the folder with the tables that fit; `source` may be one of them."""
        if source.is_file():
            names = [PurePosixPath(pattern).name for group in self.tables for pattern in group]
            is_one = not names or any(fnmatch(source.name, name) for name in names)
            is_one = is_one and self._fits(source, options, SoundFiles(source.parent))
            return FoundCorpus(source.parent, (source,)) if is_one else None
        for group in self.tables:
            tables = [table for pattern in group for table in sorted(source.glob(pattern))]
            if tables := [table for table in tables if self._fits(table, options, None)]:
                return FoundCorpus(source, tables)
        if self.tables or not source.is_dir():
            return None
        folders = [source]
        if not self.columns:  # Hugging Face's folders of splits
            folders += sorted(path for path in source.iterdir() if path.name in SPLIT_NAMES and path.is_dir())
        for group_folders in (folders[:1], folders[1:]):
            tables = [table for folder in group_folders for table in self._tables_in(folder, options)]
            if tables:
                return FoundCorpus(source, tables)
        return None

    def read(self, found: FoundCorpus, rows: RowCollector) -> None:
        """Add each row of each table."""
        rows.keep_reading([self._read(table, rows) for table in found.tables])

    def _tables_in(self, folder: Path, options: ReadOptions) -> list[Path]:
        sounds = SoundFiles(folder)  # one for all: each text beside a sound is tried as a table
        files = [path for path in sorted(folder.iterdir()) if not path.is_symlink() and path.is_file()]
        tables = [path for path in files if path.suffix.lower() in SUFFIXES and self.has_columns(path, options)]
        if self.columns:
            return by_split(tables)
        lines = [path for path in files if path.suffix.lower() in JSON_SUFFIXES and self._fits(path, options, sounds)]
        if tables or lines:
            return by_split(tables) + by_split(lines)
        tables = [path for path in files if path.suffix.lower() in SUFFIXES and self._fits(path, options, sounds)]
        return by_split(tables)

    def _fits(self, table: Path, options: ReadOptions, sounds: SoundFiles | None) -> bool:
        if not table.is_file() or (self.folders and self._sound_folder(table) is None):
            return False
        if self.no_header is not None:
            # Tables of other layouts may have the same name, and lie beside such a folder.
            if options.layout == "auto" and not _has_such_rows(table, options, self.no_header):
                return False
            return not any(layout.has_columns(table, options) for layout in TABLE_LAYOUTS if layout.no_header is None)
        return self._plan(table, options, sounds) is not None

    def has_columns(self, table: Path, options: ReadOptions) -> bool:
        """Return whether a table's header has the columns of this layout."""
        return table.suffix.lower() not in JSON_SUFFIXES and self._plan(table, options, None) is not None

    def _sound_folder(self, table: Path) -> str | None:
        return next((folder for folder in self.folders if (table.parent / folder).is_dir()), None)

    def _plan(self, table: Path, options: ReadOptions, sounds: SoundFiles | None) -> TablePlan | None:
        """Return how the table is read, or None; without `sounds`, tables without a header are left out."""
        if table.suffix.lower() in JSON_SUFFIXES:
            return None if self.columns or self.no_header else _plan_json(table, options)
        if self.no_header is not None:
            return _plan_without_header(table, options, self.no_header)
        header = read_header(table, options.delimiter, options.encoding)
        if self.columns:
            columns = {role: column for role, column in self.columns.items() if column in header.columns}
            if options.layout == "auto" and not is_complete(columns, header.columns):
                return None  # Given columns would make any table one of this layout, with its roles alone.
            # With others, such as a language, but for ids, which are the names of the files.
            found = find_columns(header.columns, columns).items()
            columns = {**{role: name for role, name in found if role != "id"}, **options.columns}
        else:
            columns = find_columns(header.columns, options.columns)
        if is_complete(columns, header.columns):
            return TablePlan(table, columns, header)
        return None if self.columns or sounds is None else _guess_by_content(table, options, sounds)

    def _read(self, table: Path, rows: RowCollector) -> ReadOptions:
        """Add the rows of a table; return what was found out about it."""
        options = rows.options
        place = table.parent.relative_to(rows.root).as_posix()
        place = "" if place == "." else place
        base = place if rows.sound_root is None else ""  # where its sounds are looked for
        require_encoding(table, options.encoding, rows.language)
        plan = self._plan(table, options, rows.sounds)
        if plan is None:
            raise CorpusError(f"{table}: changed while it was read, expected the same columns; run again")
        folder = "/".join(filter(None, (base, self._sound_folder(table))))
        placement = _placement(plan, rows, base, folder)
        is_usual = placement == Placement(rows.sounds, base, folder)
        self._add_rows(plan, placement, rows, place, is_usual=is_usual)
        if self.columns or self.no_header:
            columns = dict(options.columns)
        else:
            is_plain = all(role == column for role, column in plan.columns.items())
            columns = {} if is_plain else dict(plan.columns)
        elsewhere = ""
        is_one_folder = not (placement.is_guess and (placement.strays or self.keeps_ids))
        if is_one_folder and placement.folder != folder:
            elsewhere = placement.folder.removeprefix(f"{base}/") if placement.folder != base else "."
        return replace(options, columns=columns, audio_dir=options.audio_dir or elsewhere)

    def _add_rows(
        self, plan: TablePlan, placement: Placement, rows: RowCollector, place: str, *, is_usual: bool
    ) -> None:
        columns = plan.columns
        audio_column, text_column, id_column = columns["audio"], columns["text"], columns.get("id", "")
        speaker_column, language_column = columns.get("speaker", ""), columns.get("language", "")
        split_column, folder_name = columns.get("split", ""), place.rpartition("/")[2]
        table_split = split_in_name(plan.path) or (folder_name if folder_name in SPLIT_NAMES else "")
        prefix = f"{place}/" if place and not self.keeps_ids else ""
        unused = UnusedColumns(() if self.columns or self.infer else _unused_columns(plan, rows.options.encoding))
        for where, fields in _rows_of(plan, rows):
            unused.add(fields)
            name = placement.name_of(fields[audio_column].strip())
            if id_column == audio_column:
                row_id = name if is_usual else id_of(name)
            else:
                row_id = fields.get(id_column, "").strip() or id_of(name)
            speaker, language = fields.get(speaker_column, ""), fields.get(language_column, "")
            if self.infer is not None:
                speaker, language = self.infer(f"{rows.root.name}/{place}", row_id)
            split = fields.get(split_column, "").strip() or table_split
            row_id = prefix + row_id if row_id else ""
            rows.add(CorpusRow(where, row_id, name, fields[text_column], speaker, language, split), placement.find)
        if column := unused.likely_speaker():
            if self.no_header is not None and plan.header is not None:
                column = str(plan.header.columns.index(column) + 1)  # its name is not in the table
            said = ReadOptions(columns={**rows.options.columns, "speaker": printable(column)}).to_words()
            rows.note(f"column {printable(column)} is not used; add {said} if it names the speakers")


def _unused_columns(plan: TablePlan, encoding: str) -> list[str]:
    """Return the columns that have no role; none if one is the speaker."""
    if "speaker" in plan.columns:
        return []
    columns: Sequence[str]
    if plan.header is None:
        columns, has_names = keys_of(sample_objects(plan.path, encoding)), True
    else:
        columns = plan.header.columns
        has_names = not (all(map(str.isdecimal, columns)) or plan.header.least_fields)
    used = {*plan.columns.values(), ""}
    return [
        column for column in columns if column not in used and not (has_names and column_key(column) in NO_SPEAKERS)
    ]


def _rows_of(plan: TablePlan, rows: RowCollector) -> Iterator[tuple[str, dict[str, str]]]:
    if plan.header is None:
        return read_json_lines(plan.path, rows, plan.columns)
    return read_table(plan.path, rows, plan.header)


def _placement(plan: TablePlan, rows: RowCollector, base: str, folder: str) -> Placement:
    """Return where the sounds of a table lie: in `--audio-dir`, else in `folder`, else where most names are found."""
    options, names = rows.options, plan.sample(rows.options.encoding)
    if rows.sound_root is not None or not options.audio_dir:
        return place_names(names, rows.sounds, base, folder)
    below = PurePosixPath(base, options.audio_dir).as_posix()
    inside = below if (rows.root / below).is_dir() else PurePosixPath(options.audio_dir).as_posix()
    return place_names(names, rows.sounds, base, "" if inside == "." else inside, is_fixed=True)


def _plan_json(path: Path, options: ReadOptions) -> TablePlan | None:
    objects = sample_objects(path, options.encoding)
    keys = keys_of(objects)
    columns = find_columns(keys, options.columns, has_ids=False)
    is_text = is_complete(columns, keys) and any(
        all(isinstance(row.get(columns[role]), str) for role in REQUIRED) for row in objects
    )
    if not is_text and path.suffix.lower() != ".json" and path.stem == "manifest":
        # Each of its rows is rejected with the reason.
        return TablePlan(path, {role: role for role in ROLES}, None)
    return TablePlan(path, columns, None) if is_text else None


def _has_such_rows(table: Path, options: ReadOptions, no_header: TableHeader) -> bool:
    """Return whether the delimiter is in the first row, and most rows have no more fields than the layout."""
    first, delimiter = read_first_line(table, options.encoding), options.delimiter or no_header.delimiter
    if first.text and delimiter not in first.text:
        return False
    header = replace(no_header, delimiter=delimiter, first_row=first.number)
    rows = [] if delimiter in QUOTED else sample_fields(table, header, options.encoding)
    return 2 * sum(len(fields) > len(header.columns) for fields in rows) <= len(rows)


def _plan_without_header(table: Path, options: ReadOptions, no_header: TableHeader) -> TablePlan:
    first_row = read_first_line(table, options.encoding).number
    header = replace(no_header, delimiter=options.delimiter or no_header.delimiter, first_row=first_row)
    sampled = sample_fields(table, header, options.encoding)
    if header.delimiter in QUOTED and len(set(map(len, sampled))) > 1:
        header = replace(header, columns=header.columns[:2], takes_rest=True)  # texts with commas
    rows = [fields for fields in sampled if len(fields) == len(header.columns)]
    text = header.columns[-1]
    if len(header.columns) > 2 and rows and is_no_text(*zip(*(fields[-2:] for fields in rows), strict=True)):
        text = header.columns[-2]
    if problem := unknown_column(options.columns, header.columns):
        raise CorpusError(f"{table}: {problem}")
    given = by_position(options.columns, header.columns)
    return TablePlan(table, {"id": header.columns[0], "audio": header.columns[0], "text": text, **given}, header)


def _guess_by_content(table: Path, options: ReadOptions, sounds: SoundFiles) -> TablePlan | None:
    """Return how a table without known column names is read: one column names sounds that exist, another one is text.

    The first line is a header if it names no sound and looks like no name of one. Raises LayoutError if several columns
    may be the text.
    """
    first = read_first_line(table, options.encoding)
    said = options.delimiter or first.delimiter
    for delimiter in [said] if said else DELIMITERS:
        rows = sample_fields(table, TableHeader(delimiter, (), first.number), options.encoding)
        counts = [len(fields) for fields in rows]
        said_width = _said_width(options.columns, delimiter, counts)
        width = said_width or max(counts, key=counts.count, default=0)
        if said_width:
            whole = TableHeader(delimiter, ("",) * width, first.number, takes_rest=True)
            rows = sample_fields(table, whole, options.encoding)
        rows = [[field.strip() for field in fields] for fields in rows if len(fields) == width]
        is_given = bool(said_width) or all(role in options.columns for role in REQUIRED)
        if width < 2 or not rows or (2 * len(rows) <= len(counts) and not is_given):
            continue
        columns = list(zip(*rows, strict=True))
        hits = [place_hits(column, sounds) for column in columns]
        audio = max(range(width), key=lambda place: sum(hits[place]))
        if 2 * sum(hits[audio]) <= len(rows):
            continue
        is_headed = len(rows) > 1 and not hits[audio][0] and _is_header(rows[0], audio, columns[audio][1:])
        # Where sounds are missing, that of the first row may be missing too: in doubt it is a row, whose loss shows.
        is_headed &= all(hits[audio][1:]) or not any(map(_is_sentence, rows[0]))
        header_names = rows[0] if is_headed else [""] * width
        names = [name.lower() or str(place) for place, name in enumerate(header_names, 1)]
        given = by_position(options.columns, names)
        if not set(given.values()) <= set(names):
            continue
        found = {"audio": names[audio], **given}
        if "text" not in found:
            others = {
                name: column[is_headed:]
                for name, column, named in zip(names, columns, hits, strict=True)
                if name not in found.values() and 2 * sum(named) <= len(rows)
            }
            text = text_column(table, others)
            if text is None:
                continue
            found = {"audio": names[audio], "text": text, **given}
        takes_rest = not is_headed and found["text"] == names[-1]
        header = TableHeader(delimiter, tuple(names), first.number + is_headed, takes_rest=takes_rest)
        return TablePlan(table, found, header)
    return None


def _said_width(given: Mapping[str, str], delimiter: str, counts: Sequence[int]) -> int:
    """Return the number of columns if `given` says by position that the text is the last, else 0.

    A tenth of the rows has no delimiter in its text, or the rows differ; else there are further columns.
    """
    if delimiter not in QUOTED or not all(map(str.isdecimal, given.values())):
        return 0
    last = max((int(column) for column in given.values()), default=0)
    is_last = 10 * counts.count(last) >= len(counts) or fields_vary(counts)
    return last if given.get("text") == str(last) and is_last else 0


def _is_header(fields: Sequence[str], audio: int, names: Sequence[str]) -> bool:
    """Return whether the fields may be column names. `names` are those of the sounds below, some of them missing."""
    is_short = all(len(name) <= MAX_COLUMN_NAME for name in fields)
    is_data = id_of(fields[audio]) != fields[audio] or all(map(NUMBER.fullmatch, fields))
    # Rows differ in their numbers: LJ001-0001 and LJ001-0002. The first row may be the one without its sound.
    is_numbered = _without_numbers(fields[audio]) in map(_without_numbers, names)
    return is_short and len(set(fields)) == len(fields) and not is_data and not is_numbered


def _is_sentence(field: str) -> bool:
    return len(field.split()) > MAX_COLUMN_WORDS or field.endswith((".", "?", "!", "\u2026"))


def _without_numbers(name: str) -> str:
    return re.sub(r"\d+", "0", name)


def _book_of(base: str, _row_id: str) -> tuple[str, str]:
    """Return speaker and language of a book of M-AILABS: LANGUAGE/by_book/GENDER/SPEAKER/BOOK, or by_book/mix/BOOK."""
    parts = base.split("/")
    behind = parts[parts.index("by_book") + 1 :] if "by_book" in parts else [""]
    language = next((part for part in parts if _LANGUAGE_FOLDER.fullmatch(part)), "")
    return behind[1] if len(behind) > 2 else behind[0], language


_LJSPEECH = TableHeader("|", ("id", "text", "normalized_text"), first_row=1, least_fields=2)
_MLS = TableHeader("\t", ("id", "text"), first_row=1)
_MLS_SPLITS = ("train", "dev", "test")
_COMMON_VOICE = ("train.tsv", "dev.tsv", "test.tsv")
_BOOKS = ("by_book/*/*", "by_book/*/*/*", "*_*/by_book/*/*", "*_*/by_book/*/*/*")
# In the order of detection.
TABLE_LAYOUTS = (
    TableLayout(
        "common_voice",
        f"{', '.join(_COMMON_VOICE)} or validated.tsv (path, sentence, client_id, locale) beside clips/",
        ((*_COMMON_VOICE, "validated.tsv"), ("clips",)),
        (_COMMON_VOICE, ("validated.tsv",)),
        {"audio": "path", "text": "sentence", "speaker": "client_id", "language": "locale"},
        folders=("clips",),
    ),
    TableLayout(
        "ljspeech",
        "metadata.csv (id|text or id|text|normalised text) beside wavs/ or wav/",
        (("metadata.csv",), ("wavs", "wav")),
        (("metadata.csv",),),
        no_header=_LJSPEECH,
        folders=("wavs", "wav"),
    ),
    TableLayout(
        "mls",
        "train/, dev/ or test/ with transcripts.txt (id and text) beside audio/SPEAKER/BOOK/",
        ((*_MLS_SPLITS, "transcripts.txt"),),
        (tuple(f"{split}/transcripts.txt" for split in _MLS_SPLITS), ("transcripts.txt",)),
        no_header=_MLS,
        folders=("audio",),
        infer=lambda _base, row_id: (row_id.partition("_")[0], ""),
        keeps_ids=True,
    ),
    TableLayout(
        "m_ailabs",
        "by_book/GENDER/SPEAKER/BOOK/metadata.csv (id|text|normalised text) beside wavs/",
        (("by_book", "*_*"),),
        (tuple(f"{place}/metadata.csv" for place in _BOOKS),),
        no_header=_LJSPEECH,
        folders=("wavs",),
        infer=_book_of,
    ),
    TableLayout(
        "coqui",
        "a table with the header audio_file|text|speaker_name",
        (("metadata*.csv",),),
        columns={"audio": "audio_file", "text": "text", "speaker": "speaker_name"},
    ),
    TableLayout(
        "manifest",
        "a table with a header, or JSON lines, with audio and text (optional: id, speaker, language, split)",
        (("manifest.csv", "manifest.tsv", "manifest.jsonl", "*.jsonl"),),
    ),
)  # fmt: skip
