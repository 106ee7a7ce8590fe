"""`xtts train`: check a cache and the settings, then train on it behind the gate to TensorFlow."""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from xtts_pipeline.cache.build.plan import read_corpora
from xtts_pipeline.cache.format.contents import require_recorded_mels, require_waves
from xtts_pipeline.cache.format.identity import records_digest
from xtts_pipeline.cache.format.manifest import REJECTED_NAME, Manifest, load_manifest
from xtts_pipeline.cache.verify.verify import require_whole
from xtts_pipeline.cli.commands.cache import stage as stage_cache
from xtts_pipeline.cli.commands.looking.stats import lengths_of_cache
from xtts_pipeline.cli.corpus_options import CORPUS_OPTIONS, corpus_options, print_readings
from xtts_pipeline.cli.gate import reaching_stores, with_tensorflow
from xtts_pipeline.cli.groups import DocumentedCommand
from xtts_pipeline.cli.options import FOLDER, create_empty_folder, dated_folder
from xtts_pipeline.cli.progress import NullProgress, RunProgress, progress_bar
from xtts_pipeline.cli.run_options import cache_of_run
from xtts_pipeline.cli.summary import print_summary
from xtts_pipeline.cli.training_options import CONTINUING, MACHINE, training_cache_option, training_options
from xtts_pipeline.config.load import load_config, read_yaml
from xtts_pipeline.config.schema import Config
from xtts_pipeline.corpus.options import AUTO, ReadOptions
from xtts_pipeline.data.survey import Survey, check_settings, survey_corpus
from xtts_pipeline.errors import ConfigError, InterruptedRunError, OutputError, output_errors
from xtts_pipeline.perf.autotune import tune
from xtts_pipeline.system.atomic_files import atomic_write
from xtts_pipeline.system.runtime import gpu_count
from xtts_pipeline.system.storage import check_apart, check_local
from xtts_pipeline.system.terminal import duration_text, echo_line, shell_word
from xtts_pipeline.training.checkpoints.run_folder import (
    AUTOTUNE_NAME,
    CONFIG_NAME,
    NATIVE_LOG_NAME,
    check_new_run,
    check_run_folder,
    checkpoint_folders,
    open_run_folder,
    read_init_from,
    remove_start,
    similar_run,
)
from xtts_pipeline.training.checkpoints.state import (
    NetworkKind,
    is_whole,
    network_of,
    read_run_state,
    read_settings,
    require_network,
)
from xtts_pipeline.training.checkpoints.summary import read_summary
from xtts_pipeline.training.checks import (
    available_memory,
    check_enough_records,
    check_memory,
    describe_batches,
    describe_precision,
    idle_settings,
    slow_settings,
)
from xtts_pipeline.training.distributed.cluster import WAIT_WORKERS_SECONDS, Cluster, find_cluster
from xtts_pipeline.training.monitoring.startup import StartupTimer
from xtts_pipeline.training.plan import RunPlan, batch_shares, device_count
from xtts_pipeline.training.settings import (
    RECORDS_KEY,
    changed_settings,
    check_allowed_keys,
    check_changes,
    new_changes,
    training_config,
)
from xtts_pipeline.training.vocoder.checks import describe_crops


@dataclass(frozen=True)
class CorpusOptions:
    """The options `--data` and `--val-data`, and how both are read."""

    data: Path
    reading: ReadOptions
    val_data: Path | None


