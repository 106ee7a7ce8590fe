"""The command line: options in, one call, exit code out.

Every import of a command stands inside its function, so that `xtts --help` starts at once and never loads TensorFlow.
"""

import contextlib
import json
import os
import signal
import sys
import traceback
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import click
from click.core import ParameterSource

from xtts_pipeline import __version__
from xtts_pipeline.cli.options import (
    FOLDER,
    CacheFolder,
    Share,
    benchmark_options,
    cache_option,
    config_options,
    json_option,
    layout_option,
    stored_cache_option,
    synthesis_option,
)
from xtts_pipeline.errors import XttsError

EXIT_UNTRUE, EXIT_UNUSABLE, EXIT_INTERRUPTED = 1, 2, 130


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(__version__, prog_name="xtts")
@click.option("--debug", is_flag=True, help="Show tracebacks and TensorFlow's own log.")
@click.pass_context
def cli(context: click.Context, debug: bool) -> None:
    """Train a voice with TensorFlow: preprocess a corpus once, stream the cache into one compiled step, speak.

    \b
      xtts preprocess --data LJSpeech-1.1     mels and tokens -> fixed-length TFRecord shards in cache/
      xtts verify-cache                       exit 0 only if every byte is what the manifest says
      xtts train                              stream the shards into the XLA-compiled step
    """  # noqa: D301 (click takes the backspace itself as its sign to leave lines as they are)
    context.obj = debug


@cli.command()
@click.option("--data", type=FOLDER, required=True, help="Folder of the corpus, or its manifest file.")
@cache_option
@config_options
@layout_option
@click.option("--val-data", type=FOLDER, help="A second corpus that becomes the validation split.")
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=os.cpu_count() or 1,
    show_default="all cores",
    help="Worker processes.",
)
@click.option(
    "--max-rejected",
    type=Share(),
    default="5%",
    show_default=True,
    help="Exit with 1 if a larger share of rows is rejected.",
)
@click.option(
    "--shards",
    type=click.IntRange(min=1),
    help="Training shards of the cache.  [default: as it has, or by cache.records_per_shard]",
)
@click.option("--reshard", is_flag=True, help="Choose the number of shards anew, as for a new cache.")
@click.option(
    "--check",
    type=click.Choice(["stat", "content"]),
    default="stat",
    show_default=True,
    help="How changed sources are found.",
)
@click.option(
    "--dry-run", is_flag=True, help="Read headers and text only; say what would be written. Exit code as the run's."
)
@click.option(
    "--backend", type=click.Choice(["local", "dask"]), default="local", show_default=True, help="Where the workers run."
)
@click.option("--scheduler", metavar="ADDRESS", help="The dask scheduler's address.")
@json_option
def preprocess(
    configs: tuple[str, ...], overrides: tuple[str, ...], max_rejected: float, as_json: bool, **options: Any
) -> None:
    """Turn a corpus into a cache of mel spectrograms and tokens, once."""
    from xtts_pipeline.cli.commands.preprocess import preprocess as run
    from xtts_pipeline.config.load import load_config

    report = run(
        config=load_config(configs, overrides), max_rejected=max_rejected, progress=sys.stderr.isatty(), **options
    )
    _print(report, as_json)
    if report.is_over_limit:
        sys.exit(EXIT_UNTRUE)


@cli.command()
@stored_cache_option
@click.option(
    "--level",
    type=click.Choice(["quick", "full", "deep"]),
    default="full",
    show_default=True,
    help="How much is proved.",
)
@click.option("--data", type=FOLDER, help="The corpus, for --level deep and --repair.")
@click.option("--sample", type=click.IntRange(min=1), help="Clips that --level deep recomputes.  [default: 20]")
@click.option("--repair", is_flag=True, help="Rebuild what is broken from --data, then verify.")
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=os.cpu_count() or 1,
    show_default="all cores",
    help="Processes that read.",
)
@json_option
def verify_cache(cache: Path, as_json: bool, **options: Any) -> None:
    """Prove that a cache is what its manifest says: exit 0 if true, 1 if not, 2 if there is none."""
    # Its matrix products are none, and a process of one thread is one that can be copied.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from xtts_pipeline.cli.commands.verify_cache import verify

    report = verify(cache, **options)
    _print(report, as_json)
    if not report.valid:
        sys.exit(EXIT_UNTRUE)


