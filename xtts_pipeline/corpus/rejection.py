"""Rows that were left out of a cache, each with its place and its typed reason."""

from dataclasses import dataclass

from xtts_pipeline.errors import Reason


@dataclass(frozen=True)
class Rejection:
    """One rejected row; `where` is `file:line` (or the sound file's path where a layout has no table)."""

    id: str
    where: str
    reason: Reason
    detail: str

    def to_json(self) -> dict[str, str]:
        """Return the line of `rejected.jsonl`."""
        return {"id": self.id, "where": self.where, "reason": str(self.reason), "detail": self.detail}
