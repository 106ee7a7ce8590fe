"""Print results: every line is escaped, since names in it may come from others.

Messages are printed by `xtts_pipeline.system.terminal.echo_line`, which escapes and folds them.
"""

from collections.abc import Sequence

import click

from xtts_pipeline.system.terminal import escape


def echo(*lines: str, err: bool = False) -> None:
    """Print each line on stdout, or on stderr."""
    for line in lines:
        click.echo(escape(line), err=err)


def echo_rows(*rows: Sequence[str]) -> None:
    """Print a row of a table on each line of stdout, its fields between tabs."""
    for fields in rows:
        click.echo("\t".join(map(escape, fields)))
