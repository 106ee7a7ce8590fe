"""Groups of commands: whole summaries in `--help`, and commands that are imported only when they are used."""

import importlib
from collections.abc import Mapping
from typing import Any

import click
from click.shell_completion import CompletionItem

from xtts_pipeline.errors import did_you_mean


class SummaryGroup(click.Group):
    """A group whose `--help` lists commands in the order of their definition, with summaries that are never cut off."""

    def list_commands(self, _context: click.Context) -> list[str]:
        """Return the names of the commands, in the order of their definition."""
        return list(self.summaries)

    @property
    def summaries(self) -> Mapping[str, str]:
        """The one-line summary of each command."""
        return {name: (command.help or "").partition("\n\n")[0] for name, command in self.commands.items()}

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the first word names; a usage error with the nearest name if there is none."""
        known = self.list_commands(context)
        if args[0] not in known and not args[0].startswith("-") and not context.resilient_parsing:
            context.fail(f"no such command {args[0]}; {did_you_mean(args[0], known)}")
        return super().resolve_command(context, args)

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
