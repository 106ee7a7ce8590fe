"""`xtts export`: write a run as a SavedModel that speaks without this package."""

from collections.abc import Sequence
from pathlib import Path

import click

from xtts_pipeline.cli.gate import tensorflow
from xtts_pipeline.cli.groups import DocumentedCommand
from xtts_pipeline.cli.options import FOLDER, json_option, print_report, run_option, synthesis_option


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
        report = saved_model.export_run(run, output, overrides, batch_size=batch_size, jit_compile=jit_compile)
    print_report(report, as_json)
