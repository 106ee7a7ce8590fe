"""`xtts export`: write a run as a SavedModel that speaks without this package, or a vocoder as an ONNX file."""

from collections.abc import Sequence
from pathlib import Path

import click
from click.core import ParameterSource

from xtts_pipeline.cli.gate import tensorflow
from xtts_pipeline.cli.groups import DocumentedCommand
from xtts_pipeline.cli.options import (
    FOLDER,
    Choice,
    check_suffix,
    json_option,
    print_report,
    run_option,
    synthesis_option,
    vocoder_option,
)
from xtts_pipeline.inference.vocoders import choose_vocoder
from xtts_pipeline.system.installation import require_extra
from xtts_pipeline.training.checkpoints.state import read_run_state, require_network

SAVED_MODEL, ONNX = "saved-model", "onnx"
_ONLY_SAVED_MODEL = {
    "vocoder": "--vocoder",
    "overrides": "--set",
    "batch_size": "--batch-size",
    "jit_compile": "--jit-compile",
}


@click.command(
    cls=DocumentedCommand,
    example="xtts export --run runs/first --vocoder runs/vocoder --output exported/",
    sections={"SavedModel": list(_ONLY_SAVED_MODEL)},
)
@run_option
@click.option(
    "--output", type=FOLDER, required=True, help="New folder for the SavedModel and its xtts.json, or new ONNX file."
)
@click.option(
    "--format",
    "file_format",
    type=Choice([SAVED_MODEL, ONNX]),
    default=SAVED_MODEL,
    show_default=True,
    help="What to write. ONNX takes the run of a vocoder and needs the extra `onnx`.",
)
@vocoder_option
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
@click.pass_context
def export(
    context: click.Context,
    /,
    run: Path,
    output: Path,
    file_format: str,
    vocoder: Path | str | None,
    overrides: Sequence[str],
    batch_size: int,
    jit_compile: bool,
    as_json: bool,
) -> None:
    """Write a run as a SavedModel, or a vocoder as ONNX.

    The SavedModel takes token ids and a reference, and returns sound and mel frames. The ONNX file takes mel frames and
    returns sound. Both run without this code.
    """
    network = read_run_state(run).network
    if file_format == ONNX:
        _check_onnx_options(context, output)
        require_network(run, network, "vocoder")
        with tensorflow("xtts_pipeline.inference.onnx_vocoder", echo=context.obj) as (_, onnx_vocoder):
            report = onnx_vocoder.export_vocoder(run, output)
    else:
        require_network(run, network, "acoustic")
        choose_vocoder(run, vocoder)
        with tensorflow("xtts_pipeline.inference.saved_model", echo=context.obj) as (_, saved_model):
            report = saved_model.export_run(
                run, output, overrides, batch_size=batch_size, jit_compile=jit_compile, vocoder=vocoder
            )
    print_report(report, as_json)


def _check_onnx_options(context: click.Context, output: Path) -> None:
    """Raise a usage error for an option of the SavedModel, OutputError for a suffix, ConfigError without the extra."""
    found = [
        option
        for name, option in _ONLY_SAVED_MODEL.items()
        if context.get_parameter_source(name) is not ParameterSource.DEFAULT
    ]
    if found:
        raise click.UsageError(f"--format {ONNX}: found {', '.join(found)}, which a SavedModel takes; leave it out")
    check_suffix(output, (".onnx",))
    require_extra("onnx", ("onnx", "onnxruntime"), f"--format {ONNX}")
