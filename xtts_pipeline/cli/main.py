"""The command line: the table of commands, and how errors and signals become exit codes.

Imports no command: `xtts --help` must start at once.
"""

import codecs
import contextlib
import io
import json
import os
import re
import signal
import sys
import traceback
from types import FrameType
from typing import NoReturn

import click

from xtts_pipeline import __version__
from xtts_pipeline.cli.echo import echo
from xtts_pipeline.cli.groups import DEBUG_HELP, LazyGroup
from xtts_pipeline.errors import (
    EXIT_INTERRUPTED,
    EXIT_UNTRUE,
    EXIT_UNUSABLE,
    MACHINE_ERRORS,
    LayoutError,
    XttsError,
    disk_remedy,
)
from xtts_pipeline.system.terminal import columns_of, fold

# In the order of their use. Each summary is the first sentence of the command's own help, and fits on a line.
COMMANDS = {
    "Data": {
        "segment": "Cut long recordings at pauses into clips with their texts.",
        "preprocess": "Turn a corpus into a cache of mel spectrograms and tokens.",
        "verify-cache": "Prove that a cache is what its manifest says.",
        "cache": "Copy caches, take a part of one, or merge several.",
    },
    "Training": {
        "demo": "Run the whole job, from a corpus to speech.",
        "train": "Train on a cache, or with --data on a corpus itself.",
        "config": "List presets; show, check or migrate settings.",
    },
    "Speaking": {
        "synthesize": "Speak a text, or each line of a file, with a run or a voice.",
        "serve": "Speak for other programs, by HTTP and the Wyoming protocol.",
        "export": "Write a voice folder, a SavedModel, or a vocoder as ONNX.",
    },
    "Vocoder": {
        "train-vocoder": "Train a vocoder on a cache with stored waves.",
        "predict-mels": "Write a cache with the mels that a run predicts.",
        "use-vocoder": "Let a run remember the vocoder that speaks for it.",
    },
    "Looking": {
        "report": "Write a page that shows a corpus, a cache or a run.",
        "stats": "Show how long clips and texts are, and which limits fit them.",
        "inspect": "Show one record of a cache, or list its utterances.",
    },
    "Measuring": {
        "evaluate": "Measure how close a run's speech is to the recordings.",
        "diagnose": "Find what is slow or wrong in training, and how to mend it.",
        "benchmark": "Measure how fast this machine preprocesses and trains.",
    },
}


@click.group(
    cls=LazyGroup,
    sections=COMMANDS,
    packages={"Vocoder": ".vocoder", "Looking": ".looking"},
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
@click.version_option(__version__, prog_name="xtts")
@click.option("--debug", is_flag=True, help=DEBUG_HELP)
@click.pass_context
def cli(context: click.Context, debug: bool) -> None:
    """Train a voice with TensorFlow: preprocess a corpus once, train on the cache, speak.

    \b
      xtts preprocess --data LJSpeech-1.1     write mels and tokens into cache/
      xtts verify-cache                       prove that every byte is right
      xtts train --output runs/first          train on cache/
      xtts synthesize --run runs/first --text 'Hello, world!' --output hello.wav

    `xtts demo` does all of it on 60 sentences. `xtts COMMAND --help` has the options and an example.
    """  # noqa: D301 (click reads this backspace as a sign to keep the line breaks)
    context.obj = debug


class Interrupted(KeyboardInterrupt):
    """Ctrl-C or SIGTERM. Python ends with a signal, not with our exit code, where native code meets its own class."""


_interruptions: list[int] = []  # the signals received


def _fail(message: str, exit_code: int, debug: bool, *, has_lines: bool = False) -> NoReturn:
    if debug:
        traceback.print_exc()
    # Other spaces stay as they are, since a name may have two in a row.
    lines = message.strip("\r\n").split("\n") if has_lines else [message.strip("\r\n")]
    lines = [re.sub(r"\s*[\t\r\n]\s*", " ", line) for line in lines]
    if _interruptions and exit_code != EXIT_INTERRUPTED:
        # A library may turn the interruption into an error of its own.
        lines, exit_code = ["interrupted"], EXIT_INTERRUPTED
    echo(*fold("\n".join(["xtts: " + lines[0], *lines[1:]]), columns_of(sys.stderr)).split("\n"), err=True)
    sys.exit(exit_code)


def _interrupt(number: int, _frame: FrameType | None) -> NoReturn:
    # A scheduler may send the signal twice, and a second one would break off the clean-up.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _interruptions.append(number)
    raise Interrupted


def _escape_as_json(error: UnicodeError) -> tuple[str, int]:
    """Return what a stream prints for a character that its encoding lacks: an escape that is valid within JSON."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


def main() -> None:
    """Run the command line; an XttsError becomes one line and its exit code, an interruption becomes 130."""
    # A scheduler's SIGTERM and a closed terminal end a command in the same clean way as Ctrl-C. A job in the background
    # ignores Ctrl-C, and one under nohup the terminal's end.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupt)
    debug = "--debug" in sys.argv[1:]
    if isinstance(sys.stdout, io.TextIOWrapper):
        codecs.register_error("json", _escape_as_json)
        sys.stdout.reconfigure(errors="json")  # a locale other than UTF-8 ends no command
    try:
        _run(debug)
    except Exception:
        if not _interruptions:
            raise
        _fail("interrupted", EXIT_INTERRUPTED, debug)


def _run(debug: bool) -> None:
    try:
        cli(standalone_mode=False, prog_name="xtts")
        sys.stdout.flush()
    except XttsError as error:
        _fail(str(error), error.exit_code, debug, has_lines=isinstance(error, LayoutError))
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(EXIT_UNUSABLE)
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "xtts"
        _fail(f"{error.format_message()} (see {command} --help)", EXIT_UNUSABLE, debug=False)
    except (KeyboardInterrupt, click.Abort):
        _fail("interrupted", EXIT_INTERRUPTED, debug)
    except (MemoryError, RuntimeError) as error:
        # A limit of a scheduler, of ulimit -v or of ulimit -u; a thread needs memory for its stack.
        if isinstance(error, RuntimeError) and "start new thread" not in str(error):
            raise
        found = "get more memory" if isinstance(error, MemoryError) else "start another thread"
        remedy = "free some memory, raise the limits of ulimit -v and -u, or give a smaller --jobs"
        _fail(f"this process: cannot {found}; {remedy}", EXIT_UNUSABLE, debug)
    except OSError as error:
        # Commands explain errors of their files; this one is of stdout: a full disk, or a pipe whose reader has ended.
        # Or the process may open no more files.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            sys.exit(EXIT_UNTRUE)
        where = error.filename or ("this process" if error.errno in MACHINE_ERRORS else "stdout")
        remedy = disk_remedy(error, "choose another place")
        _fail(f"{where}: cannot be read or written ({error.strerror or error}); {remedy}", EXIT_UNUSABLE, debug)
