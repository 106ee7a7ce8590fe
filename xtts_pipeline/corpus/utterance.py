"""The records that every corpus reader returns."""

from dataclasses import dataclass
from pathlib import Path

from xtts_pipeline.corpus.rejection import Rejection


@dataclass(frozen=True)
class Utterance:
    """One row of a corpus: what was said, by whom, and where the sound lies.

    `audio` is relative to the corpus root. `split` is the corpus's own (`train`, `val`, `test`) or None.
    `order` is the row's place as read, from 0.
    """

    id: str
    audio: Path
    text: str
    speaker: str
    language: str
    split: str | None
    where: str
    order: int


@dataclass(frozen=True)
class Corpus:
    """A corpus as read: `rows` = utterances + rejections, none lost."""

    layout: str
    root: Path
    utterances: tuple[Utterance, ...]
    rejections: tuple[Rejection, ...]

    @property
    def rows(self) -> int:
        """How many rows were read."""
        return len(self.utterances) + len(self.rejections)
