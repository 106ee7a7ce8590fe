"""Groups of commands: whole summaries in `--help`, and commands that are imported only when they are used."""

import importlib
from collections.abc import Mapping
from typing import Any

import click
from click.shell_completion import CompletionItem


class SummaryGroup(click.Group):
    """A group whose `--help` lists commands in the order of their definition, with summaries that are never cut off."""

    def list_commands(self, _context: click.Context) -> list[str]:
        """Return the names of the commands, in the order of their definition."""
        return list(self.summaries)

    @property
    def summaries(self) -> Mapping[str, str]:
        """The one-line summary of each command."""
        return {name: (command.help or "").partition("\n\n")[0] for name, command in self.commands.items()}

    def format_commands(self, _context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each command's name and whole summary."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self.summaries.items()))


class LazyGroup(SummaryGroup):
    """A group that knows its commands by name and summary, and imports one from `cli/commands/` when it is used.

    The command `verify-cache` is the object `verify_cache` of the module `verify_cache`.
    """

    def __init__(self, *args: Any, summaries: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._summaries = summaries

    @property
    def summaries(self) -> Mapping[str, str]:
        """The one-line summary of each command."""
        return self._summaries

    def get_command(self, _context: click.Context, name: str) -> click.Command | None:
        """Return a command, imported now; None if there is none of this name."""
        if name not in self._summaries:
            return None
        attribute = name.replace("-", "_")
        command: click.Command = getattr(importlib.import_module(f"xtts_pipeline.cli.commands.{attribute}"), attribute)
        return command

    def shell_complete(self, context: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the names that start with `incomplete`, without importing their commands."""
        names = [
            CompletionItem(name, help=text) for name, text in self._summaries.items() if name.startswith(incomplete)
        ]
        return [*names, *click.Command.shell_complete(self, context, incomplete)]
