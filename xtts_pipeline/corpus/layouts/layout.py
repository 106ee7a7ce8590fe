"""What a corpus layout is to the code that picks one: what must be there, how to read it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from xtts_pipeline.corpus.rows import RowCollector


@dataclass(frozen=True)
class Found:
    """A corpus that a layout recognised: its root folder, and the metadata files to read, if it has any."""

    root: Path
    tables: Sequence[Path] = ()


class Layout(Protocol):
    """One way to lay out a corpus on disk."""

    @property
    def name(self) -> str:
        """What `--layout` calls it."""

    @property
    def looked_for(self) -> str:
        """What must be there, as an error message lists it."""

    @property
    def parts(self) -> Sequence[Sequence[str]]:
        """Names, or patterns of names, in the root folder: of each group one must be there. They explain a near miss."""

    def find(self, source: Path) -> Found | None:
        """Return where to read from, or None if `source`, a folder or a file, is not of this layout. Opens little."""

    def read(self, found: Found, rows: RowCollector) -> None:
        """Add or reject every row."""
