"""Options that many commands share, the types of their values, the output folder and the report of a command.

Imports nothing slow: `verify-cache` starts from here. Options of corpora are in `corpus_options`, those of runs and
settings in `run_options`, and those of training in `training_options`.
"""

import errno
import json
import math
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain, count
from pathlib import Path
from typing import Any, Protocol, TypeVar

import click

from xtts_pipeline.cli.echo import echo
from xtts_pipeline.errors import EXIT_UNTRUE, OutputError, did_you_mean, output_errors
from xtts_pipeline.plots import PICTURE_SUFFIXES
from xtts_pipeline.system.atomic_files import remove
from xtts_pipeline.system.machine import usable_cores
from xtts_pipeline.system.storage import folder_path, is_stored
from xtts_pipeline.system.terminal import columns_of, echo_line, fold, has_surrogate

F = TypeVar("F", bound=Callable[..., Any])

MAX_COUNT = 2**31 - 1
_OTHER_OUTPUT = "choose another --output"
_PARTIAL_NAME = ".xtts.partial"


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


def dated_folder(parent: str) -> Path:
    """Return a folder under `parent`, named by the time, that nothing has taken; it is not made."""
    folder = Path(parent) / time.strftime("%Y%m%d-%H%M%S")
    numbered = (folder.with_name(f"{folder.name}-{number}") for number in count(2))
    return next(path for path in chain([folder], numbered) if not path.exists())


def create_empty_folder(folder: Path, remedy: str = _OTHER_OUTPUT) -> None:
    """Make an output folder. Raises OutputError if it holds anything, so that results of two runs are never mixed."""
    with output_errors(folder, remedy):
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise OutputError(f"{folder}: this folder is not empty; {remedy}")


def clear_place(folder: Path, remedy: str = _OTHER_OUTPUT) -> Path:
    """Return the path, resolved, of a folder that appears when all is written; an empty one there is removed.

    Raises OutputError for one that holds anything, the current folder and a mount point.
    """
    create_empty_folder(folder, remedy)
    folder = folder.resolve()
    if folder == Path.cwd():
        raise OutputError(f"{folder}: is the current folder, which would be replaced; {remedy}")
    with output_errors(folder, remedy):
        try:
            folder.rmdir()
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            raise OutputError(f"{folder}: is a mount point, which cannot be replaced; name a folder in it") from None
    return folder


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """Yield a folder whose content `folder` receives if the block succeeds, and is as before if it fails.

    The yielded one lies in `folder`, which may be a mount point, and what a killed command left there is removed first:
    the same command can be given again. Raises OutputError as `create_empty_folder` does.
    """
    is_new = not folder.exists()
    partial = folder / _PARTIAL_NAME
    with output_errors(folder, _OTHER_OUTPUT):
        remove(partial)
    create_empty_folder(folder)
    try:
        with output_errors(folder, _OTHER_OUTPUT):
            partial.mkdir()
        yield partial
        with output_errors(folder, _OTHER_OUTPUT):
            for path in sorted(partial.iterdir()):
                path.rename(folder / path.name)
            partial.rmdir()
    except BaseException:
        with suppress(OSError):  # the block's own error matters more
            remove(partial)
            if is_new:
                folder.rmdir()
        raise


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
        if not str(value):
            self.fail("found an empty name; expected a path, and . for the current folder", param, ctx)
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
        """Return the path. Raises OutputError for another suffix or a folder, before a long command does its work."""
        path = super().convert(value, param, ctx)
        check_suffix(path, self._suffixes)
        if path.is_dir():
            raise OutputError(f"{path}: found a folder, expected a file to write; choose another path")
        return path


def check_suffix(path: Path, suffixes: Collection[str]) -> None:
    """Raise OutputError if a file to write has a suffix of another format."""
    if path.suffix and path.suffix.lower() not in suffixes:
        raise OutputError(f"{path}: found the suffix {path.suffix}, expected {' or '.join(suffixes)}; rename the file")


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


def jobs_option(text: str) -> Callable[[F], F]:
    """Return the option for a number of processes with this help, by default one for each core that may be used."""
    return click.option("--jobs", type=COUNT, default=_core_count, show_default="all usable cores", help=text)


def _core_count() -> int:
    # joblib.cpu_count rounds alike, but importing joblib takes as long as verifying a small cache.
    return math.ceil(usable_cores().usable)


json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON, alone on stdout.")
