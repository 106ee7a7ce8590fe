"""LibriTTS: SPLIT/SPEAKER/CHAPTER/ID.wav beside ID.normalized.txt or ID.original.txt."""

import re
from collections.abc import Sequence
from pathlib import Path

from xtts_pipeline.corpus.folders import clip_id, list_folder, read_transcript
from xtts_pipeline.corpus.layouts.layout import Found
from xtts_pipeline.corpus.rows import SOUND_SUFFIXES, Row, RowCollector, printable
from xtts_pipeline.errors import Reason

TRANSCRIPTS = (".normalized.txt", ".original.txt")
_SPLIT_FOLDER = re.compile(r"(train|dev|test)(-.+)?")


class LibriTts:
    """The split is the top folder's (`dev` becomes `val`), the speaker the second one's; the normalised text wins."""

    name = "libritts"
    looked_for = "train-*/, dev-*/ or test-*/ of SPEAKER/CHAPTER/*.wav beside *.normalized.txt"
    parts = (("train-*", "dev-*", "test-*"),)

    def find(self, source: Path) -> Found | None:
        """Return the folder of the splits, or one split's folder itself."""
        if not source.is_dir():
            return None
        candidates = [source] if _SPLIT_FOLDER.fullmatch(source.name) else []
        candidates += sorted(path for path in source.iterdir() if _SPLIT_FOLDER.fullmatch(path.name) and path.is_dir())
        holds_text = (any(next(folder.glob(f"*/*/*{ending}"), None) for ending in TRANSCRIPTS) for folder in candidates)
        return Found(source) if any(holds_text) else None

    def read(self, found: Found, rows: RowCollector) -> None:
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
            # The later ending overwrites the earlier, so the normalised text comes last.
            texts = {
                name.removesuffix(ending): name
                for ending in reversed(TRANSCRIPTS)
                for name in names
                if name.endswith(ending)
            }
            sounds = {name.rpartition(".")[0]: name for name in names if name.lower().endswith(SOUND_SUFFIXES)}
            for stem in sorted(texts.keys() | sounds.keys()):
                row_id = clip_id(speaker, stem)
                if stem not in texts:
                    detail = f"the sound has no transcript; expected {printable(stem)}{TRANSCRIPTS[0]}"
                    rows.reject(f"{folder}/{sounds[stem]}", Reason.BAD_ROW, detail, row_id)
                    continue
                text = read_transcript(f"{folder}/{texts[stem]}", row_id, rows)
                if text is not None:
                    where = f"{folder}/{texts[stem]}:1"
                    rows.add(Row(where, row_id, f"{folder}/{sounds.get(stem, stem)}", text, speaker, split=split))
