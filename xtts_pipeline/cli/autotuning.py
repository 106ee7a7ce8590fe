"""`training.autotune`: settings measured before a run's first step, and why they were chosen, written beside it."""

import json
from collections.abc import Collection
from pathlib import Path

import click

from xtts_pipeline.cache.format.manifest import Manifest
from xtts_pipeline.cli.commands.stats import lengths_of_cache
from xtts_pipeline.config.schema import Config
from xtts_pipeline.perf.autotune import tune
from xtts_pipeline.system.atomic_files import atomic_write

REPORT_NAME = "autotune.json"
# What a run keeps of its tuning when it goes on, whatever the command says: measuring again would be another run.
TUNED_KEYS = ("training.batch_size", "training.accumulation_steps", "data.num_workers", "data.prefetch_buffer_size")


def tuned_config(run: Path, cache: Path, manifest: Manifest, config: Config) -> Config:
    """Measure, say on stderr what was chosen, write the figures to RUN/autotune.json, and return the chosen settings.

    Raises TrainingError if the step cannot be run at all, OSError if the disk refuses the report.
    """
    click.echo(f"autotune: measuring for about {config.training.autotune_seconds:g} s", err=True)
    lengths = lengths_of_cache(cache, manifest)
    tuning = tune(cache, manifest, config, (lengths.tokens, lengths.frames), lambda line: click.echo(line, err=True))
    for line in tuning.lines or ["nothing is better than what is set"]:
        click.echo(f"autotune: {line}", err=True)
    with atomic_write(run / REPORT_NAME) as file:
        file.write(json.dumps(tuning.report, indent=1).encode() + b"\n")
    return tuning.config


def tuned_overrides(previous: Config, allowed: Collection[str]) -> list[str]:
    """Return the settings that a tuned run goes on with as `section.key=value`, but those that may change by key or section.

    None for a run that was not tuned.
    """
    if not previous.training.autotune:
        return []
    settings = previous.model_dump(mode="json")
    kept = [key.split(".") for key in TUNED_KEYS if not {key, key.partition(".")[0]} & {*allowed}]
    return [f"{section}.{key}={json.dumps(settings[section][key])}" for section, key in kept]
