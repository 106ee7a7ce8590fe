"""`xtts export`: write a run as a SavedModel that speaks without this package."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from xtts_pipeline.cache.build.folder import format_bytes
from xtts_pipeline.cli.gate import tensorflow
from xtts_pipeline.cli.groups import DocumentedCommand
from xtts_pipeline.cli.options import FOLDER, json_option, print_report, run_option, synthesis_option


@dataclass(frozen=True)
class ExportReport:
    """The folder that was written, its size, and the content of its xtts.json."""

    output: Path
    bytes: int
    description: Mapping[str, Any]

    def to_json(self) -> dict[str, object]:
        """Return the report for programs."""
        names = ("step", "weights_sha256", "jit_compile", "signature", "inputs", "outputs")
        return {"output": str(self.output), "bytes": self.bytes, **{name: self.description[name] for name in names}}

    def to_text(self) -> str:
        """Return the report for people."""
        model = self.description
        signature = f"signature {model['signature']} (checkpoint of step {model['step']})"
        lines = [f"{self.output}: {format_bytes(self.bytes)}, {signature}"]
        for label, tensors in (("in", model["inputs"]), ("out", model["outputs"])):
            for name, tensor in tensors.items():
                shape = ", ".join("any" if size is None else str(size) for size in tensor["shape"])
                lines.append(f"  {label:<4}{name:<18}{tensor['dtype']} [{shape}]")
        return "\n".join(lines)


@click.command(cls=DocumentedCommand, example="xtts export --run runs/first --output exported/")
@run_option
@click.option("--output", type=FOLDER, required=True, help="New folder for the SavedModel and its xtts.json.")
@synthesis_option
@click.option(
    "--batch-size",
    type=click.IntRange(1, 1_024),
    default=1,
    show_default=True,
    help="Number of texts that one call speaks.",
)
@click.option(
    "--jit-compile",
    is_flag=True,
    help="Let XLA compile the network where it is loaded: faster, but not every server has XLA.",
)
@json_option
@click.pass_obj
def export(
    debug: bool,
    /,
    run: Path,
    output: Path,
    overrides: Sequence[str],
    batch_size: int,
    jit_compile: bool,
    as_json: bool,
) -> None:
    """Write a run as a SavedModel that needs none of this code.

    Token ids and a reference go in, mel frames come out.
    """
    with tensorflow("xtts_pipeline.inference.saved_model", echo=debug) as (_, saved_model):
        written = saved_model.export_run(run, output, overrides, batch_size=batch_size, jit_compile=jit_compile)
    print_report(ExportReport(output, written.bytes, written.description), as_json)
