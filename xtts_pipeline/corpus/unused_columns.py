"""Find a column that no role uses and that may name the speakers: few values, each in several rows.

Knows values only: the names of columns are in `columns`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from xtts_pipeline.corpus.rows import SPLIT_NAMES
from xtts_pipeline.corpus.tables import NUMBER

MAX_SPEAKERS = 1_000
MAX_SPEAKER_NAME = 40
LEAST_ROWS_PER_SPEAKER = 4  # on average; each has two or more


class UnusedColumns:
    """Counts the values of some columns, row by row."""

    def __init__(self, columns: Iterable[str]) -> None:
        self._counts = {column: Counter[str]() for column in columns}

    def add(self, fields: Mapping[str, str]) -> None:
        """Count the values of a row."""
        for column, counts in list(self._counts.items()):
            counts[fields.get(column, "").strip()] += 1
            if len(counts) > MAX_SPEAKERS:
                del self._counts[column]

    def likely_speaker(self) -> str:
        """Return the first column that may name the speakers, or an empty text."""
        return next((column for column, counts in self._counts.items() if _are_speakers(counts)), "")


def _are_speakers(counts: Counter[str]) -> bool:
    named = {value: count for value, count in counts.items() if value}
    if set(map(str.lower, named)) <= SPLIT_NAMES.keys():
        return False
    # Numbers are rates, years or votes more often than speakers.
    is_name = any(not NUMBER.fullmatch(value) for value in named) and max(map(len, named)) <= MAX_SPEAKER_NAME
    is_few = len(named) * LEAST_ROWS_PER_SPEAKER <= counts.total()
    return is_name and is_few and len(named) > 1 and min(named.values()) > 1
