"""`xtts train`: a cache in, a run out."""

import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import click
import tqdm

from xtts_pipeline.cache.manifest import (
    CACHE_SECTIONS,
    REJECTED_NAME,
    Manifest,
    bucket_specs,
    cache_settings,
    config_differences,
    load_manifest,
)
from xtts_pipeline.cache.verify import require_whole
from xtts_pipeline.commands.autotuning import REPORT_NAME, tuned_config, tuned_overrides
from xtts_pipeline.commands.copying import reaching_stores
from xtts_pipeline.commands.copying import stage as stage_cache
from xtts_pipeline.commands.native_training import CorpusOptions, native_source, survey_data, write_rejections
from xtts_pipeline.commands.training_memory import available_memory, check_memory, choose_batch_size, filled_batch_size
from xtts_pipeline.config import Config, ModelConfig, TrainingConfig, dump_config, load_config
from xtts_pipeline.errors import CacheError, ConfigError, OutputError
from xtts_pipeline.runtime import NativeLog
from xtts_pipeline.schema import SPLITS
from xtts_pipeline.storage import check_local
from xtts_pipeline.training.buckets import batch_sizes
from xtts_pipeline.training.changes import RECORDS_KEY, changed_settings, check_allowed_keys, check_changes
from xtts_pipeline.training.interruption import Interruption
from xtts_pipeline.training.run_folder import (
    BEST_FOLDER,
    CONFIG_NAME,
    LAST_FOLDER,
    LOCK_NAME,
    SUMMARY_NAME,
    checkpoint_folders,
    locked_run,
    read_summary,
    write_config,
)
from xtts_pipeline.training.saved_state import saved_config
from xtts_pipeline.training.startup import StartUp

# What a run's folder may hold; anything else in it says that it is no run.
_RUN_NAMES = frozenset(
    {
        CONFIG_NAME,
        SUMMARY_NAME,
        LOCK_NAME,
        LAST_FOLDER,
        BEST_FOLDER,
        REJECTED_NAME,
        REPORT_NAME,
        "metrics.jsonl",
        "skipped.jsonl",
        "profile",
        "tensorboard",
        "tensorflow.log",
    }
)


_MEMORY_PARTS = (("estimated", "estimated_bytes"), ("compiled step", "program_bytes"))


def train(
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
) -> tuple[Path, dict[str, Any]]:
    """Train on a cache, or on a corpus in its place, or go on with a run; return the run's folder and its summary.

    Audio, text and limits come from the cache; a config that contradicts them is a CacheError that names each difference. A run that goes
    on keeps its settings; a ConfigError names each that is asked to differ and is not in `allow_change`. `steps` may always differ.
    A new run begins with the weights of `init_from`, another run or a checkpoint, and has that run's model unless the settings say else.
    With `stage` the cache is copied under that folder first and read there.
    """
    startup = StartUp()
    _check_options(output, resume, allow_change)
    allowed = {*allow_change, *(["training.steps"] if steps is not None else [])}
    run = output or Path("runs") / time.strftime("%Y%m%d-%H%M%S")
    previous = _previous_config(run) if resume else None
    survey = None if corpus is None else survey_data(corpus, configs, overrides, previous)
    if corpus is None or survey is None:
        with reaching_stores(cache):
            cache = cache if stage is None else stage_cache(cache, stage)
            manifest = load_manifest(cache)
            require_whole(cache)
    else:
        cache, manifest = corpus.data, survey.manifest
    model = None if init_from is None or previous is not None else saved_config(init_from).model
    config = training_config(manifest, configs, overrides, steps, previous, allowed, model)
    if config.training.autotune and survey is not None:
        raise ConfigError("training.autotune: found true with --data, expected a cache to measure; preprocess first, or leave it out")
    if config.training.autotune:
        check_local(cache, "leave training.autotune out, or add --stage DIR")
    check_enough_records(cache, manifest, config)
    finished = None if previous is None else _finished_summary(run, previous, config, allowed)
    if finished is not None:
        return run, finished
    # Before anything is made, and once more of the batch that was found best.
    check_memory(manifest, config, available_memory())
    _make_folder(run, is_resumed=resume)
    if config.training.autotune and previous is None:
        with _full_disk_is_an_error(run):
            config = tuned_config(run, cache, manifest, config)
    startup.estimated_bytes = _tell_plan(manifest, config)
    with locked_run(run), NativeLog(run / "tensorflow.log", echo=echo_native_log) as log, _Progress(config.training.steps) as progress:
        progress.note(f"starting: {log.environment}")
        startup.note("check")
        # Late: TensorFlow must not be imported before its log is redirected.
        from xtts_pipeline.training.loop import train as run_loop
        from xtts_pipeline.training.monitor import CompilationMonitor
        from xtts_pipeline.training.resume import find_ancestor
        from xtts_pipeline.training.resume import resume as find_resumption
        from xtts_pipeline.training.source import Source

        startup.note("import")
        source = Source(cache, manifest) if survey is None else native_source(cache, survey, config)
        monitor = CompilationMonitor(log, is_strict=config.training.strict_shapes, is_compiled=config.training.jit_compile)
        with _full_disk_is_an_error(run), Interruption(progress.note) as interruption:
            resumption = find_resumption(run, source, config, allowed, progress.note) if resume else None
            ancestor = None if init_from is None else find_ancestor(init_from, resumption, progress.note)
            write_config(run, dump_config(config))
            if survey is not None:
                write_rejections(run, survey)
            summary = run_loop(source, config, run, monitor, progress, resumption, interruption, profile_steps, ancestor, startup)
    return run, summary


