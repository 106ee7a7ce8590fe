"""The result of a diagnosis."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Verdict:
    """A name of few words, the finding in one line, and the remedy, which is empty if nothing is wrong."""

    name: str
    is_healthy: bool
    finding: str
    remedy: str

    @classmethod
    def healthy(cls, name: str, finding: str) -> "Verdict":
        """Return a verdict without a remedy."""
        return cls(name, is_healthy=True, finding=finding, remedy="")

    @classmethod
    def unhealthy(cls, name: str, finding: str, remedy: str) -> "Verdict":
        """Return the verdict on something wrong."""
        return cls(name, is_healthy=False, finding=finding, remedy=remedy)

    def to_json(self) -> dict[str, Any]:
        """Return the first fields of a diagnosis's `--json`."""
        return {"verdict": self.name, "healthy": self.is_healthy, "finding": self.finding, "remedy": self.remedy}

    def __str__(self) -> str:
        return f"{self.name}: {self.finding}" + (f"; {self.remedy}" if self.remedy else "")
