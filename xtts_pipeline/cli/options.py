"""Options that several commands share, the types of their values, the output folder and the report of a command."""

import functools
import json
import math
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

import click

from xtts_pipeline.cli.completion import complete_preset, complete_setting
from xtts_pipeline.cli.echo import echo
from xtts_pipeline.corpus.columns import ROLES
from xtts_pipeline.corpus.options import ReadOptions
from xtts_pipeline.corpus.read import LAYOUTS
from xtts_pipeline.errors import EXIT_UNTRUE, CacheError, OutputError, did_you_mean, output_errors
from xtts_pipeline.inference.voice_folder import verify_voice
from xtts_pipeline.plots import PICTURE_SUFFIXES
from xtts_pipeline.system.storage import folder_path, is_stored
from xtts_pipeline.system.terminal import columns_of, echo_line, fold, has_surrogate
from xtts_pipeline.text.fallback import TextChanges, describe_changes
from xtts_pipeline.training.checkpoints.run_folder import GRIFFIN_LIM, find_checkpoint, read_cache_path
from xtts_pipeline.training.distributed.cluster import WAIT_WORKERS_SECONDS

F = TypeVar("F", bound=Callable[..., Any])

MAX_COUNT = 2**31 - 1


class Report(Protocol):
    """The result of a command."""

    def to_json(self) -> Any:
        """Return the report for programs."""

    def to_text(self) -> str:
        """Return the report for people. Names from others stand in lines made by `join_lines`."""


def print_report(report: Report, as_json: bool, *, is_true: bool = True) -> None:
    """Print a report on stdout; exit with 1 unless the check or job that it reports succeeded."""
    if as_json:
        echo(json.dumps(report.to_json(), ensure_ascii=False))
    else:
        echo(*fold(report.to_text(), columns_of(sys.stdout)).split("\n"))
    if not is_true:
        sys.exit(EXIT_UNTRUE)


def print_warnings(warnings: Iterable[str]) -> None:
    """Print each warning on stderr."""
    for warning in warnings:
        echo_line(f"warning: {warning}")


def print_text_changes(changes: TextChanges) -> None:
    """Print one warning on stderr that names the characters that were replaced or dropped, if there are any."""
    if changes:
        echo_line(f"warning: characters that the run lacks: {describe_changes(changes)}")


def create_empty_folder(folder: Path, remedy: str = "choose another --output") -> None:
    """Make an output folder. Raises OutputError if it holds anything, so that results of two runs are never mixed."""
    with output_errors(folder, remedy):
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise OutputError(f"{folder}: this folder is not empty; {remedy}")


def cache_of_run(run: Path | None) -> Path:
    """Return the cache that a run was trained on; `cache` without a run, or for a run that does not name its cache.

    Raises CacheError if the cache is not on this machine.
    """
    cache = None if run is None else read_cache_path(run)
    if cache is not None and (is_stored(cache) or not cache.is_dir()):
        raise CacheError(f"{run}: its cache {cache} is not on this machine; name a copy with --cache")
    return cache or Path("cache")


def warn_of_one_voice(run: Path, speakers: Sequence[str], references: Sequence[Path]) -> None:
    """Say on stderr that a run of one speaker cannot clone the voice of references."""
    if references and len(speakers) == 1:
        problem = "was trained on one speaker and cannot clone a voice: --reference hardly changes its speech"
        echo_line(f"warning: {run} {problem}; train on a corpus of several speakers")


class Share(click.ParamType[float]):
    """A share such as `5%` or `0.05`."""

    name = "share"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the share as a number between 0 and 1; a usage error otherwise."""
        if isinstance(value, float):
            return value
        try:
            share = float(value[:-1]) / 100 if value.endswith("%") else float(value)
        except ValueError:
            self.fail(f"{value!r} is not a share; expected one such as 5% or 0.05", param, ctx)
        if not 0.0 <= share <= 1.0:
            self.fail(f"{value!r} is not between 0% and 100%", param, ctx)
        return share


class Choice(click.Choice[str]):
    """One of a few words; the error for another one names the nearest."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:  # noqa: ARG002 (click's)
        """Return what the usage error says of `value`."""
        return f"found {value}; {did_you_mean(str(value), self.choices)}"