@cli.command()
@click.option("--data", type=FOLDER, help="Folder of a corpus; its headers and texts are read.")
@click.option(
    "--cache", type=CacheFolder(may_be_stored=True), help="Folder or store of a cache; its utterances.jsonl is read."
)
@config_options
@layout_option
@click.option("--plot", type=FOLDER, help="Write histograms as PNG.")
@json_option
def stats(configs: tuple[str, ...], overrides: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Show how long clips and texts are, what each limit keeps, and which limits and shapes fit."""
    from xtts_pipeline.cli.commands.stats import stats as run
    from xtts_pipeline.config.load import load_config

    _print(run(config=load_config(configs, overrides), **options), as_json)


@cli.command()
@stored_cache_option
@click.option("--id", required=True, help="Id of the utterance.")
@click.option(
    "--output", type=FOLDER, default=Path("inspect"), show_default=True, help="Folder for mel.png and sound.wav."
)
@json_option
def inspect(cache: Path, id: str, output: Path, as_json: bool) -> None:
    """Show what a record holds: tokens as symbols, lengths, the mel as a picture and as sound."""
    from xtts_pipeline.cli.commands.inspect import inspect as run

    _print(run(cache, id, output), as_json)


@cli.command()
@stored_cache_option
@click.option("--data", type=FOLDER, help="Train without a cache, on this corpus: 16-bit PCM WAV alone.")
@layout_option
@click.option("--val-data", type=FOLDER, help="With --data: a second corpus that becomes the validation split.")
@config_options
@click.option(
    "--output", type=FOLDER, help="Folder of the run; new or empty but for --resume.  [default: runs/DATE-TIME]"
)
@click.option("--steps", type=click.IntRange(min=1), help="Steps in all; short for --set training.steps=N.")
@click.option(
    "--resume", is_flag=True, help="Go on with the run in --output from its last checkpoint; begin if it has none."
)
@click.option(
    "--allow-change", multiple=True, metavar="SECTION.KEY", help="With --resume: a setting that may differ; repeatable."
)
@click.option(
    "--stage",
    type=FOLDER,
    metavar="DIR",
    help="Copy the cache under DIR first, proved by its checksums, and read it there.",
)
@click.option(
    "--init-from", type=FOLDER, metavar="RUN", help="Begin with the weights of another run or checkpoint: fine-tune it."
)
@click.option(
    "--profile",
    "profile_steps",
    type=click.IntRange(min=1),
    help="Trace so many steps; say which operations cost most.",
)
@click.option(
    "--devices",
    type=click.IntRange(min=1),
    help="GPUs to train on; without a GPU, parts of the CPU.  [default: all GPUs]",
)
@json_option
@click.pass_obj
def train(
    debug: bool, /, cache: Path, data: Path | None, layout: str, val_data: Path | None, as_json: bool, **options: Any
) -> None:
    """Train on a cache, streamed into one XLA-compiled step; with --data on the corpus itself, without a cache."""
    from xtts_pipeline.cli.commands.train import train as run
    from xtts_pipeline.cli.native_training import CorpusOptions
    from xtts_pipeline.cli.run_summary import summary_text

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
    folder, summary = run(cache, corpus=corpus, echo_native_log=debug, **options)
    click.echo(json.dumps(summary) if as_json else summary_text(folder, summary))


@cli.group()
def cache() -> None:
    """Bring caches where they are needed."""


@cache.command()
@click.argument("source", type=CacheFolder(may_be_stored=True), metavar="SRC")
@click.argument("target", type=CacheFolder(may_be_stored=True), metavar="DST")
@click.option("--jobs", type=click.IntRange(min=1), default=8, show_default=True, help="Files on their way at once.")
@json_option
def push(as_json: bool, **options: Any) -> None:
    """Copy the cache SRC to DST, such as gs://bucket/cache: the manifest last, so that half a copy is never a cache."""
    from xtts_pipeline.cli.commands.cache import push as run

    _print(run(**options), as_json)


@cli.command()
@click.option("--run", type=FOLDER, required=True, help="Folder of the run, or one of its checkpoints.")
@click.option("--text", help="What to say; long texts are split at sentences.")
@click.option(
    "--text-file", type=FOLDER, help="UTF-8 file with one text a line; --output is a folder: 0000.wav and so on."
)
@click.option(
    "--output", type=FOLDER, required=True, help="WAV file to write, `-` for stdout, or the folder for --text-file."
)
@click.option(
    "--reference", "references", type=FOLDER, multiple=True, help="Clip of the voice to speak with; repeatable."
)
@click.option("--speaker", help="Speaker of the cache; the first by default.")
@click.option("--language", help="Language of the cache; the first by default.")
@synthesis_option
@click.option("--stream", is_flag=True, help="Write the sound while it is spoken: a WAV file that grows.")
@click.option("--plot", type=FOLDER, help="Write a picture of the mel and the attention.")
@click.option("--mel-output", type=FOLDER, help="Write the mel as .npy: float32 [frames, mel_bins], natural log.")
@json_option
@click.pass_obj
def synthesize(debug: bool, /, as_json: bool, output: Path, **options: Any) -> None:
    """Speak a text, or a file of them, with a trained run."""
    from xtts_pipeline.cli.commands.synthesize import synthesize as run

    is_stdout = str(output) == "-"
    if as_json and is_stdout:
        raise click.UsageError("--json and --output - both need stdout; name a file with --output")
    report = run(output=output, echo_native_log=debug, **options)
    if is_stdout:
        click.echo(report.to_text(), err=True)
    else:
        _print(report, as_json)


@cli.command()
@click.option("--run", type=FOLDER, required=True, help="Folder of the run, or one of its checkpoints.")
@cache_option
@click.option(
    "--split",
    type=click.Choice(["train", "val", "test"]),
    default="val",
    show_default=True,
    help="Which utterances to speak.",
)
@click.option("--data", type=FOLDER, help="The corpus: hold speech against its clips, not against copy synthesis.")
@click.option(
    "--output", type=FOLDER, help="Folder for sounds, pictures and page, new or empty.  [default: evaluation/DATE-TIME]"
)
@click.option("--limit", type=click.IntRange(min=1), help="Speak only the first utterances of the split.")
@click.option(
    "--reference", "references", type=FOLDER, multiple=True, help="Clip of the voice to speak with; repeatable."
)
@synthesis_option
@click.option("--per", is_flag=True, help="Measure phoneme error rates as well; needs the extra `eval`.")
@json_option
@click.pass_obj
def evaluate(debug: bool, /, as_json: bool, **options: Any) -> None:
    """Speak the texts of a split and measure how near the speech comes to the true sound."""
    from xtts_pipeline.cli.commands.evaluate import evaluate as run

    _print(run(progress=sys.stderr.isatty(), echo_native_log=debug, **options), as_json)


@cli.command()
@click.option("--run", type=FOLDER, required=True, help="Folder of the run, or one of its checkpoints.")
@click.option("--output", type=FOLDER, required=True, help="New folder for the SavedModel and its xtts.json.")
@synthesis_option
@click.option(
    "--batch-size", type=click.IntRange(1, 1_024), default=1, show_default=True, help="Texts that are said at a time."
)
@click.option(
    "--jit-compile",
    is_flag=True,
    help="Have XLA compile the network where it is loaded: faster, but not every server has XLA.",
)
@json_option
@click.pass_obj
def export(debug: bool, /, as_json: bool, **options: Any) -> None:
    """Write a TensorFlow SavedModel that speaks without this package: token ids and a reference in, mel frames out."""
    from xtts_pipeline.cli.commands.export import export as run

    _print(run(echo_native_log=debug, **options), as_json)


@cli.command()
@click.option(
    "--data",
    type=FOLDER,
    help="A corpus of your own, such as LJSpeech-1.1; without it 60 sentences are spoken by espeak-ng.",
)
@click.option(
    "--output", type=FOLDER, default=Path("demo"), show_default=True, help="Folder for everything that is made."
)
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    help="Training steps.  [default: those of the `demo` preset; with --data 200]",
)
def demo(data: Path | None, output: Path, steps: int | None) -> None:
    """Run the whole job, from a corpus to speech, each command as you would type it."""
    from xtts_pipeline.cli.commands.demo import demo as run

    run(output, data, steps)