def _check_options(output: Path | None, resume: bool, allow_change: Sequence[str]) -> None:
    """Raise OutputError or ConfigError for options that make no sense together, or for a key that is none."""
    if resume and output is None:
        raise OutputError("--resume: no run is named, expected its folder; add --output RUN")
    if allow_change and not resume:
        raise ConfigError("--allow-change: a new run has nothing to change; leave it out, or add --resume")
    check_allowed_keys(allow_change)


def _tell_plan(manifest: Manifest, config: Config) -> int:
    """Say what batches look like, what memory is needed, and what makes the run slow on purpose; return the bytes that are needed."""
    needed, memory_text = check_memory(manifest, config, available_memory())
    click.echo(shapes_text(manifest, config), err=True)
    click.echo(f"memory: {memory_text}", err=True)
    if config.training.debug_eager:
        click.echo("training.debug_eager: the step runs uncompiled, operation by operation, many times slower; for a debugger", err=True)
    return needed


def training_config(
    manifest: Manifest,
    configs: Sequence[str],
    overrides: Sequence[str],
    steps: int | None,
    previous: Config | None = None,
    allowed: Collection[str] = (),
    model: ModelConfig | None = None,
) -> Config:
    """Return the settings of the cache, or of the run that goes on, overlaid with the user's, or say which contradict the cache.

    A new run has the settings of `model`, where it is to begin with the weights of one. `training.batch_size: auto` is a number in them:
    that of the run that goes on, or what fits into the memory.
    """
    base: dict[str, Any] = {**cache_settings(manifest), **({} if model is None else {"model": model.model_dump(mode="json")})}
    if previous is not None:
        settings = previous.model_dump(mode="json")
        base = {**settings, **({"cache": base["cache"]} if RECORDS_KEY in allowed else {})}
    steps_override = [] if steps is None else [f"training.steps={steps}"]
    tuned = [] if previous is None else tuned_overrides(previous, allowed)
    config = load_config(configs, [*overrides, *steps_override, *tuned], base)
    differences = config_differences(manifest, config, CACHE_SECTIONS)
    if differences:
        listed = "; ".join(differences)
        remedy = "preprocess again, or leave these settings out" if previous is None else "use the cache of the run, or another --output"
        raise CacheError(f"the cache was made with other settings: {listed}; {remedy}")
    if config.training.batch_size == "auto" and previous is not None:
        training = config.training.model_copy(update={"batch_size": previous.training.batch_size})
        return config.model_copy(update={"training": training})
    return choose_batch_size(manifest, config, available_memory())


