"""Options that several commands share, and the types of their values.

Imports nothing that takes time: `xtts --help` reads this.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

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

FOLDER = click.Path(path_type=Path)


def cache_option(function: F) -> F:
    """Add `--cache`, which defaults to `cache/` everywhere."""
    return click.option("--cache", type=FOLDER, default=Path("cache"), show_default=True, help="Folder of the cache.")(function)


def _complete_preset(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the presets that begin so, and leave file names to the shell."""
    from xtts_pipeline.config import preset_names

    presets = [CompletionItem(name) for name in preset_names() if name.startswith(incomplete)]
    return [*presets, CompletionItem(incomplete, type="file")]


def config_options(function: F) -> F:
    """Add `--config` and `--set`."""
    function = click.option(
        "--set", "overrides", multiple=True, metavar="SECTION.KEY=VALUE", help="Override one setting; repeatable, wins over --config."
    )(function)
    return click.option(
        "--config",
        "configs",
        multiple=True,
        metavar="FILE|PRESET",
        shell_complete=_complete_preset,
        help="YAML file or preset name; repeatable, the later wins.",
    )(function)


def layout_option(function: F) -> F:
    """Add `--layout`."""
    choice = click.Choice(["auto", *LAYOUTS])
    return click.option("--layout", type=choice, default="auto", show_default=True, help="Corpus layout; `auto` looks at the folder.")(
        function
    )


def json_option(function: F) -> F:
    """Add `--json`: the result alone on stdout."""
    return click.option("--json", "as_json", is_flag=True, help="Print the result as JSON, alone on stdout.")(function)
