"""Read LibriTTS: SPLIT/SPEAKER/CHAPTER/ID.wav beside ID.normalized.txt or ID.original.txt."""

import re
from collections.abc import Sequence
from pathlib import Path

from xtts_pipeline.corpus.folders import add_clip, id_of_speaker, list_folder
from xtts_pipeline.corpus.layouts.layout import FoundCorpus
from xtts_pipeline.corpus.options import ReadOptions
from xtts_pipeline.corpus.rows import RowCollector
from xtts_pipeline.corpus.sounds import SOUND_SUFFIXES
from xtts_pipeline.system.terminal import printable

TRANSCRIPTS = (".normalized.txt", ".original.txt")
_SPLIT_FOLDER = re.compile(r"(train|dev|test)(-.+)?")


class LibriTts:
    """The top folder is the split (`dev` becomes `val`), the next the speaker; the normalised text is preferred."""

    name = "libritts"
    looked_for = "train-*/, dev-*/ or test-*/ of SPEAKER/CHAPTER/*.wav beside *.normalized.txt"
    parts = (("train-*", "dev-*", "test-*"),)

    def find(self, source: Path, _options: ReadOptions) -> FoundCorpus | None:
        """Return the folder of the splits, or one split's folder itself."""
        if not source.is_dir():
            return None
        candidates = [source] if _SPLIT_FOLDER.fullmatch(source.name) else []
        candidates += sorted(path for path in source.iterdir() if _SPLIT_FOLDER.fullmatch(path.name) and path.is_dir())
        holds_text = (any(next(folder.glob(f"*/*/*{ending}"), None) for ending in TRANSCRIPTS) for folder in candidates)
        return FoundCorpus(source) if any(holds_text) else None

    def read(self, found: FoundCorpus, rows: RowCollector) -> None:
        """Add a row for each clip, folder by folder: each transcript, and each sound that has none."""
        folders = list_folder("", rows).folders
        splits = [(folder, match[1]) for folder in folders if (match := _SPLIT_FOLDER.fullmatch(folder))]
        for folder, split in splits:
            _read_split(f"{folder}/", list_folder(folder, rows).folders, split, rows)
        own_split = _SPLIT_FOLDER.fullmatch(found.root.name)
        if own_split and not splits:
            _read_split("", folders, own_split[1], rows)


def _read_split(prefix: str, speakers: Sequence[str], split: str, rows: RowCollector) -> None:
    for speaker in speakers:
        for chapter in list_folder(f"{prefix}{speaker}", rows).folders:
            folder = f"{prefix}{speaker}/{chapter}"
            names = list_folder(folder, rows).files
            # A later ending overwrites an earlier one, so the normalised text comes last.
            texts = {
                name.removesuffix(ending): name
                for ending in reversed(TRANSCRIPTS)
                for name in names
                if name.endswith(ending)
            }
            sounds = {name.rpartition(".")[0]: name for name in names if name.lower().endswith(SOUND_SUFFIXES)}
            for stem in sorted(texts.keys() | sounds.keys()):
                audio = f"{folder}/{sounds.get(stem, stem)}"
                transcript = f"{folder}/{texts[stem]}" if stem in texts else None
                row_id, expected = id_of_speaker(speaker, stem), f"{printable(stem)}{TRANSCRIPTS[0]}"
                add_clip(rows, speaker, row_id, audio, transcript, expected, split)
