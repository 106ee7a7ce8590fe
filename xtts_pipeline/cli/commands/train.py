"""`xtts train`: a cache in, a run out."""

import json
import os
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from xtts_pipeline.cache.format.manifest import (
    CACHE_SECTIONS,
    REJECTED_NAME,
    Manifest,
    bucket_specs,
    cache_settings,
    config_differences,
    load_manifest,
)
from xtts_pipeline.cache.format.schema import SPLITS
from xtts_pipeline.cache.verify.verify import require_whole
from xtts_pipeline.cli.autotuning import REPORT_NAME, tuned_config, tuned_overrides
from xtts_pipeline.cli.commands.cache import reaching_stores
from xtts_pipeline.cli.commands.cache import stage as stage_cache
from xtts_pipeline.cli.native_training import CorpusOptions, survey_data
from xtts_pipeline.cli.options import (
    COUNT,
    FOLDER,
    config_options,
    create_empty_folder,
    json_option,
    layout_option,
    stored_cache_option,
)
from xtts_pipeline.cli.progress import RunProgress, Silence
from xtts_pipeline.cli.run_summary import summary_text
from xtts_pipeline.cli.training_job import TrainingJob, device_count
from xtts_pipeline.cli.training_memory import available_memory, check_memory, choose_batch_size, filled_batch_size
from xtts_pipeline.config.load import load_config
from xtts_pipeline.config.schema import Config, ModelConfig
from xtts_pipeline.data.buckets import batch_sizes, unfilled_buckets
from xtts_pipeline.errors import CacheError, ConfigError, OutputError
from xtts_pipeline.system.runtime import NativeLog
from xtts_pipeline.system.storage import check_local, is_stored
from xtts_pipeline.training.checkpoints.run_folder import (
    ANCESTOR_NAME,
    BEST_FOLDER,
    CONFIG_NAME,
    LAST_FOLDER,
    LOCK_NAME,
    SUMMARY_NAME,
    checkpoint_folders,
    locked_run,
    read_ancestor,
    read_summary,
)
from xtts_pipeline.training.checkpoints.saved_state import saved_config
from xtts_pipeline.training.config_diff import RECORDS_KEY, changed_settings, check_allowed_keys, check_changes
from xtts_pipeline.training.distributed.cluster import Cluster, find_cluster
from xtts_pipeline.training.monitoring.startup import StartUp

# What a run's folder may hold; anything else in it says that it is no run.
_RUN_NAMES = frozenset(
    {
        CONFIG_NAME,
        ANCESTOR_NAME,
        SUMMARY_NAME,
        LOCK_NAME,
        LAST_FOLDER,
        BEST_FOLDER,
        REJECTED_NAME,
        REPORT_NAME,
        "metrics.jsonl",
        "skipped.jsonl",
        "left_out.jsonl",
        "profile",
        "tensorboard",
        "tensorflow.log",
    }
)


@click.command()
@stored_cache_option
@click.option("--data", type=FOLDER, help="Train without a cache on this corpus of 16-bit PCM WAV files.")
@layout_option
@click.option("--val-data", type=FOLDER, help="With --data: a second corpus that becomes the validation split.")
@config_options
@click.option(
    "--output", type=FOLDER, help="Folder of the run; new or empty unless --resume is given.  [default: runs/DATE-TIME]"
)
@click.option("--steps", type=COUNT, help="Number of training steps in all; short for --set training.steps=N.")
@click.option(
    "--resume", is_flag=True, help="Continue the run in --output from its last checkpoint; start it if it has none."
)
@click.option(
    "--allow-change", multiple=True, metavar="SECTION.KEY", help="With --resume: a setting that may differ; repeatable."
)
@click.option(
    "--stage",
    type=FOLDER,
    metavar="DIR",
    help="Copy the cache under DIR first, check its checksums, and read it there.",
)
@click.option(
    "--init-from", type=FOLDER, metavar="RUN", help="Start with the weights of another run or checkpoint (fine-tuning)."
)
@click.option(
    "--profile", "profile_steps", type=COUNT, help="Trace this many steps, and list the most expensive operations."
)
@click.option("--devices", type=COUNT, help="GPUs to train on; without a GPU, parts of the CPU.  [default: all GPUs]")
@json_option
@click.pass_obj
def train(
    debug: bool, /, cache: Path, data: Path | None, layout: str, val_data: Path | None, as_json: bool, **options: Any
) -> None:
    """Train on a cache, or with --data on a corpus itself.

    The cache is streamed into one XLA-compiled step.
    """
    is_cache_named = click.get_current_context().get_parameter_source("cache") is not ParameterSource.DEFAULT
    if data is not None and is_cache_named:
        raise click.UsageError("--data and --cache: found both, expected one of them; leave one out")
    if data is not None and options["stage"] is not None:
        raise click.UsageError("--stage and --data: a corpus is not staged, expected a cache; leave one out")
    if data is None and (val_data is not None or layout != "auto"):
        raise click.UsageError(
            "--val-data and --layout belong to --data: a cache has its own; leave them out, or add --data"
        )
    corpus = None if data is None else CorpusOptions(data, layout, val_data)
    folder, summary = run_training(cache, corpus=corpus, echo_native_log=debug, **options)
    click.echo(json.dumps(summary) if as_json else summary_text(folder, summary))


