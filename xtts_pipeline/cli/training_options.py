"""Options of the commands that train: `xtts train` and `xtts train-vocoder`."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from xtts_pipeline.cli.completion import complete_setting_name
from xtts_pipeline.cli.options import COUNT, FOLDER, STORED_CACHE_FOLDER, json_option
from xtts_pipeline.cli.run_options import config_options, wait_workers_option
from xtts_pipeline.system.runtime import has_gpu
from xtts_pipeline.system.terminal import echo_line

F = TypeVar("F", bound=Callable[..., Any])
# What `xtts train-vocoder` trains by default.
GPU_PRESET, CPU_PRESET = "vocoder", "vocoder-two-cores"
# The sections of their help.
CONTINUING = {"Continuing and fine-tuning": ["resume", "allow_change", "init_from"]}
MACHINE = {"Machine": ["stage", "devices", "wait_workers", "profile_steps"]}

training_cache_option = click.option(
    "--cache",
    type=STORED_CACHE_FOLDER,
    help="Folder of the cache, or a store: gs://bucket/cache.  [default: that of a resumed run, else cache]",
)


def vocoder_preset() -> str:
    """Return the preset of a new vocoder for this machine, and say its name on stderr."""
    preset = GPU_PRESET if has_gpu() else CPU_PRESET
    echo_line(f"settings: the preset {preset}; choose others with --config")
    return preset


def training_options(command: F) -> F:
    """Add the options of a command that trains, except those of its data."""
    options = (
        config_options,
        click.option(
            "--output",
            type=FOLDER,
            help="Folder of the run; new or empty unless --resume is given.  [default: runs/DATE-TIME]",
        ),
        click.option("--steps", type=COUNT, help="Number of training steps in all; short for --set training.steps=N."),
        click.option(
            "--resume",
            is_flag=True,
            help="Continue the run in --output from its last checkpoint; start it if it has none.",
        ),
        click.option(
            "--allow-change",
            multiple=True,
            metavar="SECTION.KEY",
            shell_complete=complete_setting_name,
            help="With --resume: a setting that may differ; repeatable.",
        ),
        click.option(
            "--stage",
            type=FOLDER,
            metavar="DIR",
            help="Copy the cache under DIR first, check its checksums, and read it there.",
        ),
        click.option(
            "--init-from",
            type=FOLDER,
            metavar="RUN",
            help="Start with the weights of another run or checkpoint (fine-tuning).",
        ),
        click.option(
            "--profile",
            "profile_steps",
            type=COUNT,
            help="Trace this many steps, and list the most expensive operations.",
        ),
        click.option(
            "--devices", type=COUNT, help="GPUs to train on; without a GPU, parts of the CPU.  [default: all GPUs]"
        ),
        wait_workers_option,
        json_option,
    )
    for option in reversed(options):
        command = option(command)
    return command
