"""`xtts export`: write a run as a voice folder or as a SavedModel, or a vocoder as an ONNX file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from xtts_pipeline.cli.gate import tensorflow
from xtts_pipeline.cli.groups import DocumentedCommand
from xtts_pipeline.cli.options import FOLDER, Choice, check_suffix, json_option, print_report, print_warnings
from xtts_pipeline.cli.run_options import run_option, synthesis_option, vocoder_option
from xtts_pipeline.inference.vocoders import choose_vocoder
from xtts_pipeline.inference.voice_folder import VoiceTerms
from xtts_pipeline.system.installation import require_extra
from xtts_pipeline.system.terminal import has_surrogate
from xtts_pipeline.training.checkpoints.state import read_run_state, require_network

VOICE, SAVED_MODEL, ONNX = "voice", "saved-model", "onnx"
# The options of some formats alone.
_FORMATS = {
    "vocoder": (VOICE, SAVED_MODEL),
    "overrides": (VOICE, SAVED_MODEL),
    "voice_license": (VOICE,),
    "data_license": (VOICE,),
    "datasets": (VOICE,),
    "evaluation": (VOICE,),
    "batch_size": (SAVED_MODEL,),
    "jit_compile": (SAVED_MODEL,),
}


class Line(click.ParamType[str]):
    """A text that is not empty, as one line."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text with single spaces; a usage error if nothing is left or it is not UTF-8."""
        line = " ".join(str(value).split())
        if not line or has_surrogate(line):
            self.fail(f"found {str(value)!r}, expected a text in UTF-8", param, ctx)
        return line


@click.command(
    cls=DocumentedCommand,
    example="xtts export --run runs/first --output voice/ --license MIT --data-license MIT",
    sections={
        "Voice folder": ["voice_license", "data_license", "datasets", "evaluation"],
        "SavedModel": ["batch_size", "jit_compile"],
    },
)
@run_option
@click.option("--output", type=FOLDER, required=True, help="New folder for the voice or the SavedModel, or ONNX file.")
@click.option(
    "--format",
    "file_format",
    type=Choice([VOICE, SAVED_MODEL, ONNX]),
    default=VOICE,
    show_default=True,
    help="What to write. ONNX takes the run of a vocoder and needs the extra `onnx`.",
)
@vocoder_option
@synthesis_option
@click.option(
    "--license", "voice_license", type=Line(), help="License of the voice: an SPDX identifier or a text; required."
)
@click.option("--data-license", type=Line(), help="License of the recordings, and their speakers' consent; required.")
@click.option(
    "--dataset", "datasets", type=Line(), multiple=True, help="Name of a data set of the training; repeatable."
)
@click.option("--evaluation", type=FOLDER, help="Folder of `xtts evaluate` whose figures the model card shows.")
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
    voice_license: str | None,
    data_license: str | None,
    datasets: Sequence[str],
    evaluation: Path | None,
    batch_size: int,
    jit_compile: bool,
    as_json: bool,
) -> None:
    """Write a voice folder, a SavedModel, or a vocoder as ONNX.

    A voice folder holds all that `xtts synthesize --voice` needs, with a model card. The SavedModel takes token ids and
    a reference, and returns sound and mel frames. The ONNX file takes mel frames and returns sound. The last two run
    without this code.
    """
    _check_options(context, file_format)
    network = read_run_state(run).network
    if file_format == ONNX:
        check_suffix(output, (".onnx",))
        require_extra("onnx", ("onnx", "onnxruntime"), f"--format {ONNX}")
        require_network(run, network, "vocoder")
        with tensorflow("xtts_pipeline.inference.export.onnx_vocoder", echo=context.obj) as (_, onnx_vocoder):
            report = onnx_vocoder.export_vocoder(run, output)
        print_report(report, as_json)
        return
    terms = _voice_terms(voice_license, data_license, datasets) if file_format == VOICE else None
    require_network(run, network, "acoustic")
    choose_vocoder(run, vocoder)
    if terms is not None:
        with tensorflow("xtts_pipeline.inference.export.voice", echo=context.obj) as (_, export_voice):
            report = export_voice.export_voice(run, output, overrides, terms, vocoder=vocoder, evaluation=evaluation)
        print_warnings(
            f"{output}: no samples of {language}: no sentence is known that it can speak"
            for language in report.description["languages_without_samples"]
        )
    else:
        with tensorflow("xtts_pipeline.inference.export.saved_model", echo=context.obj) as (_, saved_model):
            report = saved_model.export_run(
                run, output, overrides, batch_size=batch_size, jit_compile=jit_compile, vocoder=vocoder
            )
    print_report(report, as_json)


def _check_options(context: click.Context, file_format: str) -> None:
    """Raise a usage error for options that the format does not take."""
    names = {name: parameter.opts[0] for parameter in context.command.params if (name := parameter.name)}
    found = [
        names[name]
        for name, formats in _FORMATS.items()
        if file_format not in formats and context.get_parameter_source(name) is not ParameterSource.DEFAULT
    ]
    if found:
        raise click.UsageError(
            f"--format {file_format}: found {', '.join(found)}, which other formats take; leave it out"
        )


def _voice_terms(voice_license: str | None, data_license: str | None, datasets: Sequence[str]) -> VoiceTerms:
    """Return what the options say of the use of a voice. Raises a usage error that names the missing ones."""
    if voice_license is None or data_license is None:
        given = {"--license": voice_license, "--data-license": data_license}
        missing = [name for name, value in given.items() if value is None]
        raise click.UsageError(
            f"--format {VOICE}: found no {' and no '.join(missing)}; say under which license the voice may be used, "
            f"and under which license and consent its recordings; for a SavedModel add --format {SAVED_MODEL}"
        )
    return VoiceTerms(voice_license, data_license, tuple(datasets))