@cli.group()
def diagnose() -> None:
    """Say in one line what is slow or wrong, and why."""


@diagnose.command("retracing")
@cache_option
@config_options
@click.option(
    "--steps", type=click.IntRange(min=2), default=10, show_default=True, help="Batches to compare and steps to run."
)
@click.option(
    "--demonstrate",
    is_flag=True,
    help="Show what varying shapes cost, on a small network; takes no cache and no settings.",
)
@json_option
@click.pass_obj
def diagnose_retracing(debug: bool, /, as_json: bool, demonstrate: bool, **options: Any) -> None:
    """Find what would make the step be traced or compiled again: exit 0 healthy, 1 not."""
    from xtts_pipeline.cli.commands.diagnose import demonstrate_retracing
    from xtts_pipeline.cli.commands.diagnose import diagnose_retracing as run

    if demonstrate:
        context = click.get_current_context()
        given = [name for name in options if context.get_parameter_source(name) is not ParameterSource.DEFAULT]
        if given:
            raise click.UsageError(
                "--demonstrate: found other options beside it, expected none but --json; leave them out"
            )
        _print(demonstrate_retracing(echo_native_log=debug), as_json)
        return
    report = run(echo_native_log=debug, **options)
    _print(report, as_json)
    if not report.verdict.is_healthy:
        sys.exit(EXIT_UNTRUE)


