"""Count the symbols of texts, as they become tokens."""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from typing import Protocol

RARE_COUNT = 10


class TextRow(Protocol):
    """A row whose text was prepared for the tokenizer."""

    @property
    def id(self) -> str:
        """Its id."""

    @property
    def text(self) -> str:
        """Its symbols."""


@dataclass(frozen=True)
class SymbolCount:
    """A symbol of the texts, and the smallest id of a clip that has it. `is_known`: it becomes a token."""

    symbol: str
    count: int
    example: str
    is_known: bool

    @property
    def mark(self) -> str:
        """What is unusual about the symbol; empty for most."""
        return "rare" if self.is_known and self.count < RARE_COUNT else "" if self.is_known else "unknown"

    def to_json(self) -> dict[str, object]:
        """Return the count for programs."""
        return {"code_point": f"U+{ord(self.symbol):04X}", **asdict(self), "is_rare": self.mark == "rare"}


def symbol_counts(rows: Iterable[TextRow], known: Collection[str]) -> tuple[SymbolCount, ...]:
    """Return the count of each symbol of the rows' texts, the most frequent first."""
    counts: Counter[str] = Counter()
    examples: dict[str, str] = {}
    for row in rows:
        counts.update(row.text)
        for symbol in set(row.text):
            # A cache has another order of rows than its corpus.
            examples[symbol] = min(row.id, examples.get(symbol, row.id))
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return tuple(SymbolCount(symbol, count, examples[symbol], symbol in known) for symbol, count in ordered)
