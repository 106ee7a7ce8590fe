"""Options that several commands share, the types of their values, the output folder and the report of a command."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

import click
from click.shell_completion import CompletionItem

from xtts_pipeline.config.load import preset_names
from xtts_pipeline.corpus.read import LAYOUTS
from xtts_pipeline.errors import EXIT_UNTRUE, OutputError
from xtts_pipeline.system.storage import folder_path, is_stored

F = TypeVar("F", bound=Callable[..., Any])


class Report(Protocol):
    """The result of a command."""

    def to_json(self) -> Any:
        """Return the report for programs."""

    def to_text(self) -> str:
        """Return the report for people."""


def print_report(report: Report, as_json: bool, *, is_true: bool = True) -> None:
    """Print a report on stdout; exit with 1 unless `is_true`: what was asked for failed, or is not the case."""
    click.echo(json.dumps(report.to_json(), ensure_ascii=False) if as_json else report.to_text())
    if not is_true:
        sys.exit(EXIT_UNTRUE)


def create_empty_folder(folder: Path, remedy: str = "choose another --output") -> None:
    """Make an output folder. Raises OutputError if it holds anything, so that results of two runs are never mixed."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise OutputError(f"{folder}: this folder is not empty; {remedy}")
    except OSError as error:
        raise OutputError(f"{folder}: cannot be written ({error.strerror}); {remedy}") from None


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


class LocalPath(click.Path):
    """A file or folder of this machine."""

    expected = "a file or folder of this machine"

    def __init__(self, *, may_be_stored: bool = False) -> None:
        super().__init__(path_type=Path)
        self._may_be_stored = may_be_stored

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path; a usage error for a store where none can be used."""
        try:
            path = folder_path(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if not is_stored(path):
            return super().convert(path, param, ctx)
        if not self._may_be_stored:
            self.fail(f"{path} lies in a store; expected {self.expected}", param, ctx)
        return path


class CacheFolder(LocalPath):
    """The folder of a cache: on this machine or, if the command only reads it, in a store such as gs://bucket/cache."""

    expected = "a folder of this machine: use a copy there, and xtts cache push"


FOLDER = LocalPath()
COUNT = click.IntRange(min=1)


def cache_option(function: F) -> F:
    """Add `--cache` for a folder of this machine."""
    return _cache_option(function, CacheFolder(), "Folder of the cache.")


def stored_cache_option(function: F) -> F:
    """Add `--cache` for a folder of this machine or a store."""
    described = "Folder of the cache, or a store: gs://bucket/cache."
    return _cache_option(function, CacheFolder(may_be_stored=True), described)


def _cache_option(function: F, folder: CacheFolder, described: str) -> F:
    return click.option("--cache", type=folder, default=Path("cache"), show_default=True, help=described)(function)


def run_option(function: F) -> F:
    """Add `--run`, which a command needs that speaks with a trained network."""
    described = "Folder of the run, or one of its checkpoints."
    return click.option("--run", type=FOLDER, required=True, help=described)(function)


def reference_option(function: F) -> F:
    """Add `--reference`."""
    described = "Sound file of the voice to speak with; repeatable."
    return click.option("--reference", "references", type=FOLDER, multiple=True, help=described)(function)


def _complete_preset(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the presets that begin so, and leave file names to the shell."""
    presets = [CompletionItem(name) for name in preset_names() if name.startswith(incomplete)]
    return [*presets, CompletionItem(incomplete, type="file")]


def config_options(function: F) -> F:
    """Add `--config` and `--set`."""
    described = "YAML file or preset name; repeatable, a later one overrides an earlier one."
    return click.option(
        "--config",
        "configs",
        multiple=True,
        metavar="FILE|PRESET",
        shell_complete=_complete_preset,
        help=described,
    )(set_option(function))


def set_option(function: F) -> F:
    """Add `--set` for any setting."""
    described = "Override one setting; repeatable, overrides every file."
    metavar = "SECTION.KEY=VALUE"
    return click.option("--set", "overrides", multiple=True, metavar=metavar, help=described)(function)


def synthesis_option(function: F) -> F:
    """Add `--set` to a command that speaks with a run: for settings of the section `synthesis` alone."""
    described = "Override one synthesis setting of the run; repeatable."
    metavar = "synthesis.KEY=VALUE"
    return click.option("--set", "overrides", multiple=True, metavar=metavar, help=described)(function)


def layout_option(function: F) -> F:
    """Add `--layout`."""
    choice = click.Choice(["auto", *LAYOUTS])
    described = "Layout of the corpus; `auto` finds it from the files in the folder."
    return click.option("--layout", type=choice, default="auto", show_default=True, help=described)(function)


def json_option(function: F) -> F:
    """Add `--json`: the result alone on stdout."""
    return click.option("--json", "as_json", is_flag=True, help="Print the result as JSON, alone on stdout.")(function)
