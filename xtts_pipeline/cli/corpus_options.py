"""Options that say how a corpus is read."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import click

from xtts_pipeline.cache.build.plan import CorpusIndex
from xtts_pipeline.cli.options import Choice
from xtts_pipeline.corpus.columns import ROLES
from xtts_pipeline.corpus.encodings import is_text_encoding
from xtts_pipeline.corpus.options import ReadOptions
from xtts_pipeline.corpus.read import LAYOUTS
from xtts_pipeline.errors import did_you_mean
from xtts_pipeline.system.storage import user_cache
from xtts_pipeline.system.terminal import echo_line

F = TypeVar("F", bound=Callable[..., Any])


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
            if role in columns:
                self.fail(f"{role} is given twice; expected one column for each role", param, ctx)
            columns[role] = column.lower()
        return columns


class Encoding(click.ParamType[str]):
    """The name of a text encoding that Python knows."""

    name = "encoding"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name; a usage error for an unknown one."""
        if value and not is_text_encoding(value):
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


def print_readings(index: CorpusIndex) -> None:
    """Print on stderr how each corpus was read, as options, where its layout does not say it; files written; notes."""
    cache = user_cache()
    for reading, root in zip(index.readings, index.roots, strict=True):
        if reading.is_guided:
            echo_line(f"read by --layout {reading.layout} {reading.to_words()}")
        if cache is not None and root.is_relative_to(cache):
            echo_line(f"sounds of the {reading.layout} files: written to {root}; --audio-dir names another folder")
    for note in index.notes:
        echo_line(note)
