"""The interface of a corpus layout: how to recognise it and how to read it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from xtts_pipeline.corpus.options import ReadOptions
from xtts_pipeline.corpus.rows import RowCollector


@dataclass(frozen=True)
class FoundCorpus:
    """A recognised corpus: its root folder and the metadata files to read, if it has any."""

    root: Path
    tables: Sequence[Path] = ()


class Layout(Protocol):
    """One way to lay out a corpus on disk."""

    @property
    def name(self) -> str:
        """Name for `--layout`."""

    @property
    def looked_for(self) -> str:
        """Description of the required files, for error messages."""

    @property
    def parts(self) -> Sequence[Sequence[str]]:
        """Groups of names or patterns in the root folder, of which one each must exist; they explain a near miss."""

    def find(self, source: Path, options: ReadOptions) -> FoundCorpus | None:
        """Return where to read from, or None if `source`, a folder or a file, has another layout. Reads little."""

    def read(self, found: FoundCorpus, rows: RowCollector) -> None:
        """Add or reject every row, and keep what was found out about the tables, if anything."""