class Seconds(click.FloatRange):
    """A duration of at least this many seconds and at most one hour."""

    def __init__(self, least: float) -> None:
        super().__init__(least, 3_600.0)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds; a usage error otherwise, and for NaN, which no bound catches."""
        seconds: float = super().convert(value, param, ctx)
        if math.isnan(seconds):
            self.fail(f"{value!r} is not a number of seconds", param, ctx)
        return seconds


class LocalPath(click.Path):
    """A file or folder of this machine, or with `may_be_stored` of a store.

    expected: what the error says where no store can be used.
    """

    def __init__(self, expected: str = "a file or folder of this machine", *, may_be_stored: bool = False) -> None:
        super().__init__(path_type=Path)
        self._expected = expected
        self._may_be_stored = may_be_stored

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path; a usage error for a store where none can be used, or a name that cannot be printed."""
        if has_surrogate(str(value)) or len(str(value).splitlines()) > 1:
            self.fail(f"{str(value)!r} is not one line of UTF-8; rename it", param, ctx)
        try:
            path = folder_path(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if not is_stored(path):
            return super().convert(path, param, ctx)
        if not self._may_be_stored:
            self.fail(f"{path} lies in a store; expected {self._expected}", param, ctx)
        return path


class Count(click.ParamType[int]):
    """A number of things: at least `least`, and at most what an int32 holds."""

    name = "count"

    def __init__(self, least: int = 1) -> None:
        self._least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number; a usage error otherwise."""
        try:
            count = int(value)
        except ValueError:
            self.fail(f"{value!r} is not a whole number", param, ctx)
        if not self._least <= count <= MAX_COUNT:
            self.fail(f"{value} is not between {self._least} and {MAX_COUNT}", param, ctx)
        return count


class OutputFile(LocalPath):
    """A file to write in the format of its suffix: one of `suffixes`, or none for the first."""

    def __init__(self, *suffixes: str) -> None:
        super().__init__()
        self._suffixes = suffixes

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path. Raises OutputError for another suffix."""
        path = super().convert(value, param, ctx)
        check_suffix(path, self._suffixes)
        return path


def check_suffix(path: Path, suffixes: Collection[str]) -> None:
    """Raise OutputError if a file to write has a suffix of another format."""
    if path.suffix and path.suffix.lower() not in suffixes:
        raise OutputError(f"{path}: found the suffix {path.suffix}, expected {' or '.join(suffixes)}; rename the file")


class RunPath(LocalPath):
    """The folder of a run, or of one of its checkpoints: it is looked for before TensorFlow is imported."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path. Raises CheckpointError that names the runs below or beside it if it is no run."""
        path = super().convert(value, param, ctx)
        find_checkpoint(path)
        return path


class VoicePath(LocalPath):
    """A voice folder, whose files are compared with its manifest."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path. Raises CheckpointError if it is no voice, DamagedVoiceError if a file of it changed."""
        path = super().convert(value, param, ctx)
        verify_voice(path)
        return path


class VocoderPath(RunPath):
    """The folder of a vocoder's run or of one of its checkpoints, or the word `griffin-lim`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path or the word. Raises CheckpointError if it is neither."""
        return value if value == GRIFFIN_LIM else super().convert(value, param, ctx)


COUNT = Count()
FOLDER = LocalPath()
PICTURE = OutputFile(*PICTURE_SUFFIXES)
CACHE_FOLDER = LocalPath("a folder of this machine: use a copy there, and xtts cache push")
STORED_CACHE_FOLDER = LocalPath(may_be_stored=True)

cache_option = click.option(
    "--cache", type=CACHE_FOLDER, default=Path("cache"), show_default=True, help="Folder of the cache."
)
# For a command that only reads the cache.
stored_cache_option = click.option(
    "--cache",
    type=STORED_CACHE_FOLDER,
    default=Path("cache"),
    show_default=True,
    help="Folder of the cache, or a store: gs://bucket/cache.",
)
# For a command that may take the cache of a run.
run_cache_option = click.option(
    "--cache", type=CACHE_FOLDER, help="Folder of the cache.  [default: that of the run, else cache]"
)
run_option = click.option("--run", type=RunPath(), required=True, help="Folder of the run, or one of its checkpoints.")
# For a command that makes sound with a run.
vocoder_option = click.option(
    "--vocoder",
    type=VocoderPath(),
    metavar="RUN",
    help=f"Run of `xtts train-vocoder`, or {GRIFFIN_LIM}.  [default: that of use-vocoder, else {GRIFFIN_LIM}]",
)
reference_option = click.option(
    "--reference", "references", type=FOLDER, multiple=True, help="Sound file of the voice to speak with; repeatable."
)
set_option = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="SECTION.KEY=VALUE",
    shell_complete=complete_setting(),
    help="Override one setting; repeatable, overrides every file.",
)
# For a command that speaks with a run.
synthesis_option = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="synthesis.KEY=VALUE",
    shell_complete=complete_setting("synthesis."),
    help="Override one synthesis setting of the run; repeatable.",
)
# For a command whose work other processes share.
wait_workers_option = click.option(
    "--wait-workers",
    type=Seconds(1.0),
    default=WAIT_WORKERS_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="The longest wait for workers that do not answer.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON, alone on stdout.")


