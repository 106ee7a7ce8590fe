"""Read sounds with a transcript of the same name beside each: 001.wav and 001.txt, in one folder or in several.

The transcripts may also lie in a folder beside that of the sounds: wav/001.wav and txt/001.txt.
"""

import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from xtts_pipeline.corpus.folders import add_clip, list_folder
from xtts_pipeline.corpus.layouts.layout import FoundCorpus
from xtts_pipeline.corpus.options import ReadOptions
from xtts_pipeline.corpus.rows import DEFAULT_SPEAKER, RowCollector
from xtts_pipeline.corpus.sounds import APPLE_DOUBLE, id_of, normal, sounds_among
from xtts_pipeline.errors import Reason
from xtts_pipeline.system.terminal import printable

TRANSCRIPTS = (".txt", ".lab")
SOUND_FOLDERS = ("audio", "audios", "clips", "data", "recordings", "sounds", "wav", "wavs")
# Beside texts, labels are the times of phonemes.
TEXT_FOLDERS = ("text", "texts", "transcriptions", "transcripts", "txt", "lab", "labels")
NO_TRANSCRIPTS = ("README", "LICENSE", "LICENCE", "COPYING", "CHANGELOG")
MAX_DEPTH = 8
MAX_FILES_TRIED = 10_000


class Pairs:
    """The id is the path without its suffix. Where the sounds lie in folders, the first folder is the speaker."""

    name = "pairs"
    looked_for = "sounds with a transcript beside each: 001.wav and 001.txt"
    parts = ()

    def find(self, source: Path, _options: ReadOptions) -> FoundCorpus | None:
        """Return the folder if a sound below it has a transcript."""
        if not source.is_dir():
            return None
        tried = 0
        for folder, folders, names in os.walk(source):
            if folder.count("/") - str(source).count("/") >= MAX_DEPTH:
                folders.clear()
            texts, sounds = transcripts_among(names).keys(), _sounds_by_stem(names).keys()
            if not texts & sounds and folder != str(source) and (beside := _text_folder(Path(folder))):
                texts = _transcripts_in(beside).keys()
            if texts & sounds:
                return FoundCorpus(source)
            tried += len(names)
            if tried > MAX_FILES_TRIED:
                return None
        return None

    def read(self, _found: FoundCorpus, rows: RowCollector) -> None:
        """Add a row for each sound, folder by folder; transcripts without a sound are rejected."""
        _read_folder("", rows, 0)


def _read_folder(folder: str, rows: RowCollector, depth: int) -> None:
    names, folders = list_folder(folder, rows)
    prefix = f"{folder}/" if folder else ""
    speaker = next((part for part in folder.split("/") if part.lower() not in ("", *SOUND_FOLDERS)), DEFAULT_SPEAKER)
    texts = {stem: prefix + name for stem, name in transcripts_among(names).items()}
    sounds = _sounds_by_stem(names)
    place = "beside it"
    if sounds and not texts.keys() & sounds.keys() and folder and (beside := _text_folder(rows.root / folder)):
        place = f"in {printable(beside.name)}/"
        where = beside.relative_to(rows.root).as_posix()
        texts |= {stem: f"{where}/{name}" for stem, name in _transcripts_in(beside).items()}
    # Texts in a folder without sounds belong to no clip.
    for stem in sorted(sounds.keys() | texts.keys()) if sounds else ():
        audio = f"{prefix}{sounds.get(stem, stem)}"
        expected = f"{printable(stem)}{TRANSCRIPTS[0]} {place}"
        row_id = id_of(audio) if stem in sounds else prefix + stem
        add_clip(rows, speaker, row_id, audio, texts.get(stem), expected)
    for name in folders:
        if depth < MAX_DEPTH:
            _read_folder(prefix + name, rows, depth + 1)
        elif any(sounds_among(found) for _, _, found in os.walk(rows.root / prefix / name)):
            detail = f"lies over {MAX_DEPTH} folders deep; its sounds are not read"
            rows.reject(prefix + name, Reason.BAD_ROW, detail)


def _sounds_by_stem(names: Collection[str]) -> dict[str, str]:
    """Return stem -> name of each sound in a folder. Stems are `normal`: those of a Mac may have accents apart."""
    return {normal(id_of(name)): name for name in sounds_among(names)}


def transcripts_among(names: Collection[str]) -> dict[str, str]:
    """Return `normal` stem -> name of each transcript in a folder; a README is one only beside a sound of its name."""
    sounds = _sounds_by_stem(names)
    found = {normal(name.rpartition(".")[0]): name for name in names if name.lower().endswith(TRANSCRIPTS)}
    return {
        stem: name
        for stem, name in found.items()
        if (stem in sounds or stem.upper() not in NO_TRANSCRIPTS) and not stem.startswith(APPLE_DOUBLE)
    }


def _transcripts_in(folder: Path) -> dict[str, str]:
    """Return stem -> name of each transcript in a folder; none if it cannot be listed, which its own turn reports."""
    with suppress(OSError):
        return transcripts_among([path.name for path in sorted(folder.iterdir())])
    return {}


def _text_folder(folder: Path) -> Path | None:
    """Return the folder of texts beside a folder that is called after sounds, or None."""
    if folder.name.lower() not in SOUND_FOLDERS:
        return None
    found = {path.name.lower(): path for path in sorted(folder.parent.iterdir())}
    beside = (found[name] for name in TEXT_FOLDERS if name in found)
    return next((path for path in beside if path.is_dir() and not path.is_symlink()), None)