def _previous_config(run: Path) -> Config | None:
    """Return the settings of a run that has a checkpoint to go on from, or None: without one nothing is lost by other settings."""
    if not checkpoint_folders(run):
        return None
    if not (run / CONFIG_NAME).is_file():
        raise OutputError(f"{run / CONFIG_NAME}: no such file, expected the run's settings; restore it from a checkpoint's state.json")
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
    training, buckets = config.training, range(manifest.bucket_count)
    records = [manifest.split_records("train", bucket) for bucket in buckets]
    if not any(records):
        raise CacheError(f"{cache}: 0 training records; preprocess a larger corpus")
    for bucket, found, needed in zip(buckets, records, _batch_sizes(manifest, training), strict=True):
        if 0 < found < needed:
            smaller = filled_batch_size(manifest, training.clips_per_batch, training.accumulation_steps)
            remedy = "preprocess with other data.buckets" if smaller is None else f"set training.batch_size={smaller} or less"
            where = f"bucket {bucket} {list(manifest.buckets[bucket])}: " if manifest.buckets else ""
            rows = f", which is {needed} rows in this bucket" if manifest.buckets else ""
            raise CacheError(f"{cache}: {where}{found} training records, but training.batch_size={training.batch_size}{rows}; {remedy}")
    if config.training.patience is not None and not manifest.split_records("val"):
        raise CacheError(
            f"{cache}: no validation records, but training.patience={config.training.patience} waits for their loss; "
            "leave it out, or preprocess with cache.validation_share over 0"
        )


def shapes_text(manifest: Manifest, config: Config) -> str:
    """Return what batches look like: rows, tokens and frames in those of each bucket, and how many of the cache's frames are padding."""
    specs = bucket_specs(manifest)
    sizes = _batch_sizes(manifest, config.training)
    shapes = ", ".join(f"{rows} x {spec.max_text_length} x {spec.max_mel_frames}" for rows, spec in zip(sizes, specs, strict=True))
    records = [sum(manifest.split_records(split, bucket) for split in SPLITS) for bucket in range(len(specs))]
    frames = sum(count * spec.max_mel_frames for count, spec in zip(records, specs, strict=True))
    padding = 1.0 - manifest.statistics["frames"].mean * manifest.counts.kept / frames
    return f"batches of {shapes} (clips x tokens x frames); {padding:.0%} of the frames are padding"


def _batch_sizes(manifest: Manifest, training: TrainingConfig) -> list[int]:
    return batch_sizes(bucket_specs(manifest), training.clips_per_batch, training.accumulation_steps)


def summary_text(run: Path, summary: Mapping[str, Any]) -> str:
    """Return a run's summary for people."""
    step, loss = summary["step_ms"] or {}, summary["loss"]
    stopped = " (stopped early)" if summary["stopped_early"] else ""
    lines = [
        f"run            {run}",
        f"steps          {summary['steps']}{stopped}{_resumed_text(summary)}, first after {summary['first_step_seconds']:.1f} s",
        f"parameters     {summary['parameters'] / 1e6:.1f} M",
        f"loss           {loss['first']:.3f} -> {loss['last']:.3f}",
        f"weights        sha256 {summary['weights_sha256']}",
        f"best           {_best_text(summary)}",
        *_origin_lines(summary),
        f"traces         {summary['traces']}  ({_by_function(summary, 'traces')})",
        f"compilations   {summary['compilations']}  ({_by_function(summary, 'compilations')})",
    ]
    if step:
        lines += [
            f"step time      {step['mean']:.0f} ms +/- {step['std']:.0f} (p50 {step['p50']:.0f}, p95 {step['p95']:.0f})",
            f"data wait      {summary['data_wait_share']:.2%}{_device_text(summary)}",
            f"throughput     {summary['examples_per_second']:.1f} examples/s, {summary['mel_frames_per_second']:.0f} mel frames/s",
        ]
    return "\n".join([*lines, *_cost_lines(summary), *_operation_lines(summary)])


def _cost_lines(summary: Mapping[str, Any]) -> list[str]:
    """Return where the time to the first step went and what memory was in use, where the summary has them: older ones do not."""
    if "startup_seconds" not in summary:
        return []
    parts = ", ".join(f"{part} {seconds:.1f}" for part, seconds in summary["startup_seconds"].items())
    memory = [f"{summary['memory']['peak_bytes'] / 1e9:.2f} GB at most"]
    memory += [f"{name} {summary['memory'][key] / 1e9:.2f}" for name, key in _MEMORY_PARTS if summary["memory"][key]]
    return [f"start          {sum(summary['startup_seconds'].values()):.1f} s ({parts})", f"memory         {', '.join(memory)}"]


def _operation_lines(summary: Mapping[str, Any]) -> list[str]:
    """Return the table of the costliest operations, where steps were traced."""
    profile = summary.get("profile")
    if not profile:
        return []
    lines = [f"profile        {profile['steps']} steps in {profile['folder']}", f"{'ms/step':>9}  {'share':>6}  {'calls':>6}  operation"]
    return lines + [
        f"{operation['ms_per_step']:>9.2f}  {operation['share']:>6.1%}  {operation['calls']:>6}  {operation['name']}"
        for operation in profile["operations"]
    ]


