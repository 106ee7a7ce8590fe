"""Find the sound files of a corpus, and refuse paths that lead out of it.

Files are looked up in folder listings, each read once, because one system call per row would take longer than the rest
of the reading.
"""

import errno
import itertools
import os
import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path, PurePosixPath

from xtts_pipeline.errors import MACHINE_ERRORS, CorpusError, Reason, RowError, nearest_name
from xtts_pipeline.system.terminal import UNSAFE_CHARACTERS, printable

# A Mac writes such a file, which is no sound and no text, beside each file on another file system.
APPLE_DOUBLE = "._"
SOUND_SUFFIXES = (".wav", ".flac", ".ogg", ".opus", ".mp3", ".wave", ".oga")
# Sounds of these formats are not read. They are found, so that the decoder can say what to do.
UNREAD_SUFFIXES = (".m4a", ".mp4", ".aac", ".aif", ".aiff", ".aifc", ".wma", ".webm", ".amr", ".3gp", ".caf", ".au")
MAX_ID_BYTES = 255  # the limit of file systems for one name
MAX_PATH_BYTES = 1_024  # of a whole id or path; systems allow 4,096 with the folder in front of it
HINT_NAMES = 2_000  # finding the nearest of more names takes too long
MAX_HINTS = 20
# Nearly all paths match this, which proves them safe in one step.
_PLAIN_PATH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(?:/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")


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
        if path_problem(audio) is not None:
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
        stem, _, suffix = normal(name).rpartition("/")[2], "", PurePosixPath(name).suffix
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
        pairs = zip(*(reversed(id_of(normal(one)).split("/")) for one in (name, path)), strict=False)
        return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))

    def _paths_by_stem(self, folder: str) -> dict[str, list[str]]:
        """Return the paths of the sounds below a folder by their stems, sorted."""
        if folder not in self._stems:
            # Of any number: they take less memory than the rows that name them.
            stems = self._stems[folder] = {}
            for place, folders, names in os.walk(self.root / folder):
                folders.sort()
                below = os.path.relpath(place, self.root)
                for name in sounds_among(names):
                    path = name if below == "." else f"{below}/{name}"
                    stems.setdefault(id_of(normal(name)), []).append(path)
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


def normal(name: str) -> str:
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


def path_problem(path: str) -> str | None:
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
