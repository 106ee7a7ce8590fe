"""The one way to print: every line is escaped, since names in it may come from others."""

import click

from xtts_pipeline.system.terminal import escape


def echo(*lines: str, err: bool = False) -> None:
    """Print each line on stdout, or on stderr."""
    for line in lines:
        click.echo(escape(line), err=err)