@cli.group()
def benchmark() -> None:
    """Measure how fast this machine preprocesses, feeds and trains, beside rivals."""


def _benchmark_command(names: tuple[str, ...], name: str, summary: str) -> None:
    """Add `xtts benchmark NAME`, which runs the named benchmarks."""

    @benchmark.command(name, help=summary)
    @cache_option
    @benchmark_options(names)
    @config_options
    @json_option
    @click.pass_obj
    def run_benchmark(debug: bool, /, as_json: bool, **options: Any) -> None:
        from xtts_pipeline.cli.commands.benchmark import benchmark as run

        _print(run(names, echo_native_log=debug, **options), as_json)


_benchmark_command(
    ("preprocess",), "preprocess", "Clips a second from a corpus to a cache, beside librosa and TFRecordWriter."
)
_benchmark_command(
    ("input",), "input", "Records a second, beside reading alone, Python inside tf.data, and TF-native WAV."
)
_benchmark_command(
    ("step",), "step", "The train step: eager, tf.function with varying and fixed shapes, XLA, XLA with buckets."
)
_benchmark_command(("preprocess", "input", "step"), "all", "All three, one after the other.")


@diagnose.command("input")
@cache_option
@config_options
@click.option("--batches", type=click.IntRange(min=2), default=50, show_default=True, help="Batches to time.")
@click.option("--try", "is_trying", is_flag=True, help="Measure what the setting that the verdict names brings.")
@click.option("--plot", type=FOLDER, help="Write a picture of the batches' times and the stages' costs as PNG.")
@json_option
@click.pass_obj
def diagnose_input(debug: bool, /, as_json: bool, **options: Any) -> None:
    """Find why batches come too late, if they do: exit 0 fine, 1 not."""
    from xtts_pipeline.cli.commands.diagnose import diagnose_input as run

    report = run(echo_native_log=debug, **options)
    _print(report, as_json)
    if not report.verdict.is_healthy:
        sys.exit(EXIT_UNTRUE)


@diagnose.command("gpu")
@cache_option
@config_options
@click.option(
    "--seconds", type=click.FloatRange(min=0.1), default=20.0, show_default=True, help="How long the step is run."
)
@click.option(
    "--plot", type=FOLDER, default=Path("gpu.png"), show_default=True, help="PNG of the steps and the GPU over time."
)
@json_option
@click.pass_obj
def diagnose_gpu(debug: bool, /, as_json: bool, **options: Any) -> None:
    """Run the training step and watch what the device does and waits for: exit 0 busy or no GPU, 1 not."""
    from xtts_pipeline.cli.commands.diagnose import diagnose_gpu as run

    report = run(echo_native_log=debug, **options)
    _print(report, as_json)
    if report.is_bad:
        sys.exit(EXIT_UNTRUE)


@cli.group()
def config() -> None:
    """Show, check or migrate settings."""


