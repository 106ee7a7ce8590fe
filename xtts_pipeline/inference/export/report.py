"""The report of `xtts export`."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xtts_pipeline.cache.build.folder import format_bytes


@dataclass(frozen=True)
class Export:
    """A written model: its path, a summary in few words, its `step` and more, its size on disk.

    The description of a graph has its `inputs` and `outputs`.
    """

    path: Path
    summary: str
    description: Mapping[str, Any]
    bytes: int

    def to_json(self) -> dict[str, object]:
        """Return the report for programs."""
        return {"output": str(self.path), "bytes": self.bytes, **self.description}

    def to_text(self) -> str:
        """Return the report for people."""
        model = self.description
        lines = [f"{self.path}: {format_bytes(self.bytes)}, {self.summary} (checkpoint of step {model['step']})"]
        for label, tensors in (("in", model.get("inputs", {})), ("out", model.get("outputs", {}))):
            for name, tensor in tensors.items():
                shape = ", ".join("any" if size is None else str(size) for size in tensor["shape"])
                lines.append(f"  {label:<4}{name:<18}{tensor['dtype']} [{shape}]")
        return "\n".join(lines)