def run_training(
    cache: Path,
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
) -> tuple[Path, dict[str, Any]]:
    """Train on a cache, or on a corpus in its place, or go on with a run; return the run's folder and its summary.

    Audio, text and limits come from the cache; a config that contradicts them is a CacheError that names each difference. A run that goes
    on keeps its settings; a ConfigError names each that is asked to differ and is not in `allow_change`. `steps` may always differ.
    A new run begins with the weights of `init_from`, another run or a checkpoint, and has that run's model unless the settings say else.
    With `stage` the cache is copied under that folder first and read there.

    Where the environment describes several workers (`training.cluster`), this is one of them; all but the chief write nothing, say errors
    alone, and return a summary of their own.
    """
    startup, cluster = StartUp(), find_cluster(os.environ)
    _check_options(output, allow_change, cluster, is_resumed=resume)
    allowed = frozenset([*allow_change, *(["training.steps"] if steps is not None else [])])
    run = output or Path("runs") / time.strftime("%Y%m%d-%H%M%S")
    if corpus is None:
        _check_apart(run, cache)
    previous = _previous_config(run) if resume else None
    if resume and previous is None and init_from is None:
        # It was killed before its first checkpoint: the weights it began with are part of it.
        init_from = read_ancestor(run)
    survey = None if corpus is None else survey_data(corpus, configs, overrides, previous)
    cache, manifest = (
        (cache, _read_manifest(cache)) if corpus is None or survey is None else (corpus.data, survey.manifest)
    )
    model = None if init_from is None or previous is not None else saved_config(init_from).model
    config = training_config(
        manifest, configs, overrides, steps, previous, allowed, model, devices=device_count(devices), cluster=cluster
    )
    check_enough_records(cache, manifest, config)
    finished = None if previous is None else _finished_summary(run, previous, config, allowed)
    if finished is not None:
        return run, finished
    job = TrainingJob(
        cache,
        manifest,
        survey,
        config,
        run,
        allowed,
        resume,
        previous is None,
        profile_steps,
        init_from,
        cluster,
        devices,
    )
    return run, _carry_out(job, stage, startup, echo_native_log=echo_native_log)


def _check_options(
    output: Path | None, allow_change: Sequence[str], cluster: Cluster | None, *, is_resumed: bool
) -> None:
    """Raise OutputError or ConfigError for options that make no sense together, or for a key that is none."""
    if cluster is not None and output is None:
        raise OutputError("several workers: no run is named, expected one folder for all of them; add --output RUN")
    if is_resumed and output is None:
        raise OutputError("--resume: no run is named, expected its folder; add --output RUN")
    if allow_change and not is_resumed:
        raise ConfigError("--allow-change: a new run has nothing to change; leave it out, or add --resume")
    check_allowed_keys(allow_change)


def _check_apart(run: Path, cache: Path) -> None:
    """Raise OutputError if the run would lie in the cache: its files would be no part of it, and the cache no longer be proved."""
    if not is_stored(cache) and cache.resolve() in (run.resolve(), *run.resolve().parents):
        raise OutputError(f"{run}: lies in {cache}, expected a folder apart from it; choose another --output")


def _read_manifest(cache: Path) -> Manifest:
    with reaching_stores(cache):
        return load_manifest(cache)