@click.command(
    cls=DocumentedCommand,
    example="xtts train --cache cache/ --output runs/first --steps 10000",
    sections={**CONTINUING, "Training without a cache": ["data", *CORPUS_OPTIONS, "val_data"], **MACHINE},
)
@training_cache_option
@click.option("--data", type=FOLDER, help="Train without a cache on this corpus of 16-bit PCM WAV files.")
@corpus_options
@click.option("--val-data", type=FOLDER, help="With --data: a second corpus that becomes the validation split.")
@training_options
@click.pass_obj
def train(
    debug: bool,
    /,
    cache: Path | None,
    data: Path | None,
    reading: ReadOptions,
    val_data: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Train on a cache, or with --data on a corpus itself.

    The cache is streamed into one XLA-compiled step.
    """
    if data is not None and cache is not None:
        raise click.UsageError("--data and --cache: found both, expected one of them; leave one out")
    if data is not None and options["stage"] is not None:
        raise click.UsageError("--stage and --data: a corpus is not staged, expected a cache; leave one out")
    if data is None and (val_data is not None or reading != AUTO):
        raise click.UsageError(
            "--val-data and --layout belong to --data, like all options of a corpus; leave them out, or add --data"
        )
    corpus = None if data is None else CorpusOptions(data, reading, val_data)
    print_summary(*run_training(cache, corpus=corpus, echo_native_log=debug, **options), as_json=as_json)


def run_training(
    cache: Path | None,
    *,
    corpus: CorpusOptions | None = None,
    output: Path | None,
    configs: Sequence[str],
    overrides: Sequence[str],
    steps: int | None,
    resume: bool,
    allow_change: Sequence[str],
    echo_native_log: bool,
    profile_steps: int | None = None,
    init_from: Path | None = None,
    stage: Path | None = None,
    devices: int | None = None,
    wait_workers: float = WAIT_WORKERS_SECONDS,
    network: NetworkKind = "acoustic",
) -> tuple[Path, dict[str, Any]]:
    """Train on a cache, or on a corpus instead, or resume a run; return the run's folder and its summary.

    Without `cache` it is that of a resumed run, else `cache`. Audio, text and limits come from it; a CacheError names
    each setting that contradicts it. A resumed run keeps its settings; a ConfigError names each that differs and is not
    in `allow_change`. `steps` may always differ. A new run with `init_from` starts with the weights and, unless
    settings say otherwise, the network of that run.
    With `stage` the cache is copied under that folder first and read there.

    If the environment describes several workers (`training.distributed.cluster`), this process is one of them. Only the
    chief writes and shows the steps; the others return a short summary.
    """
    startup, cluster = StartupTimer(), find_cluster(os.environ, wait_workers)
    _check_options(output, allow_change, cluster, devices, is_resumed=resume)
    allowed = frozenset([*allow_change, *(["training.steps"] if steps is not None else [])])
    run = output or dated_folder("runs")
    cache = cache or cache_of_run(run if resume and corpus is None else None, reads_stores=True)
    if corpus is None:
        check_apart(run, cache)

    previous = _previous_config(run, network) if resume else None
    if resume and init_from is None and not checkpoint_folders(run):
        # The run was killed before its first checkpoint: start again with the same weights.
        init_from = read_init_from(run)
    if cluster is None or cluster.index == 0:
        # Before anything is printed; the lock is taken, and files are removed, when all else has been checked.
        (check_run_folder if resume else check_new_run)(run)
    survey = None if corpus is None else _survey_data(corpus, configs, overrides, previous)
    data = cache if corpus is None else corpus.data
    manifest = _read_manifest(cache, network) if survey is None else survey.manifest
    base = None if init_from is None or previous is not None else _read_base(init_from, configs, network)
    config = training_config(
        manifest, configs, overrides, steps, previous, allowed, base, network, device_count(devices), cluster
    )
    if network == "acoustic":
        check_enough_records(data, manifest, config, batch_shares(cluster, devices))
    finished = None if previous is None else _finished_summary(run, previous, config, allowed, network, manifest)
    if finished is not None:
        if cluster is None or cluster.index == 0:
            echo_line(f"already finished: {run} has taken {finished['steps']} steps; a larger --steps continues it")
        return run, finished

    plan = RunPlan(
        data=data,
        cache=cache if corpus is None else None,
        manifest=manifest,
        survey=survey,
        config=config,
        run=run,
        allowed=allowed,
        is_resumed=resume,
        is_new=previous is None,
        profile_steps=profile_steps,
        init_from=init_from,
        cluster=cluster,
        devices=devices,
        network=network,
    )
    _check_tuning(plan, is_staged=stage is not None)
    _print_lost_cloning(plan, base)
    startup.estimated_bytes = _print_plan(plan)
    plan = _with_local_cache(plan, stage)
    if plan.is_chief:
        _check_folder(run, is_resumed=resume)
    remedy = "mend that, and go on with --resume: the last checkpoint is untouched"
    with (
        _naming_run(run, output),
        open_run_folder(run) if plan.is_chief else nullcontext(),
        output_errors(run, remedy, names_file=True),
    ):
        if plan.is_tuned_first:
            plan = replace(plan, config=_tune(plan))
            startup.estimated_bytes = _print_plan(plan)
        startup.end_part("check")
        return run, with_tensorflow(
            "xtts_pipeline.training.loop:train",
            plan,
            RunProgress if plan.is_chief else NullProgress,
            startup,
            log_path=run / NATIVE_LOG_NAME if plan.is_chief else None,
            before_import=lambda found: echo_line(f"starting TensorFlow: {found}") if plan.is_chief else None,
            echo=echo_native_log,
        )


@contextmanager
def _naming_run(run: Path, output: Path | None) -> Iterator[None]:
    """Add the run's folder to the line of an interruption if the command has not named it."""
    try:
        yield
    except InterruptedRunError as error:
        if output is not None:
            raise
        raise InterruptedRunError(f"{error}, with --output {shell_word(run)}") from None


def _check_options(
    output: Path | None,
    allow_change: Sequence[str],
    cluster: Cluster | None,
    devices: int | None,
    *,
    is_resumed: bool,
) -> None:
    """Raise OutputError or ConfigError if options contradict each other or name an unknown setting."""
    if cluster is not None and output is None:
        raise OutputError("several workers: no run is named, expected one folder for all of them; add --output RUN")
    if cluster is not None and (devices or 1) > 1 and not gpu_count():
        found = f"--devices {devices}: without GPUs each of several workers is one device"
        raise ConfigError(f"{found}; start more workers instead")
    if is_resumed and output is None:
        raise OutputError("--resume: no run is named, expected its folder; add --output RUN")
    if allow_change and not is_resumed:
        raise ConfigError("--allow-change: a new run has nothing to change; leave it out, or add --resume")
    check_allowed_keys(allow_change)


def _check_folder(run: Path, *, is_resumed: bool) -> None:
    """Say that a resumed run has no checkpoint. Raise OutputError if the folder of a new run holds anything."""
    if not is_resumed:
        remove_start(run)
        create_empty_folder(run)
    elif not checkpoint_folders(run):
        similar = None if run.exists() else similar_run(run)
        hint = "" if similar is None else f"; did you mean {similar}?"
        echo_line(f"--resume: no checkpoint in {run}: beginning at step 0{hint}")


def _read_manifest(cache: Path, network: NetworkKind) -> Manifest:
    with reaching_stores(cache):
        manifest = load_manifest(cache)
    (require_waves if network == "vocoder" else require_recorded_mels)(cache, manifest)
    return manifest


def _read_base(run: Path, configs: Sequence[str], network: NetworkKind) -> Config:
    """Return the settings of the run that a new one begins with. Without `configs`, say which of them it takes."""
    config = read_settings(run, network)
    if not configs:
        echo_line(f"settings: the network of {run}, the cache's, and defaults; choose others with --config")
    return config


def _previous_config(run: Path, network: NetworkKind) -> Config | None:
    """Return the settings of a run that has begun, or None.

    Raises OutputError if they are lost, CheckpointError if it trains another network.
    """
    if (found := network_of(run)) is not None:
        require_network(run, found, network)
    path = run / CONFIG_NAME
    # A crash may leave an empty file, which would stand for all defaults.
    if not path.is_file() or not path.stat().st_size:
        if not os.path.lexists(path) and not checkpoint_folders(run):
            return None
        raise OutputError(
            f"{path}: empty or no regular file, expected the run's settings; restore it from a checkpoint's state.json"
        )
    return load_config(base=read_yaml(path), base_source=str(path))


def _survey_data(
    options: CorpusOptions, configs: Sequence[str], overrides: Sequence[str], previous: Config | None
) -> Survey:
    """Read and check every row of the corpus, with the settings of a `previous` run, and print what is kept.

    Raises ConfigError or CorpusError if TensorFlow operations cannot read the corpus exactly as a cache is built.
    """
    config = load_config(configs, overrides, {} if previous is None else previous.model_dump(mode="json"))
    check_settings(config)
    index = read_corpora(options.data, options.val_data, options.reading, config)
    print_readings(index)
    with progress_bar(len(index.rows), title="read") as bar:
        survey = survey_corpus(index, config, bar.update)
    counts, reasons = survey.manifest.counts, survey.manifest.rejected_by_reason
    found = f"{survey.manifest.layout}: read {counts.read} = kept {counts.kept} + rejected {counts.rejected}"
    if reasons:
        listed = ", ".join(f"{reason} {count}" for reason, count in sorted(reasons.items()))
        found = f"{found} ({listed}); the run's {REJECTED_NAME} gives each reason"
    echo_line(found)
    return survey


def _finished_summary(
    run: Path, previous: Config, config: Config, allowed: frozenset[str], network: NetworkKind, manifest: Manifest
) -> dict[str, Any] | None:
    """Return the summary of a run that is over and needs no more steps, or None.

    Raises ConfigError for a change that is not allowed, as `resume` does: it compares the checkpoint too.
    """
    changes, summary = changed_settings(previous, config), read_summary(run)
    if summary is not None or not checkpoint_folders(run):
        check_changes(run, changes, allowed)
    elif is_whole(run):
        saved = changed_settings(read_run_state(run).config, config)
        check_changes(run, new_changes(run, saved, config), allowed)
    if summary is None:
        return None
    require_network(run, summary["network"], network)
    if not is_whole(run):
        return None  # `resume` goes back behind a damaged checkpoint
    if config.training.steps <= summary["steps"]:
        return summary
    is_changed = changes or (RECORDS_KEY in allowed and _has_other_records(run, network, manifest))
    return summary if summary["stopped_early"] and not is_changed else None


def _has_other_records(run: Path, network: NetworkKind, manifest: Manifest) -> bool:
    """Return whether the newest checkpoint of the run, if it has one, is of other records than the manifest's."""
    states = [read_run_state(folder).run for folder in checkpoint_folders(run)[-1:]]
    digest = records_digest(manifest, with_waves=network == "vocoder")
    return any(state is not None and state.records != digest for state in states)


def _check_tuning(plan: RunPlan, *, is_staged: bool) -> None:
    """Raise ConfigError or CacheError if `training.autotune` cannot measure this run."""
    if not plan.is_tuned_first:
        return
    for is_found, found, remedy in (
        (plan.survey is not None, "--data, expected a cache", "preprocess first, or leave it out"),
        (plan.cluster is not None, "several workers, expected one", "tune on one first"),
        (device_count(plan.devices) > 1, "several devices, expected one", "tune with --devices 1 first"),
        (plan.network == "vocoder", "a vocoder, expected an acoustic model", "leave it out"),
    ):
        if is_found:
            raise ConfigError(f"training.autotune: found true with {found} to measure; {remedy}")
    if not is_staged:
        check_local(plan.data, "leave training.autotune out, or add --stage DIR")


def _print_lost_cloning(plan: RunPlan, base: Config | None) -> None:
    """Warn, in the chief, that a run of several speakers cannot clone because the run that it begins with cannot."""
    is_taken = base is not None and not base.model.voice_latents and not plan.config.model.voice_latents
    if plan.is_chief and plan.network == "acoustic" and is_taken and len(plan.manifest.speakers) > 1:
        found = f"{plan.init_from} has model.voice_latents=0, so the new run cannot clone voices"
        echo_line(f"warning: {found}; --set model.voice_latents=32 lets it")


def _print_plan(plan: RunPlan) -> int | None:
    """Print batch shapes, memory, precision and slow settings, in the chief only; return the estimated bytes, if known.

    Raises ConfigError if there is not enough memory, and the errors of `describe_crops`.
    """
    needed: int | None = None
    if plan.network == "vocoder":
        with reaching_stores(plan.data):
            lines = describe_crops(plan.data, plan.manifest, plan.config)
    else:
        needed, memory_text = check_memory(
            plan.manifest, plan.config, available_memory(), plan.memory_shares, plan.batch_shares
        )
        lines = [*describe_batches(plan.manifest, plan.config, plan.batch_shares), f"memory: {memory_text}"]
    if not plan.is_chief:
        return needed
    lines += [describe_precision(plan.config.training), *slow_settings(plan.config.training)]
    for line in [*lines, *idle_settings(plan.config, plan.network, is_cached=plan.survey is None)]:
        echo_line(line)
    return needed


def _with_local_cache(plan: RunPlan, stage: Path | None) -> RunPlan:
    """Return the plan with the cache to read, the named one or its copy under `stage`, after checking its files."""
    if plan.survey is not None:
        return plan
    if plan.network == "vocoder" and stage is None:
        check_local(plan.data, "add --stage DIR")
    with reaching_stores(plan.data):
        cache = plan.data if stage is None else stage_cache(plan.data, stage)
        require_whole(cache)
    return replace(plan, data=cache)


def _tune(plan: RunPlan) -> Config:
    """Measure settings, print the choice, write RUN/autotune.json, and return the chosen settings.

    Raises TrainingError if the step cannot run at all.
    """
    echo_line(f"autotune: measuring for about {duration_text(plan.config.training.autotune_seconds)}")
    lengths = lengths_of_cache(plan.data, plan.manifest)
    tuning = tune(
        plan.data,
        plan.manifest,
        plan.config,
        (lengths.tokens, lengths.frames),
        echo_line,
    )
    for line in tuning.lines or ["nothing is better than what is set"]:
        echo_line(f"autotune: {line}")
    with atomic_write(plan.run / AUTOTUNE_NAME) as file:
        file.write(json.dumps(tuning.report, indent=1).encode() + b"\n")
    return tuning.config
