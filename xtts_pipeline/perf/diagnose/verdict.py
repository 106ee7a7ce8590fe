"""The result of a diagnosis."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Verdict:
    """A name of few words, the finding in one line, and the remedy, which is empty if nothing is wrong."""

    name: str
    finding: str
    remedy: str = ""

    @property
    def is_healthy(self) -> bool:
        """Whether nothing is wrong."""
        return not self.remedy

    def to_json(self) -> dict[str, Any]:
        """Return the first fields of a diagnosis's `--json`."""
        return {"verdict": self.name, "healthy": self.is_healthy, "finding": self.finding, "remedy": self.remedy}

    def __str__(self) -> str:
        return f"{self.name}: {self.finding}" + (f"; {self.remedy}" if self.remedy else "")