class Columns(click.ParamType[dict[str, str]]):
    """Roles and columns: `audio=file,text=transcription`."""

    name = "columns"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, str]:
        """Return role -> column in lower case; a usage error for an unknown role."""
        if isinstance(value, dict):
            return value
        columns = {}
        for pair in value.split(","):
            role, is_pair, column = (word.strip() for word in pair.partition("="))
            if not is_pair or not column:
                self.fail(f"{pair!r} is not ROLE=COLUMN; expected one such as audio=file", param, ctx)
            if role not in ROLES:
                self.fail(f"{role}: unknown; {did_you_mean(role, ROLES)}", param, ctx)
            columns[role] = column.lower()
        return columns


class Encoding(click.ParamType[str]):
    """The name of a text encoding that Python knows."""

    name = "encoding"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name; a usage error for an unknown one."""
        try:
            "".encode(value or "utf-8")
        except (LookupError, ValueError):
            self.fail(f"{value!r} is no text encoding; expected one such as utf-8, cp1252 or utf-16", param, ctx)
        return str(value)


# The options of `corpus_options`, for the sections of a command's help.
CORPUS_OPTIONS = ("layout", "columns", "audio_dir", "delimiter", "encoding")


def corpus_options(function: F) -> F:
    """Add the options that say how a corpus is read; the command receives them as one `reading`."""

    @functools.wraps(function)
    def with_reading(*args: Any, **options: Any) -> Any:
        reading = {name: options.pop(name) for name in CORPUS_OPTIONS}
        reading["delimiter"] = reading["delimiter"].replace(r"\t", "\t")
        return function(*args, reading=ReadOptions(**reading), **options)

    for option in (
        click.option("--encoding", type=Encoding(), default="", help="Encoding of the tables, such as cp1252."),
        click.option(
            "--delimiter", default="", metavar="TEXT", help=r"What separates the columns, such as ';' or '\t'."
        ),
        click.option("--audio-dir", default="", metavar="DIR", help="Folder of the sounds, where it is not found."),
        click.option(
            "--columns",
            type=Columns(),
            default={},
            show_default=False,
            metavar="ROLE=COLUMN,...",
            help=f"Columns of a table, such as audio=file,text=transcription; roles: {', '.join(ROLES)}.",
        ),
        click.option(
            "--layout",
            type=Choice(["auto", *LAYOUTS]),
            default="auto",
            show_default=True,
            metavar="LAYOUT",
            help=f"Layout of the corpus: {', '.join(LAYOUTS)}; `auto` finds it from the files in the folder.",
        ),
    ):
        with_reading = option(with_reading)
    return cast(F, with_reading)


def print_readings(readings: Iterable[ReadOptions]) -> None:
    """Print on stderr how each corpus was read, as options, where its layout does not say it."""
    for reading in readings:
        if reading.is_guided:
            echo_line(f"read by --layout {reading.layout} {reading.to_words()}")


def config_options(function: F) -> F:
    """Add `--config` and `--set`."""
    return click.option(
        "--config",
        "configs",
        multiple=True,
        metavar="FILE|PRESET",
        shell_complete=complete_preset,
        help="YAML file or preset name (see `xtts config presets`); repeatable, a later one overrides an earlier one.",
    )(set_option(function))
