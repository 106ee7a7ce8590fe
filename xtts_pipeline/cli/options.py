"""Options that several commands share, and the types of their values.

Imports nothing that takes time: `xtts --help` reads this.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from xtts_pipeline.system.storage import folder_path, is_stored

F = TypeVar("F", bound=Callable[..., Any])


class Share(click.ParamType[float]):
    """A share such as `5%` or `0.05`."""

    name = "share"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the share as a number between 0 and 1; an error of usage otherwise."""
        if isinstance(value, float):
            return value
        try:
            share = float(value[:-1]) / 100 if value.endswith("%") else float(value)
        except ValueError:
            self.fail(f"{value!r} is not a share; expected one such as 5% or 0.05", param, ctx)
        if not 0.0 <= share <= 1.0:
            self.fail(f"{value!r} is not between 0% and 100%", param, ctx)
        return share


# As corpus.read.LAYOUTS, which must not be imported for --help; a test holds the two together.
LAYOUTS = ("vctk", "libritts", "common_voice", "ljspeech", "coqui", "manifest")


class LocalPath(click.Path):
    """A file or folder of this machine."""

    expected = "a file or folder of this machine"

    def __init__(self, *, may_be_stored: bool = False) -> None:
        super().__init__(path_type=Path)
        self._may_be_stored = may_be_stored

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path; an error of usage where a store is named and none can be used."""
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
    """The folder of a cache, on this machine or, where the command only reads it, in a store such as gs://bucket/cache."""

    expected = "a folder of this machine: use a copy there, and xtts cache push"


FOLDER = LocalPath()


def cache_option(function: F) -> F:
    """Add `--cache`, which defaults to `cache/` everywhere: a folder of this machine."""
    return _cache_option(function, CacheFolder(may_be_stored=False), "Folder of the cache.")


def stored_cache_option(function: F) -> F:
    """Add `--cache` to a command that only reads it, from wherever TensorFlow does."""
    return _cache_option(
        function, CacheFolder(may_be_stored=True), "Folder of the cache, or a store: gs://bucket/cache."
    )


def _cache_option(function: F, folder: CacheFolder, described: str) -> F:
    return click.option("--cache", type=folder, default=Path("cache"), show_default=True, help=described)(function)


def _complete_preset(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the presets that begin so, and leave file names to the shell."""
    from xtts_pipeline.config.load import preset_names

    presets = [CompletionItem(name) for name in preset_names() if name.startswith(incomplete)]
    return [*presets, CompletionItem(incomplete, type="file")]


def config_options(function: F) -> F:
    """Add `--config` and `--set`."""
    function = click.option(
        "--set",
        "overrides",
        multiple=True,
        metavar="SECTION.KEY=VALUE",
        help="Override one setting; repeatable, wins over --config.",
    )(function)
    return click.option(
        "--config",
        "configs",
        multiple=True,
        metavar="FILE|PRESET",
        shell_complete=_complete_preset,
        help="YAML file or preset name; repeatable, the later wins.",
    )(function)


def synthesis_option(function: F) -> F:
    """Add `--set` to a command that speaks with a run: of its settings, those of the section `synthesis` alone."""
    return click.option(
        "--set",
        "overrides",
        multiple=True,
        metavar="synthesis.KEY=VALUE",
        help="Speak with this in place of the run's setting; repeatable.",
    )(function)


def layout_option(function: F) -> F:
    """Add `--layout`."""
    choice = click.Choice(["auto", *LAYOUTS])
    return click.option(
        "--layout", type=choice, default="auto", show_default=True, help="Corpus layout; `auto` looks at the folder."
    )(function)


def json_option(function: F) -> F:
    """Add `--json`: the result alone on stdout."""
    return click.option("--json", "as_json", is_flag=True, help="Print the result as JSON, alone on stdout.")(function)


def benchmark_options(names: tuple[str, ...]) -> Callable[[F], F]:
    """Return what adds the options of the named benchmarks: `--data` and `--seconds` only where one of them uses it."""
    options = [
        click.option(
            "--output", type=FOLDER, help="Folder for JSON and pictures, new or empty.  [default: benchmark/DATE-TIME]"
        ),
        click.option(
            "--clips",
            type=click.IntRange(min=1),
            help="Clips to measure with.  [default: preprocess 1000, input 256, step 512]",
        ),
        click.option(
            "--rounds",
            type=click.IntRange(min=1),
            help="How often each variant has its turn.  [default: 5, preprocess 3]",
        ),
    ]
    if names != ("step",):
        described = "The corpus: its sound is read, not sound that Griffin-Lim renders from the cache's mels."
        options.insert(0, click.option("--data", type=FOLDER, help=described))
    if "input" in names:
        seconds = click.FloatRange(min=0.05)
        described = "Of each measurement of the input pipeline."
        options.append(click.option("--seconds", type=seconds, default=2.0, show_default=True, help=described))

    def add(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return add