@config.command("show")
@click.argument("files", nargs=-1, metavar="[FILE|PRESET]...")
@click.option(
    "--set", "overrides", multiple=True, metavar="SECTION.KEY=VALUE", help="Override one setting; repeatable."
)
@json_option
def config_show(files: tuple[str, ...], overrides: tuple[str, ...], as_json: bool) -> None:
    """Print the merged settings, defaults included."""
    from xtts_pipeline.config.load import dump_config, load_config

    merged = load_config(files, overrides)
    click.echo(
        json.dumps(merged.model_dump(mode="json"), ensure_ascii=False) if as_json else dump_config(merged), nl=as_json
    )


@config.command("check")
@click.argument("files", nargs=-1, metavar="[FILE|PRESET]...")
@click.option(
    "--set", "overrides", multiple=True, metavar="SECTION.KEY=VALUE", help="Override one setting; repeatable."
)
@json_option
def config_check(files: tuple[str, ...], overrides: tuple[str, ...], as_json: bool) -> None:
    """Say whether settings are valid: exit 0, or 2 and every error on a line of its own."""
    from xtts_pipeline.config.load import config_problems

    problems = config_problems(files, overrides)
    for problem in problems:
        click.echo(f"xtts: {problem}", err=True)
    if as_json or not problems:
        click.echo(
            json.dumps({"valid": not problems, "problems": problems}, ensure_ascii=False) if as_json else "valid"
        )
    if problems:
        sys.exit(EXIT_UNUSABLE)


@config.command("migrate")
@click.argument("file", type=FOLDER, required=False, metavar="[OLD.YAML]")
@click.option("--train-data", metavar="DIR", help="As the earlier train_main.py took it.")
@click.option("--val-data", metavar="DIR", help="Likewise.")
@click.option("--batch-size", type=int, help="Likewise.")
@click.option("--num-workers", type=int, help="Likewise.")
@click.option("--optimization-level", metavar="LEVEL", help="Likewise.")
@json_option
def config_migrate(file: Path | None, as_json: bool, **flags: str | int | None) -> None:
    """Print settings of the earlier system (MyXTTS) as settings of this one, and on stderr what became of each key."""
    from xtts_pipeline.cli.commands.migrate import migrate

    given = {f"--{name.replace('_', '-')}": value for name, value in flags.items() if value is not None}
    if file is None and not given:
        raise click.UsageError("nothing to migrate; name a YAML file of the earlier system, or one of its flags")
    report = migrate(file, given)
    if not as_json:
        for line in report.notes():
            click.echo(line, err=True)
    _print(report, as_json)


def _print(report: Any, as_json: bool) -> None:
    click.echo(json.dumps(report.to_json(), ensure_ascii=False) if as_json else report.to_text())


def _fail(message: str, exit_code: int, debug: bool) -> NoReturn:
    if debug:
        traceback.print_exc()
    # Who reads stderr may be gone, which changes nothing about how this ended.
    with contextlib.suppress(OSError):
        click.echo(f"xtts: {' '.join(message.split())}", err=True)
    sys.exit(exit_code)


def _interrupt(_signal_number: int, _frame: FrameType | None) -> NoReturn:
    # A scheduler may ask twice; the clean way out is taken once.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


def main() -> None:
    """Run the command line; an XttsError becomes one line and its exit code, an interruption becomes 130."""
    # A scheduler's SIGTERM and a person's Ctrl-C take the same clean way out.
    signal.signal(signal.SIGTERM, _interrupt)
    debug = "--debug" in sys.argv[1:]
    try:
        cli(standalone_mode=False, prog_name="xtts")
        sys.stdout.flush()
    except XttsError as error:
        _fail(str(error), error.exit_code, debug)
    except click.exceptions.Exit as error:
        sys.exit(error.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(EXIT_UNUSABLE)
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "xtts"
        _fail(f"{error.format_message()} (see {command} --help)", EXIT_UNUSABLE, debug=False)
    except (KeyboardInterrupt, click.Abort):
        _fail("interrupted", EXIT_INTERRUPTED, debug)
    except OSError as error:
        # Commands explain what happens to their files; what is left is stdout: on a full disk, or with a reader, such as `head`, gone.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            sys.exit(EXIT_UNTRUE)
        where = error.filename or "stdout"
        _fail(
            f"{where}: cannot be read or written ({error.strerror}); free space, or choose another place",
            EXIT_UNUSABLE,
            debug,
        )
