"""Check each row of a corpus, and keep it as an Utterance or reject it with a reason.

A row is never cut, guessed or dropped, and a bad row raises no exception.
"""

import codecs
import gzip
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from xtts_pipeline.config.languages import canonical_language
from xtts_pipeline.corpus.encodings import wide_encoding
from xtts_pipeline.corpus.options import AUTO, ReadOptions
from xtts_pipeline.corpus.sounds import MAX_HINTS, MAX_ID_BYTES, SoundFiles, normal, path_problem
from xtts_pipeline.corpus.utterance import Corpus, Rejection, Utterance
from xtts_pipeline.errors import CorpusError, Reason, RowError
from xtts_pipeline.system.regular_files import identity_of, open_regular_file
from xtts_pipeline.system.terminal import MAX_SHOWN, UNSAFE_CHARACTERS, has_surrogate, printable, without_unsafe

DEFAULT_SPEAKER = "default"
MAX_TEXT_CHARACTERS = 65_536  # over an hour of speech; normalising more would block a worker
MAX_ROW_BYTES = 1 << 20
# A file that is no table may hold millions of rows, and each rejected one takes memory.
MAX_USELESS_ROWS = 100_000
USELESS_RATIO = 50
MAX_BLANK_LINES = 1_000_000
MAX_WIDE_BYTES = 1 << 30  # of a table in UTF-16, which is decoded as a whole
SPLIT_NAMES = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "dev": "val",
    "eval": "val",
    "test": "test",
}


class CorpusRow(NamedTuple):
    """One row as read. `audio` is what `add` finds the sound by, without a suffix if the layout gives none."""

    where: str
    id: str
    audio: str
    text: str
    speaker: str = DEFAULT_SPEAKER
    language: str = ""
    split: str = ""


@dataclass
class RowCollector:
    """Collects the rows of one corpus: each `add` or `reject` makes exactly one Utterance or Rejection, in order.

    `sound_root` is the folder of the sounds if they do not lie below the root. A reader writes sounds that lie within
    tables into `sound_folder` if it is given, and sets `found` to what it found out about the corpus where
    that is not what the layout says.
    """

    root: Path
    layout: str
    language: str
    options: ReadOptions = AUTO
    sound_root: Path | None = None
    sound_folder: Path | None = None
    found: ReadOptions = AUTO
    utterances: list[Utterance] = field(default_factory=list)
    rejections: list[Rejection] = field(default_factory=list)
    text_files: list[tuple[Path, tuple[int, int] | None]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.sounds = SoundFiles(self.sound_root or self.root)
        self._kept_at: dict[str, str] = {}
        self._unknown_languages: dict[str, str] = {}

    def add(self, row: CorpusRow, find: Callable[[str], str] | None = None) -> None:
        """Keep the row if its id, path, text and sound file are valid; else reject it.

        `find` returns the path of `row.audio` below the root, or raises RowError; by default it is that path.
        """
        try:
            utterance = self._checked(row, find or self.sounds.find)
        except RowError as refused:
            self.reject(row.where, refused.reason, refused.detail, row.id)
        else:
            self._kept_at[utterance.id] = utterance.where
            self.utterances.append(utterance)

    def reject(self, where: str, reason: Reason, detail: str, row_id: str = "") -> None:
        """Reject a row. The texts may be raw, such as file names that are not UTF-8: they are made printable here."""
        rejection = Rejection(printable(row_id), without_unsafe(where), reason, without_unsafe(detail))
        self.rejections.append(rejection)
        rejected, kept = len(self.rejections), len(self.utterances)
        if rejected > MAX_USELESS_ROWS and rejected > USELESS_RATIO * kept:
            raise CorpusError(
                f"{self.root}: {rejected} of {rejected + kept} rows are rejected, the last at {rejection.where} "
                f"({rejection.detail}); expected a corpus of which one row in {USELESS_RATIO} can be used"
            )

    def note(self, line: str) -> None:
        """Keep a line for the user, once."""
        if line not in self.notes:
            self.notes.append(line)

    def keep_reading(self, readings: Sequence[ReadOptions]) -> None:
        """Keep what was found out about the tables, if it is the same for all."""
        if all(reading == readings[0] for reading in readings):
            self.found = readings[0]

    def to_corpus(self) -> Corpus:
        """Return the rows collected so far."""
        return Corpus(
            self.found.with_layout(self.layout),
            self.sounds.root,
            tuple(self.utterances),
            tuple(self.rejections),
            tuple(self.text_files),
            tuple(self.notes),
        )

    def _checked(self, row: CorpusRow, find: Callable[[str], str]) -> Utterance:
        row_id = row.id.strip()
        _check_path(row_id, "id", "id")
        if row_id in self._kept_at:
            detail = f"id {printable(row_id)} was already read at {self._kept_at[row_id]}; ids must differ"
            raise RowError(Reason.DUPLICATE_ID, detail)
        _check_path(row.audio, "sound file", "path of the sound file")
        if len(row.text) > MAX_TEXT_CHARACTERS:
            detail = f"the text has {len(row.text)} characters; expected at most {MAX_TEXT_CHARACTERS}: split the clip"
            raise RowError(Reason.TEXT_TOO_LONG, detail)
        text = row.text.strip()
        if "\x00" in text or has_surrogate(text):
            detail = "the text holds a NUL byte or half a surrogate pair; expected plain Unicode"
            raise RowError(Reason.BAD_ROW, detail)
        if not text:
            raise RowError(Reason.EMPTY_TEXT, "the text is empty")
        # Else the speaker of a Mac's folder would be another one than that of a table.
        speaker = normal(row.speaker.strip()) or DEFAULT_SPEAKER
        if UNSAFE_CHARACTERS.search(speaker) or len(speaker.encode()) > MAX_ID_BYTES:
            detail = f"speaker {printable(speaker)} holds control characters or is over {MAX_ID_BYTES} bytes"
            raise RowError(Reason.BAD_ROW, detail)
        language = self._language(row.language) if row.language.strip() else self.language
        split = row.split.strip().lower()
        if split and split not in SPLIT_NAMES:
            raise RowError(Reason.BAD_ROW, f"split {printable(split)}; expected one of {', '.join(SPLIT_NAMES)}")
        audio = find(row.audio)
        where = without_unsafe(row.where)
        return Utterance(row_id, Path(audio), text, speaker, language, SPLIT_NAMES.get(split), where)

    def _language(self, written: str) -> str:
        """Return the code of a row's language. Raises RowError for an unknown one, with a hint for the first few."""
        problem = self._unknown_languages.get(written)
        if problem is None:
            try:
                return canonical_language(written, with_hint=len(self._unknown_languages) < MAX_HINTS)
            except ValueError as error:
                problem = str(error)
            if len(self._unknown_languages) < MAX_HINTS:
                self._unknown_languages[written] = problem
        raise RowError(Reason.BAD_ROW, problem)


def read_lines(
    path: Path, root: Path, rows: RowCollector, first: int = 1, *, is_delimited: bool = True
) -> Iterator[tuple[str, str]]:
    """Yield `file:line` and text of each line from `first` on that is not blank.

    Lines of another encoding than the corpus's, or with NUL bytes, are rejected. So are delimited rows with a line
    separator other than a newline (lone CR, VT, FF, NEL, U+2028): two rows may be in one. Raises CorpusError if the
    file cannot be read.
    """
    shown = PurePosixPath(path.relative_to(root)).as_posix()
    if path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root)):
        raise CorpusError(f"{path}: a symlink out of the corpus; copy the file in, or pass the folder that holds it")
    blank, encoding = 0, rows.options.encoding
    if not encoding or wide_encoding(b"", encoding):
        encoding = "utf-8"  # `_raw_lines` returns wide encodings as UTF-8
    for number, raw in enumerate(_raw_lines(path, rows), start=1):
        if number < first or not raw.strip():
            blank += 1
            if blank > MAX_BLANK_LINES:
                raise CorpusError(f"{path}: over {MAX_BLANK_LINES} blank lines; expected a metadata file")
            continue
        where = f"{shown}:{number}"
        if b"\x00" in raw or len(raw) > MAX_ROW_BYTES:
            is_wide = b"\x00" in raw
            found = "holds NUL bytes" if is_wide else f"has over {MAX_ROW_BYTES} bytes"
            remedy = "; if the file is UTF-16, add --encoding utf-16-le or utf-16-be" if is_wide else ""
            shown_id = raw[:MAX_SHOWN].decode("utf-8", "replace")
            rows.reject(where, Reason.BAD_ROW, f"the row {found}; expected one clip in UTF-8 text{remedy}", shown_id)
            continue
        try:
            line = raw.decode(encoding).rstrip("\r")
        except UnicodeDecodeError as error:
            found = f"byte {error.start} of the row, 0x{raw[error.start]:02x}, is not {encoding.upper()}"
            detail = f"{found}; save the file as UTF-8, or give its --encoding"
            rows.reject(where, Reason.BAD_ROW, detail, raw[:MAX_SHOWN].decode("utf-8", "replace").split("|")[0])
            continue
        beginning, *others = line.splitlines()
        if others and is_delimited:
            found = f"U+{ord(line[len(beginning)]):04X} at character {len(beginning)} separates lines"
            rows.reject(where, Reason.BAD_ROW, f"{found}; end each row with a newline", beginning.split("|")[0])
        else:
            yield where, line