def _carry_out(job: TrainingJob, stage: Path | None, startup: StartUp, *, echo_native_log: bool) -> dict[str, Any]:
    """Make a checked job happen, the cheapest refusals first; return the summary."""
    _check_tuning(job, is_staged=stage is not None)
    startup.estimated_bytes = _tell_plan(job)
    job = _with_proved_cache(job, stage)
    with _held_folder(job), _full_disk_is_an_error(job.run):
        job = _tuned(job, startup)
        with (
            NativeLog(job.run / "tensorflow.log" if job.is_chief else None, echo=echo_native_log) as log,
            (RunProgress if job.is_chief else Silence)(job.config.training.steps) as progress,
        ):
            if job.is_chief:
                progress.note(f"starting: {log.environment}")
            startup.note("check")
            # Late: TensorFlow must not be imported before its log is redirected.
            from xtts_pipeline.cli.training_run import run_job

            return run_job(job, log, progress, startup)


def _check_tuning(job: TrainingJob, *, is_staged: bool) -> None:
    """Raise ConfigError or CacheError if settings are to be measured where they cannot be."""
    if not job.is_tuned_first:
        return
    if job.survey is not None:
        raise ConfigError(
            "training.autotune: found true with --data, expected a cache to measure; preprocess first, or leave it out"
        )
    if job.cluster is not None:
        raise ConfigError(
            "training.autotune: found true with several workers, expected one to measure; tune on one first"
        )
    if device_count(job.devices) > 1:
        raise ConfigError(
            "training.autotune: found true with several devices, expected one to measure; tune with --devices 1 first"
        )
    if not is_staged:
        check_local(job.cache, "leave training.autotune out, or add --stage DIR")


def _tell_plan(job: TrainingJob) -> int:
    """Say what batches look like, what memory is needed, and what makes the run slow on purpose; return the bytes that are needed.

    Raises ConfigError if there is not as much memory. Of several workers the chief says it.
    """
    needed, memory_text = check_memory(job.manifest, job.config, available_memory(), job.shares)
    if not job.is_chief:
        return needed
    click.echo(shapes_text(job.manifest, job.config), err=True)
    click.echo(f"memory: {memory_text}", err=True)
    if job.config.training.debug_eager:
        click.echo(
            "training.debug_eager: the step runs uncompiled, operation by operation, many times slower; for a debugger",
            err=True,
        )
    return needed


def _with_proved_cache(job: TrainingJob, stage: Path | None) -> TrainingJob:
    """Return the job with the cache that it reads: the one that was named, or its whole copy under `stage`; its files are all there."""
    if job.survey is not None:
        return job
    with reaching_stores(job.cache):
        cache = job.cache if stage is None else stage_cache(job.cache, stage)
        require_whole(cache)
    return replace(job, cache=cache)


@contextmanager
def _held_folder(job: TrainingJob) -> Iterator[None]:
    """Make the run's folder and hold its lock, where this process writes it. Raises OutputError if it may not."""
    if not job.is_chief:
        yield
        return
    _make_folder(job.run, is_resumed=job.is_resumed)
    with locked_run(job.run):
        yield


def _tuned(job: TrainingJob, startup: StartUp) -> TrainingJob:
    """Return the job with the settings that `training.autotune` measures, where it is asked to, and say what the run is with them."""
    if not job.is_tuned_first:
        return job
    tuned = replace(job, config=tuned_config(job.run, job.cache, job.manifest, job.config))
    startup.estimated_bytes = _tell_plan(tuned)
    return tuned


def training_config(
    manifest: Manifest,
    configs: Sequence[str],
    overrides: Sequence[str],
    steps: int | None,
    previous: Config | None = None,
    allowed: Collection[str] = (),
    model: ModelConfig | None = None,
    devices: int = 1,
    cluster: Cluster | None = None,
) -> Config:
    """Return the settings of the cache, or of the run that goes on, overlaid with the user's, or say which contradict the cache.

    A new run has the settings of `model`, where it is to begin with the weights of one. `training.batch_size: auto` is a number in them:
    that of the run that goes on, or what fits into the memory.
    """
    base: dict[str, Any] = {
        **cache_settings(manifest),
        **({} if model is None else {"model": model.model_dump(mode="json")}),
    }
    if previous is not None:
        settings = previous.model_dump(mode="json")
        base = {**settings, **({"cache": base["cache"]} if RECORDS_KEY in allowed else {})}
    steps_override = [] if steps is None else [f"training.steps={steps}"]
    tuned = [] if previous is None else tuned_overrides(previous, allowed)
    config = load_config(configs, [*overrides, *steps_override, *tuned], base)
    differences = config_differences(manifest, config, CACHE_SECTIONS)
    if differences:
        listed = "; ".join(differences)
        remedy = (
            "preprocess again, or leave these settings out"
            if previous is None
            else "use the cache of the run, or another --output"
        )
        raise CacheError(f"the cache was made with other settings: {listed}; {remedy}")
    if config.training.batch_size == "auto" and previous is not None:
        training = config.training.model_copy(update={"batch_size": previous.training.batch_size})
        return config.model_copy(update={"training": training})
    if config.training.batch_size == "auto" and cluster is not None:
        raise ConfigError(
            "training.batch_size=auto: each worker would choose by its own memory, expected one size for all; give a number"
        )
    return choose_batch_size(manifest, config, available_memory(), devices)


