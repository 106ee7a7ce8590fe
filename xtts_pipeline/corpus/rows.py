"""Check each row of a corpus, and keep it as an Utterance or reject it with a reason.

A row is never cut, guessed or dropped, and a bad row raises no exception. Sound files are looked up in folder listings,
each read once, because one system call per row would take longer than the rest of the reading.
"""

import codecs
import errno
import itertools
import os
import re
import unicodedata
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from xtts_pipeline.config.languages import canonical_language
from xtts_pipeline.corpus.encodings import wide_encoding
from xtts_pipeline.corpus.options import AUTO, ReadOptions
from xtts_pipeline.corpus.utterance import Corpus, Rejection, Utterance
from xtts_pipeline.errors import MACHINE_ERRORS, CorpusError, Reason, RowError, nearest_name
from xtts_pipeline.system.regular_files import identity_of, open_regular_file
from xtts_pipeline.system.terminal import UNSAFE_CHARACTERS, has_surrogate

# A Mac writes such a file, which is no sound and no text, beside each file on another file system.
APPLE_DOUBLE = "._"
SOUND_SUFFIXES = (".wav", ".flac", ".ogg", ".opus", ".mp3", ".wave", ".oga")
# Sounds of these formats are not read. They are found, so that the decoder can say what to do.
UNREAD_SUFFIXES = (".m4a", ".mp4", ".aac", ".aif", ".aiff", ".aifc", ".wma", ".webm", ".amr", ".3gp", ".caf", ".au")
DEFAULT_SPEAKER = "default"
MAX_ID_BYTES = 255  # the limit of file systems for one name
MAX_PATH_BYTES = 1_024  # of a whole id or path; systems allow 4,096 with the folder in front of it
MAX_TEXT_CHARACTERS = 65_536  # over an hour of speech; normalising more would block a worker
MAX_ROW_BYTES = 1 << 20
MAX_SHOWN = 80
# A file that is no table may hold millions of rows, and each rejected one takes memory.
MAX_USELESS_ROWS = 100_000
USELESS_RATIO = 50
MAX_BLANK_LINES = 1_000_000
HINT_NAMES = 2_000  # finding the nearest of more names takes too long
MAX_HINTS = 20
MAX_SOUNDS = 2_000_000  # of which the stems are kept
MAX_WIDE_BYTES = 1 << 30  # of a table in UTF-16, which is decoded as a whole
SPLIT_NAMES = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "dev": "val",
    "test": "test",
}
# Nearly all paths match this, which proves them safe in one step.
_PLAIN_PATH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(?:/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")


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
        rejection = Rejection(printable(row_id), _without_unsafe(where), reason, _without_unsafe(detail))
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
        speaker = _normal(row.speaker.strip()) or DEFAULT_SPEAKER
        if UNSAFE_CHARACTERS.search(speaker) or len(speaker.encode()) > MAX_ID_BYTES:
            detail = f"speaker {printable(speaker)} holds control characters or is over {MAX_ID_BYTES} bytes"
            raise RowError(Reason.BAD_ROW, detail)
        language = self._language(row.language) if row.language.strip() else self.language
        split = row.split.strip().lower()
        if split and split not in SPLIT_NAMES:
            raise RowError(Reason.BAD_ROW, f"split {printable(split)}; expected one of {', '.join(SPLIT_NAMES)}")
        audio = find(row.audio)
        order = len(self.utterances) + len(self.rejections)
        where = _without_unsafe(row.where)
        return Utterance(row_id, Path(audio), text, speaker, language, SPLIT_NAMES.get(split), where, order)

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


class SoundFiles:
    """The sound files under a corpus root, from folder listings that are read on first use."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._real_root = Path(os.path.realpath(root))
        self._listings: dict[str, dict[str, bool]] = {}
        self._stems: dict[str, dict[str, list[str]]] = {}
        self._hints_left = MAX_HINTS

    def find(self, audio: str) -> str:
        """Return the path of the file, relative to the root; a name without a sound suffix gets the first that exists.

        Any file that has exactly this name is taken if there is no sound.

        Raises RowError if there is no such file, if a symlink leads out of the root, or if its folder cannot be
        listed. Raises CorpusError if the machine is at fault.
        """
        folder, _, name = audio.rpartition("/")
        listing = self._listing(folder)
        file = _sound_in(listing, name)
        if file is None and name in listing and os.path.isfile(self.root / audio):  # noqa: PTH113 -- never raises
            file = name
        if file is None:
            raise RowError(Reason.AUDIO_MISSING, self._missing(audio, name, listing))
        found = f"{folder}/{file}" if folder else file
        if listing[file] and not self._is_inside(found):
            detail = f"{printable(found)} is a symlink out of the corpus; copy the file in"
            raise RowError(Reason.UNSAFE_ID, detail)
        return found

    def has(self, audio: str) -> bool:
        """Return whether there is such a file, for a name that may be anything."""
        if _path_problem(audio) is not None:
            return False
        folder, _, name = audio.rpartition("/")
        try:
            return bool(name) and _sound_in(self._listing(folder), name) is not None
        except RowError:
            return False

    def ending_with(self, name: str, folder: str) -> list[str]:
        """Return the sounds below a folder that share most last parts of their paths with a name, one of each stem.

        Suffixes may differ. Links are not followed. A sound that is not read is left out beside one that is.
        """
        found: dict[str, str] = {}
        most = 1
        stem, _, suffix = _normal(name).rpartition("/")[2], "", PurePosixPath(name).suffix
        for path in self._paths_by_stem(folder).get(id_of(stem), ()):
            shared = self.shared_parts(name, path)
            if shared > most:
                found, most = {}, shared
            if shared == most and (id_of(path) not in found or path.endswith(suffix)):
                found[id_of(path)] = path
        return [path for path in found.values() if path.lower().endswith(SOUND_SUFFIXES)] or list(found.values())

    @staticmethod
    def shared_parts(name: str, path: str) -> int:
        """Return how many last parts of two paths are the same, whatever their suffixes and Unicode forms."""
        pairs = zip(*(reversed(id_of(_normal(one)).split("/")) for one in (name, path)), strict=False)
        return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))

    def _paths_by_stem(self, folder: str) -> dict[str, list[str]]:
        """Return the paths of the sounds below a folder by their stems, sorted."""
        if folder not in self._stems:
            paths: list[str] = []
            for place, folders, names in os.walk(self.root / folder):
                folders.sort()
                below = os.path.relpath(place, self.root)
                sounds = sounds_among(names)
                paths += [name if below == "." else f"{below}/{name}" for name in sounds[: MAX_SOUNDS - len(paths)]]
            stems = self._stems[folder] = {}
            for path in paths:
                stems.setdefault(id_of(_normal(path.rpartition("/")[2])), []).append(path)
        return self._stems[folder]

    def _listing(self, folder: str) -> dict[str, bool]:
        """Return name -> is a symlink, for each entry of a folder under the root; empty if there is no such folder."""
        if folder not in self._listings:
            self._listings[folder] = dict(self._scan(folder))
        return self._listings[folder]

    def _scan(self, folder: str) -> Iterator[tuple[str, bool]]:
        if not self._is_inside(folder):
            detail = f"{printable(folder)}/ is a symlink out of the corpus; copy the files in"
            raise RowError(Reason.UNSAFE_ID, detail)
        try:
            with os.scandir(self.root / folder) as entries:
                for entry in entries:
                    is_link = entry.is_symlink()
                    # A pipe or folder with a sound's name is not missing: decoding it gives the right error.
                    if not is_link or not _is_broken_link(entry):
                        yield entry.name, is_link
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            if error.errno in MACHINE_ERRORS:
                raise CorpusError(
                    f"{self.root}: {printable(folder)}/ cannot be listed ({error.strerror}); mend that and run again"
                ) from None
            reason = Reason.UNSAFE_ID if error.errno == errno.ENAMETOOLONG else Reason.AUDIO_UNREADABLE
            detail = f"{printable(folder)}/ cannot be listed ({error.strerror}); expected a readable folder"
            raise RowError(reason, detail) from None

    def _is_inside(self, path: str) -> bool:
        return Path(os.path.realpath(self._real_root / path)).is_relative_to(self._real_root)

    def _missing(self, audio: str, name: str, listing: dict[str, bool]) -> str:
        wanted = f"{audio}.wav" if id_of(name) == name else audio
        detail = f"no sound file {printable(wanted)}"
        if self._hints_left and listing:
            self._hints_left -= 1
            names = sorted(listing)[:HINT_NAMES]
            near = nearest_name(wanted.rpartition("/")[2], names)
            detail += "" if near is None else f"; the nearest name there is {printable(near)}"
        return detail if listing else f"{detail}; its folder is missing or empty: --audio-dir names another"


def id_of(audio: str) -> str:
    """Return a sound's path without its suffix: the id of a row without one."""
    return audio.rpartition(".")[0] if audio.lower().endswith((*SOUND_SUFFIXES, *UNREAD_SUFFIXES)) else audio


def sounds_among(names: Collection[str]) -> list[str]:
    """Return the names of sounds, sorted; of formats that are not read only those that are not converted already."""
    names = [name for name in names if not name.startswith(APPLE_DOUBLE)]
    read = [name for name in names if name.lower().endswith(SOUND_SUFFIXES)]
    stems = set(map(id_of, read))
    return sorted(
        [*read, *(name for name in names if name.lower().endswith(UNREAD_SUFFIXES) and id_of(name) not in stems)]
    )


def _normal(name: str) -> str:
    """Return a name in the Unicode form of most files, NFC: those of a Mac may have letters and accents apart."""
    return name if name.isascii() else unicodedata.normalize("NFC", name)


def _sound_in(listing: Mapping[str, object], name: str) -> str | None:
    """Return the sound in a listing that a name means, with a suffix if it has none; None if there is none.

    A sound of a format that is not read stands behind the one that was converted from it.
    """
    if name in listing and name.lower().endswith(SOUND_SUFFIXES):
        return name
    for suffix in SOUND_SUFFIXES:
        if name + suffix in listing:
            return name + suffix
    others, stem = [], id_of(name)
    if stem == name:
        others = [name + suffix for suffix in UNREAD_SUFFIXES]
    elif name.lower().endswith(UNREAD_SUFFIXES):
        others = [*(stem + suffix for suffix in SOUND_SUFFIXES), name]
    return next((file for file in others if file in listing), None)


def _is_broken_link(link: os.DirEntry[str]) -> bool:
    """Return whether a symlink leads nowhere or in a circle; opening a link without permission fails anyway."""
    try:
        link.stat()
    except OSError as error:
        if error.errno in MACHINE_ERRORS:
            raise
        return error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
    return False


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
            found = "holds NUL bytes" if b"\x00" in raw else f"has over {MAX_ROW_BYTES} bytes"
            shown_id = raw[:MAX_SHOWN].decode("utf-8", "replace")
            rows.reject(where, Reason.BAD_ROW, f"the row {found}; expected one clip in UTF-8 text", shown_id)
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
        with open_regular_file(path) as file:
            rows.text_files.append((path, identity_of(file.fileno())))
            start = file.read(len(codecs.BOM_UTF8))
            file.seek(len(start) if start == codecs.BOM_UTF8 else 0)
            if wide := wide_encoding(start, rows.options.encoding):
                text = file.read(MAX_WIDE_BYTES).decode(wide, "replace").removeprefix("\ufeff")
                yield from (line.encode("utf-8", "replace") for line in text.removesuffix("\n").split("\n"))
                return
            while raw := file.readline(MAX_ROW_BYTES + 1):
                rest = raw
                while rest and not rest.endswith(b"\n"):
                    rest = file.readline(MAX_ROW_BYTES)
                yield raw.removesuffix(b"\n")
    except OSError as error:
        raise CorpusError(f"{path}: cannot be read ({error.strerror}); expected a metadata file") from None


def printable(text: str) -> str:
    """Return text from a file as one short line without control characters, for a message or a JSON line."""
    shown = _without_unsafe(text.strip()[: MAX_SHOWN + 1])
    return shown if len(shown) <= MAX_SHOWN else f"{shown[: MAX_SHOWN - 3]}..."


def _without_unsafe(text: str) -> str:
    return UNSAFE_CHARACTERS.sub("\ufffd", text)


def _check_path(path: str, kind: str, name: str) -> None:
    """Raise RowError if a path or id is empty or unsafe."""
    if not path:
        raise RowError(Reason.BAD_ROW, f"the {name} is empty")
    problem = _path_problem(path)
    if problem:
        raise RowError(Reason.UNSAFE_ID, f"{kind} {printable(path)} {problem}")


def _path_problem(path: str) -> str | None:
    """Return why a path or id could name something outside the corpus or the output folder, or None."""
    if _PLAIN_PATH.fullmatch(path) and len(path) <= MAX_ID_BYTES:
        return None
    if UNSAFE_CHARACTERS.search(path):
        return "holds control characters"
    if "\\" in path:
        return "holds a backslash; separate folders with /"
    if path.startswith(("/", "~")) or path[1:2] == ":":
        return "is absolute; expected a path inside the corpus"
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts):
        return "has an empty, . or .. part; expected a path inside the corpus"
    is_long = len(path.encode()) > MAX_PATH_BYTES or any(len(part.encode()) > MAX_ID_BYTES for part in parts)
    return f"is longer than {MAX_ID_BYTES} bytes a name or {MAX_PATH_BYTES} bytes in all" if is_long else None
