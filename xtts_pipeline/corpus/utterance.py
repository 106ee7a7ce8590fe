"""The records that every corpus reader returns: kept rows, rejected rows, and both as one corpus."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pydantic.dataclasses import dataclass as checked

from xtts_pipeline.corpus.options import ReadOptions
from xtts_pipeline.errors import Reason
from xtts_pipeline.system.strict_json import STRICT


@dataclass(frozen=True)
class Utterance:
    """One kept row: text, speaker and sound file.

    `audio` is relative to the corpus root. `split` is the corpus's own (`train`, `val`, `test`) or None.
    `where` is `file:line`, or the sound file's path in a layout without a table.
    """

    id: str
    audio: Path
    text: str
    speaker: str
    language: str
    split: str | None
    where: str


@checked(frozen=True, config=STRICT)
class Rejection:
    """One rejected row, which is a line of `rejected.jsonl`; `where` is as in Utterance."""

    id: str
    where: str
    reason: Reason
    detail: str

    def to_json(self) -> dict[str, str]:
        """Return the line of `rejected.jsonl`."""
        return {"id": self.id, "where": self.where, "reason": str(self.reason), "detail": self.detail}


def examples_by_reason(rejections: Iterable[Rejection]) -> dict[str, dict[str, str]]:
    """Return the id, place and detail of the first rejection of each reason."""
    examples: dict[str, dict[str, str]] = {}
    for rejection in rejections:
        example = {"id": rejection.id, "where": rejection.where, "detail": rejection.detail}
        examples.setdefault(rejection.reason.value, example)
    return examples


@dataclass(frozen=True)
class Corpus:
    """A corpus as read: every row is either an utterance or a rejection.

    `reading` has the layout, and what was found out where that is not what the layout says. `text_files` are the
    tables and transcripts, each with its identity when it was read. `notes` are lines to print with the reading.
    """

    reading: ReadOptions
    root: Path
    utterances: tuple[Utterance, ...]
    rejections: tuple[Rejection, ...]
    text_files: tuple[tuple[Path, tuple[int, int] | None], ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """Number of rows read."""
        return len(self.utterances) + len(self.rejections)
