"""`xtts use-vocoder`: let a run remember the vocoder that speaks for it."""

from pathlib import Path

import click

from xtts_pipeline.cli.echo import echo
from xtts_pipeline.cli.groups import DocumentedCommand
from xtts_pipeline.cli.run_options import VocoderPath, run_option
from xtts_pipeline.inference.vocoders import choose_vocoder
from xtts_pipeline.training.checkpoints.run_folder import GRIFFIN_LIM, write_vocoder_path


@click.command(cls=DocumentedCommand, example="xtts use-vocoder --run runs/first --vocoder runs/vocoder")
@run_option
@click.option(
    "--vocoder",
    type=VocoderPath(),
    required=True,
    metavar="RUN",
    help=f"Run of `xtts train-vocoder`, RUN/best or a checkpoint; {GRIFFIN_LIM} forgets the vocoder.",
)
def use_vocoder(run: Path, vocoder: Path | str) -> None:
    """Let a run remember the vocoder that speaks for it."""
    chosen = choose_vocoder(run, vocoder)
    write_vocoder_path(run, chosen)
    echo(f"{run}: speaks with {'Griffin-Lim' if chosen is None else f'the vocoder {chosen}'} from now on")