def _best_text(summary: Mapping[str, Any]) -> str:
    best = summary["best"]
    return f"step {best['step']}, validation loss {best['val_loss']:.3f}" if best else "none: the cache has no validation clips"


def _origin_lines(summary: Mapping[str, Any]) -> list[str]:
    """Return where a run that did not begin with nothing began."""
    origin = summary.get("origin")
    return [f"begun with     {origin['checkpoint']}, {origin['kept_share']:.1%} of the network"] if origin else []


def _resumed_text(summary: Mapping[str, Any]) -> str:
    resumed = summary["resumed_at_steps"]
    return f", resumed {len(resumed)} times, last after step {resumed[-1]}" if resumed else ""


def _device_text(summary: Mapping[str, Any]) -> str:
    """Return how busy the device was; nothing of a run too short for a report without a compilation."""
    share = summary["device_share"]
    return "" if share is None else f", device {share:.0%}"


def _by_function(summary: Mapping[str, Any], key: str) -> str:
    found = ", ".join(f"{name} {count[key]}" for name, count in summary["by_function"].items())
    return found or "nothing is compiled: training.debug_eager"


@contextmanager
def _full_disk_is_an_error(run: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputError(f"{error.filename or run}: cannot be written ({error.strerror}); the last checkpoint is untouched") from None


def _make_folder(run: Path, *, is_resumed: bool) -> None:
    """Make the folder of a run. Raises OutputError if it holds a run already, or, where one is to go on, something else."""
    try:
        found = {child.name for child in run.iterdir()} if run.exists() else set()
        if found and not is_resumed:
            raise OutputError(f"{run}: this folder is not empty; choose another --output, or go on with the run there by --resume")
        if foreign := sorted(name for name in found - _RUN_NAMES if not name.startswith(".")):
            raise OutputError(f"{run}: holds {foreign[0]}, expected a run and nothing else; choose another --output")
        run.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{run}: cannot be written ({error.strerror}); choose another --output") from None


class _Progress:
    """What a run says as it goes, on stderr: a bar on a terminal, one line a report in a log file."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._first: tuple[int, float] | None = None
        self._bar = tqdm.tqdm(total=steps, unit="step", desc="train", file=sys.stderr, dynamic_ncols=True) if sys.stderr.isatty() else None
        self._last: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def show(self, step: int, split: str, numbers: Mapping[str, float]) -> None:
        """Show the numbers just read: loss, attention focus, step time, data wait, how validation went, time left."""
        match split:
            case "val":
                self._last["val"] = f"{numbers['loss']:.3f}"
            case "speech":
                self._last["stops"] = f"{numbers['stop_rate']:.0%}"
            case _:
                self._last |= {
                    "loss": f"{numbers['loss']:.3f}",
                    "focus": f"{numbers['attention_focus']:.2f}",
                    "step": f"{numbers['step_ms']:.0f} ms",
                    "wait": f"{numbers['data_wait_share']:.1%}",
                    "device": f"{numbers['device_share']:.0%}",
                    "examples/s": f"{numbers['examples_per_second']:.1f}",
                }
        if self._bar is not None:
            self._bar.set_postfix(self._last, refresh=False)
            self._bar.update(step - self._bar.n)
        else:
            shown = ", ".join(f"{name} {value}" for name, value in self._last.items())
            click.echo(f"step {step}/{self._steps}: {shown}{self._remaining(step)}", err=True)

    def say(self, step: int, line: str) -> None:
        """Show a line that must be seen, above the bar where there is one."""
        self.note(f"step {step}/{self._steps}: {line}")

    def note(self, line: str) -> None:
        """Show a line that belongs to no step; any thread may call it."""
        if self._bar is not None:
            self._bar.write(line, file=sys.stderr)
        else:
            click.echo(line, err=True)

    def _remaining(self, step: int) -> str:
        """Return the time left, reckoned without the first step, which traces and compiles."""
        now = time.monotonic()
        if self._first is None:
            self._first = (step, now)
            return ""
        first_step, first_time = self._first
        if step == first_step:
            return ""
        return f", {(now - first_time) / (step - first_step) * (self._steps - step):.0f} s left"
