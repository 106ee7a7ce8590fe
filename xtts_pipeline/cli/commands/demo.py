"""`xtts demo`: the whole job from a corpus to speech, each command run as a user would type it."""

import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click

from xtts_pipeline.cache.format.listings import read_utterances
from xtts_pipeline.cli.corpus_options import CORPUS_OPTIONS, corpus_options
from xtts_pipeline.cli.echo import echo
from xtts_pipeline.cli.groups import DocumentedCommand
from xtts_pipeline.cli.options import COUNT, FOLDER
from xtts_pipeline.corpus.demo.espeak import make_corpus
from xtts_pipeline.corpus.options import AUTO, ReadOptions
from xtts_pipeline.errors import StepError
from xtts_pipeline.system.storage import own_name
from xtts_pipeline.system.terminal import duration_text, shell_word

# Real clips are four times as long as the demo's sentences, so this many steps take as long as the preset's 1,000.
CORPUS_STEPS = 200


@click.command(
    cls=DocumentedCommand,
    example="xtts demo --data LJSpeech-1.1 --steps 500",
    sections={"How the corpus is read": CORPUS_OPTIONS},
)
@click.option(
    "--data",
    type=FOLDER,
    help="Your own corpus, such as LJSpeech-1.1; without it espeak-ng speaks 60 sentences.",
)
@click.option(
    "--output", type=FOLDER, default=Path("demo"), show_default=True, help="Folder for everything that is made."
)
@click.option(
    "--steps",
    type=COUNT,
    help=f"Training steps.  [default: those of the `demo` preset; with --data {CORPUS_STEPS}]",
)
@corpus_options
def demo(output: Path, data: Path | None, steps: int | None, reading: ReadOptions) -> None:
    """Run the whole job, from a corpus to speech.

    Each command is shown as you would type it.
    """
    run_demo(output, data, steps, reading)


def run_demo(output: Path, data: Path | None, steps: int | None, reading: ReadOptions = AUTO) -> None:
    """Preprocess, verify, train and synthesize into `output`, then list what was made.

    Without `data` the corpus is the demo's own sentences, spoken by espeak-ng. `reading` is for `data`, whose cache is
    named after its folder.
    Raises StepError with the exit code of the first command that fails.
    """
    started = time.monotonic()
    corpus, run = data or output / "corpus", next_run_folder(output / "runs")
    # A cache of another corpus is refused; only folders of one name share one.
    cache = output / ("cache" if data is None else f"cache-{own_name(data)}")
    speech, picture = output / "speech.wav", output / "speech.png"
    if data is None:
        echo(f"{make_corpus(corpus)} sentences spoken by espeak-ng in {corpus}")
    # The later preset overrides the demo's limits, which are too short for a real corpus.
    configs = ["--config", "demo"] if data is None else ["--config", "demo", "--config", "ljspeech"]
    steps = CORPUS_STEPS if steps is None and data is not None else steps
    steps_option = [] if steps is None else ["--steps", str(steps)]
    read = ["--cache", str(cache)]
    words = ["--layout", reading.layout, *shlex.split(reading.to_words())] if reading != AUTO else []
    _run_step("preprocess", "--data", str(corpus), *words, *read, *configs)
    _run_step("verify-cache", *read)
    _run_step("train", *read, "--output", str(run), *configs, *steps_option)
    written = ["--output", str(speech), "--plot", str(picture)]
    _run_step("synthesize", "--run", str(run), "--text", _first_text(cache), *written)
    lines = [
        "",
        f"Made in {duration_text(time.monotonic() - started)}:",
        f"  cache    {cache}: mels and tokens, verified",
        f"  run      {run}: checkpoints, metrics.jsonl, TensorBoard scalars",
        f"  speech   {speech}",
        f"  picture  {picture}: the mel and its tokens",
        "Speak another sentence:",
        f"  xtts synthesize --run {shell_word(run)} --text 'Hello, world!' --output hello.wav",
    ]
    echo(*lines)


def next_run_folder(runs: Path) -> Path:
    """Return the first unused numbered folder: training never writes into an earlier run."""
    return next(runs / str(number) for number in range(1, sys.maxsize) if not (runs / str(number)).exists())


def _run_step(*arguments: str) -> None:
    """Show and run one `xtts` command in a process of its own, whose output appears at once.

    Raises StepError if it fails.
    """
    echo("", f"$ xtts {shlex.join(arguments)}")
    with ExitStack() as deferral:
        deferral.enter_context(_interruptions_deferred())
        with subprocess.Popen([sys.executable, "-m", "xtts_pipeline", *arguments]) as command:
            try:
                deferral.close()
                exit_code = command.wait()
            except KeyboardInterrupt:
                # `subprocess.run` would kill it, and a training saves a checkpoint first.
                command.terminate()
                raise
    if exit_code:
        raise StepError(f"xtts {arguments[0]}", exit_code)


@contextmanager
def _interruptions_deferred() -> Iterator[None]:
    """Deliver interruptions after the block: one within Popen would leave its process running."""
    received: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    handlers = {number: handler for number in numbers if callable(handler := signal.getsignal(number))}
    for number in handlers:
        signal.signal(number, lambda number, _: received.append(number))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if received:
            signal.raise_signal(received[0])


def _first_text(cache: Path) -> str:
    """Return a text that the run was trained on, so that its symbols are known."""
    return next(entry.raw_text for entry in read_utterances(cache) if entry.split == "train")