def _raw_lines(path: Path, rows: RowCollector) -> Iterator[bytes]:
    """Yield each line without its newline; of a longer one, the first MAX_ROW_BYTES + 1 bytes. Raises CorpusError."""
    try:
        with open_regular_file(path) as opened:
            rows.text_files.append((path, identity_of(opened.fileno())))
            file = gzip.GzipFile(fileobj=opened) if path.suffix.lower() == ".gz" else opened
            start = file.read(len(codecs.BOM_UTF8))
            file.seek(len(start) if start == codecs.BOM_UTF8 else 0)
            if wide := wide_encoding(start, rows.options.encoding):
                content = file.read(MAX_WIDE_BYTES + 1)
                if len(content) > MAX_WIDE_BYTES:
                    raise CorpusError(f"{path}: over {MAX_WIDE_BYTES} bytes of {wide}; save it as UTF-8")
                text = content.decode(wide, "replace").removeprefix("\ufeff")
                yield from (line.encode("utf-8", "replace") for line in text.removesuffix("\n").split("\n"))
                return
            while raw := file.readline(MAX_ROW_BYTES + 1):
                rest = raw
                while rest and not rest.endswith(b"\n"):
                    rest = file.readline(MAX_ROW_BYTES)
                yield raw.removesuffix(b"\n")
    except (OSError, EOFError, zlib.error) as error:
        problem = getattr(error, "strerror", None) or error
        raise CorpusError(f"{path}: cannot be read ({problem}); expected a metadata file") from None


def _check_path(path: str, kind: str, name: str) -> None:
    """Raise RowError if a path or id is empty or unsafe."""
    if not path:
        raise RowError(Reason.BAD_ROW, f"the {name} is empty")
    problem = path_problem(path)
    if problem:
        raise RowError(Reason.UNSAFE_ID, f"{kind} {printable(path)} {problem}")
