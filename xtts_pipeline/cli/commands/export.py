"""`xtts export`: a run in, a SavedModel that speaks without this package out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xtts_pipeline.cache.build.folder import format_bytes
from xtts_pipeline.system.runtime import NativeLog


@dataclass(frozen=True)
class ExportReport:
    """What was written: the folder, its size, and what its xtts.json says."""

    output: Path
    bytes: int
    description: Mapping[str, Any]

    def to_json(self) -> dict[str, object]:
        """Return the report for programs."""
        names = ("step", "weights_sha256", "jit_compile", "signature", "inputs", "outputs")
        return {"output": str(self.output), "bytes": self.bytes, **{name: self.description[name] for name in names}}

    def to_text(self) -> str:
        """Return the report for people."""
        said = self.description
        lines = [
            f"{self.output}: {format_bytes(self.bytes)}, signature {said['signature']} (checkpoint of step {said['step']})"
        ]
        for label, tensors in (("in", said["inputs"]), ("out", said["outputs"])):
            for name, tensor in tensors.items():
                shape = ", ".join("any" if size is None else str(size) for size in tensor["shape"])
                lines.append(f"  {label:<4}{name:<18}{tensor['dtype']} [{shape}]")
        return "\n".join(lines)


def export(
    *,
    run: Path,
    output: Path,
    overrides: Sequence[str],
    batch_size: int,
    jit_compile: bool,
    echo_native_log: bool,
) -> ExportReport:
    """Write a run's network as a SavedModel into a new folder; it speaks with `overrides` such as `synthesis.sharpness=1.5`.

    Raises CheckpointError if the run cannot be read, ConfigError for an override that is not valid, OutputError if the folder is there
    already or cannot be written.
    """
    with NativeLog(echo=echo_native_log):
        # Late: TensorFlow must not be imported before its log is redirected.
        from xtts_pipeline.inference.saved_model import export_checkpoint
        from xtts_pipeline.training.checkpoints.files import load_checkpoint

        checkpoint = load_checkpoint(run).with_synthesis(overrides)
        written = export_checkpoint(checkpoint, output, batch_size=batch_size, jit_compile=jit_compile)
    return ExportReport(output, written.bytes, written.description)
