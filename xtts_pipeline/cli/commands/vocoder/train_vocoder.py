"""`xtts train-vocoder`: train the network that turns mel frames into sound, on a cache with stored waves."""

from pathlib import Path
from typing import Any

import click

from xtts_pipeline.cli.commands.train import run_training
from xtts_pipeline.cli.groups import DocumentedCommand
from xtts_pipeline.cli.summary import print_summary
from xtts_pipeline.cli.training_options import (
    CONTINUING,
    MACHINE,
    training_cache_option,
    training_options,
    vocoder_preset,
)
from xtts_pipeline.training.checkpoints.run_folder import CONFIG_NAME


@click.command(
    cls=DocumentedCommand,
    example="xtts train-vocoder --cache cache/ --output runs/vocoder",
    sections={**CONTINUING, **MACHINE},
)
@training_cache_option
@training_options
@click.pass_obj
def train_vocoder(debug: bool, /, cache: Path | None, configs: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Train a vocoder on a cache with stored waves.

    It turns mel frames into sound. `xtts synthesize --vocoder` speaks with it. Without --config and
    --init-from, a new run takes the preset `vocoder` where there is a GPU and `vocoder-two-cores` elsewhere.
    """
    output = options["output"]
    is_begun = options["resume"] and output is not None and (output / CONFIG_NAME).is_file()
    if not configs and not is_begun and options["init_from"] is None:
        configs = (vocoder_preset(),)
    run = run_training(cache, configs=configs, network="vocoder", echo_native_log=debug, **options)
    print_summary(*run, as_json=as_json)
