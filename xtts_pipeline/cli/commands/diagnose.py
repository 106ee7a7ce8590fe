"""`xtts diagnose`: what is slow or wrong in training, why, and what to do about it."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import click
from click.core import ParameterSource

from xtts_pipeline.cache.format.contents import require_waves
from xtts_pipeline.cache.format.manifest import Manifest, load_manifest
from xtts_pipeline.cache.verify.verify import require_whole
from xtts_pipeline.cli.gate import with_tensorflow
from xtts_pipeline.cli.groups import SummaryGroup
from xtts_pipeline.cli.options import FOLDER, PICTURE, Count, Seconds, json_option, print_report
from xtts_pipeline.cli.run_options import cache_of_run, config_options, run_cache_option
from xtts_pipeline.cli.training_options import vocoder_preset
from xtts_pipeline.config.schema import Config
from xtts_pipeline.errors import CheckpointError, ConfigError
from xtts_pipeline.system.storage import check_apart
from xtts_pipeline.system.terminal import echo_line, shell_word
from xtts_pipeline.training.checkpoints.run_folder import (
    CONFIG_NAME,
    checkpoint_folders,
    find_run_file,
    nearest_run,
    read_cache_path,
)
from xtts_pipeline.training.checkpoints.state import NetworkKind, network_of, read_run_state
from xtts_pipeline.training.checks import check_enough_records
from xtts_pipeline.training.settings import training_config
from xtts_pipeline.training.vocoder.checks import describe_crops

_BATCHES = Count(2)
_run_option = click.option("--run", type=FOLDER, help="Folder of a run whose cache and settings are diagnosed.")
_network_option = click.option(
    "--network",
    type=click.Choice(get_args(NetworkKind)),
    help="Whose step is diagnosed.  [default: that of the run, else acoustic]",
)


@click.group(cls=SummaryGroup)
def diagnose() -> None:
    """Find what is slow or wrong in training, and how to mend it."""


@diagnose.command("retracing", example="xtts diagnose retracing --run runs/first")
@_run_option
@run_cache_option
@_network_option
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
def diagnose_retracing(
    context: click.Context, /, run: Path | None, steps: int, demonstrate: bool, as_json: bool, **options: Any
) -> None:
    """Find what would make the training step be traced or compiled again.

    Exit code 0 if each step runs the one program that was compiled for it, 1 if not.
    """
    if not demonstrate:
        network = options.pop("network") or _network_of(run)
        report = with_tensorflow(
            "xtts_pipeline.perf.diagnose.retracing:diagnose_retracing",
            *_read_subject(run, network, **options),
            echo=context.obj,
            steps=steps,
            network=network,
        )
        print_report(report, as_json, is_true=report.verdict.is_healthy)
        return
    if any(context.get_parameter_source(name) is not ParameterSource.DEFAULT for name in ("run", "steps", *options)):
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
def diagnose_input(
    debug: bool,
    /,
    run: Path | None,
    batches: int,
    measure_fix: bool,
    plot: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Find out whether batches come as fast as the step takes them, and if not, why.

    Exit code 0 if they do, 1 if not.
    """
    network = _network_of(run)
    if network == "vocoder":
        raise ConfigError(
            f"{run}: found the run of a vocoder, expected one of an acoustic model, whose pipeline has these stages; "
            f"xtts diagnose gpu --run {shell_word(str(run))} measures how long a vocoder's step waits for its batches"
        )
    report = with_tensorflow(
        "xtts_pipeline.perf.diagnose.input:diagnose_input",
        *_read_subject(run, network, plot, **options),
        echo=debug,
        batches=batches,
        measure_fix=measure_fix,
        plot=plot,
    )
    print_report(report, as_json, is_true=report.verdict.is_healthy)


@diagnose.command("gpu", example="xtts diagnose gpu --run runs/first --seconds 60")
@_run_option
@run_cache_option
@_network_option
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
def diagnose_gpu(debug: bool, /, run: Path | None, seconds: float, plot: Path, as_json: bool, **options: Any) -> None:
    """Run the training step, and show what the GPU does and what it waits for.

    Exit code 0 if it is busy or there is none, 1 if not.
    """
    network = options.pop("network") or _network_of(run)
    report = with_tensorflow(
        "xtts_pipeline.perf.diagnose.gpu:diagnose_gpu",
        *_read_subject(run, network, plot, **options),
        echo=debug,
        seconds=seconds,
        plot=plot,
        network=network,
    )
    print_report(report, as_json, is_true=not report.is_bad)


def _read_subject(
    run: Path | None,
    network: NetworkKind,
    plot: Path | None = None,
    *,
    cache: Path | None,
    configs: Sequence[str],
    overrides: Sequence[str],
) -> tuple[Path, Manifest, Config]:
    """Return the cache and the settings, checked as `xtts train` or `xtts train-vocoder` does."""
    if run is not None:
        settings = find_run_file(run, CONFIG_NAME)
        if settings is None:
            raise CheckpointError(f"{run}: no {CONFIG_NAME} here; {nearest_run(run)}")
        if not settings.stat().st_size:  # a crash may leave it, and it would stand for all defaults
            raise CheckpointError(f"{settings}: empty, expected the run's settings; restore it from a state.json")
        configs = [str(settings), *configs]
        if cache is None and read_cache_path(run) is None:
            raise ConfigError(f"{run}: names no cache, such as a run of xtts train --data; name one with --cache")
    elif network == "vocoder" and not configs:
        configs = [vocoder_preset()]
    cache = cache or cache_of_run(run)
    if plot is not None:
        check_apart(plot, cache, "choose another --plot")
    manifest = load_manifest(cache)
    if network == "vocoder":
        require_waves(cache, manifest)
    require_whole(cache)
    config = training_config(manifest, configs, overrides, steps=None, network=network)
    if config.training.debug_eager:
        raise ConfigError(
            "training.debug_eager: found true, expected the compiled step, which is diagnosed; "
            "set training.debug_eager=false"
        )
    if network == "vocoder":
        describe_crops(cache, manifest, config)
    else:
        check_enough_records(cache, manifest, config)
    return cache, manifest, config


def _network_of(run: Path | None) -> NetworkKind:
    """Return what a run trains; without a run, an acoustic model."""
    if run is None:
        return "acoustic"
    if (network := network_of(run)) is not None:
        return network
    if checkpoint_folders(run):
        return read_run_state(run).network
    if find_run_file(run, CONFIG_NAME) is not None:
        echo_line(f"{run}: neither network.txt nor a checkpoint says what it trains: diagnosed as an acoustic model")
    return "acoustic"
