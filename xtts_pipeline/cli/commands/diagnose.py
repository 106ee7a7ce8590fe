"""`xtts diagnose`: what is slow or wrong in training, why, and what to do about it."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from xtts_pipeline.cache.format.manifest import load_manifest
from xtts_pipeline.cache.verify.verify import require_whole
from xtts_pipeline.cli.gate import with_tensorflow
from xtts_pipeline.cli.groups import SummaryGroup
from xtts_pipeline.cli.options import (
    FOLDER,
    PICTURE,
    Count,
    Seconds,
    cache_of_run,
    config_options,
    json_option,
    print_report,
    run_cache_option,
)
from xtts_pipeline.errors import CheckpointError, ConfigError
from xtts_pipeline.system.storage import check_apart
from xtts_pipeline.training.checkpoints.run_folder import CONFIG_NAME, find_run_file, nearest_run
from xtts_pipeline.training.checks import check_enough_records
from xtts_pipeline.training.settings import training_config

_BATCHES = Count(2)
_run_option = click.option("--run", type=FOLDER, help="Folder of a run whose cache and settings are diagnosed.")


@click.group(cls=SummaryGroup)
def diagnose() -> None:
    """Find what is slow or wrong in training, and how to mend it."""


@diagnose.command("retracing", example="xtts diagnose retracing --run runs/first")
@_run_option
@run_cache_option
@config_options
@click.option(
    "--steps",
    type=_BATCHES,
    default=10,
    show_default=True,
    help="Number of batches to compare and of steps to run.",
)
@click.option(
    "--demonstrate",
    is_flag=True,
    help="Show on a small network what varying shapes cost; takes no cache and no settings.",
)
@json_option
@click.pass_context
def diagnose_retracing(context: click.Context, /, demonstrate: bool, as_json: bool, **options: Any) -> None:
    """Find what would make the training step be traced or compiled again.

    Exit code 0 if each step runs the one program that was compiled for it, 1 if not.
    """
    if not demonstrate:
        report = _diagnose("xtts_pipeline.perf.diagnose.retracing:diagnose_retracing", echo=context.obj, **options)
        print_report(report, as_json, is_true=report.verdict.is_healthy)
        return
    if any(context.get_parameter_source(name) is not ParameterSource.DEFAULT for name in options):
        raise click.UsageError("--demonstrate: found other options beside it, expected none but --json; leave them out")
    # LLVM's optimisations would take over a minute; the number of compilations is the same without them.
    os.environ["XLA_FLAGS"] = f"--xla_backend_optimization_level=0 {os.environ.get('XLA_FLAGS', '')}".strip()
    print_report(with_tensorflow("xtts_pipeline.perf.diagnose.demonstration:demonstrate", echo=context.obj), as_json)


@diagnose.command("input", example="xtts diagnose input --run runs/first --measure-fix")
@_run_option
@run_cache_option
@config_options
@click.option("--batches", type=_BATCHES, default=50, show_default=True, help="Number of batches to time.")
@click.option(
    "--measure-fix", is_flag=True, help="Measure how much faster input becomes with the setting that the verdict names."
)
@click.option("--plot", type=PICTURE, help="Picture to write of the times of the batches and the costs of the stages.")
@json_option
@click.pass_obj
def diagnose_input(debug: bool, /, plot: Path | None, as_json: bool, **options: Any) -> None:
    """Find out whether batches come as fast as the step takes them, and if not, why.

    Exit code 0 if they do, 1 if not.
    """
    report = _diagnose("xtts_pipeline.perf.diagnose.input:diagnose_input", echo=debug, plot=plot, **options)
    print_report(report, as_json, is_true=report.verdict.is_healthy)


@diagnose.command("gpu", example="xtts diagnose gpu --run runs/first --seconds 60")
@_run_option
@run_cache_option
@config_options
@click.option("--seconds", type=Seconds(0.1), default=20.0, show_default=True, help="How long to run the step.")
@click.option(
    "--plot",
    type=PICTURE,
    default=Path("gpu.png"),
    show_default=True,
    help="PNG, SVG or PDF file for the steps and the use of the GPU over time.",
)
@json_option
@click.pass_obj
def diagnose_gpu(debug: bool, /, as_json: bool, **options: Any) -> None:
    """Run the training step, and show what the GPU does and what it waits for.

    Exit code 0 if it is busy or there is none, 1 if not.
    """
    report = _diagnose("xtts_pipeline.perf.diagnose.gpu:diagnose_gpu", echo=debug, **options)
    print_report(report, as_json, is_true=not report.is_bad)


def _diagnose(
    target: str,
    run: Path | None,
    cache: Path | None,
    configs: Sequence[str],
    overrides: Sequence[str],
    *,
    echo: bool,
    **options: Any,
) -> Any:
    """Check cache and settings as `xtts train` does, and return the report of the target."""
    if run is not None:
        settings = find_run_file(run, CONFIG_NAME)
        if settings is None:
            raise CheckpointError(f"{run}: no {CONFIG_NAME} here; {nearest_run(run)}")
        configs = [str(settings), *configs]
    cache = cache or cache_of_run(run)
    if options.get("plot") is not None:
        check_apart(options["plot"], cache, "choose another --plot")
    manifest = load_manifest(cache)
    require_whole(cache)
    config = training_config(manifest, configs, overrides, steps=None)
    if config.training.debug_eager:
        raise ConfigError(
            "training.debug_eager: found true, expected the compiled step, which is diagnosed; leave it out"
        )
    check_enough_records(cache, manifest, config)
    return with_tensorflow(target, cache, manifest, config, echo=echo, **options)