def _previous_config(run: Path) -> Config | None:
    """Return the settings of a run that has a checkpoint to go on from, or None: without one nothing is lost by other settings."""
    if not checkpoint_folders(run):
        return None
    if not (run / CONFIG_NAME).is_file():
        raise OutputError(
            f"{run / CONFIG_NAME}: no such file, expected the run's settings; restore it from a checkpoint's state.json"
        )
    return load_config([str(run / CONFIG_NAME)])


def _finished_summary(run: Path, previous: Config, config: Config, allowed: Collection[str]) -> dict[str, Any] | None:
    """Return the summary of a run that is over and of which no more steps are asked, or None."""
    summary = read_summary(run)
    if summary is None:
        return None
    changes = changed_settings(previous, config)
    check_changes(run, changes, allowed)
    is_enough = config.training.steps <= summary["steps"] or (summary["stopped_early"] and not changes)
    return summary if is_enough else None


def check_enough_records(cache: Path, manifest: Manifest, config: Config) -> None:
    """Raise CacheError if a bucket cannot fill one training batch, or if early stopping has no validation split to go by.

    A bucket without training records needs none; what another bucket has too few of would never be trained.
    """
    training = config.training
    if not manifest.split_records("train"):
        raise CacheError(f"{cache}: 0 training records; preprocess a larger corpus")
    for bucket, found, needed in unfilled_buckets(manifest, training.clips_per_batch, training.accumulation_steps):
        smaller = filled_batch_size(manifest, training.clips_per_batch, training.accumulation_steps)
        remedy = (
            "preprocess with other data.buckets" if smaller is None else f"set training.batch_size={smaller} or less"
        )
        where = f"bucket {bucket} {list(manifest.buckets[bucket])}: " if manifest.buckets else ""
        rows = f", which is {needed} rows in this bucket" if manifest.buckets else ""
        raise CacheError(
            f"{cache}: {where}{found} training records, but training.batch_size={training.batch_size}{rows}; {remedy}"
        )
    if training.patience is not None and not manifest.split_records("val"):
        raise CacheError(
            f"{cache}: no validation records, but training.patience={training.patience} waits for their loss; "
            "leave it out, or preprocess with cache.validation_share over 0"
        )


def shapes_text(manifest: Manifest, config: Config) -> str:
    """Return what batches look like: rows, tokens and frames in those of each bucket, and how many of the cache's frames are padding."""
    specs = bucket_specs(manifest)
    sizes = batch_sizes(specs, config.training.clips_per_batch, config.training.accumulation_steps)
    shapes = ", ".join(
        f"{rows} x {spec.max_text_length} x {spec.max_mel_frames}" for rows, spec in zip(sizes, specs, strict=True)
    )
    records = [sum(manifest.split_records(split, bucket) for split in SPLITS) for bucket in range(len(specs))]
    frames = sum(count * spec.max_mel_frames for count, spec in zip(records, specs, strict=True))
    padding = 1.0 - manifest.statistics["frames"].mean * manifest.counts.kept / frames
    return f"batches of {shapes} (clips x tokens x frames); {padding:.0%} of the frames are padding"


@contextmanager
def _full_disk_is_an_error(run: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputError(
            f"{error.filename or run}: cannot be written ({error.strerror}); the last checkpoint is untouched"
        ) from None


def _make_folder(run: Path, *, is_resumed: bool) -> None:
    """Make the folder of a run. Raises OutputError if it holds a run already, or, where one is to go on, something else."""
    if not is_resumed:
        create_empty_folder(run, "choose another --output, or go on with the run there by --resume")
        return
    try:
        found = {child.name for child in run.iterdir()} if run.exists() else set()
        is_run = bool(found & {CONFIG_NAME, LAST_FOLDER})
        # A log of the scheduler's or a sound that was spoken there makes a run no less of one.
        if not is_run and (foreign := sorted(name for name in found - _RUN_NAMES if not name.startswith("."))):
            raise OutputError(f"{run}: holds {foreign[0]}, expected a run and nothing else; choose another --output")
        run.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{run}: cannot be written ({error.strerror}); choose another --output") from None
