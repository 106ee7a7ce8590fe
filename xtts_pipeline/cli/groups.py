"""Commands and groups whose `--help` is in sections, imported only when they are used, and the words bash completes."""

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import click
from click.shell_completion import BashComplete, CompletionItem, add_completion_class

from xtts_pipeline.errors import did_you_mean, nearest_name

MAX_TERM_WIDTH = 27
DEBUG_HELP = "Show tracebacks and TensorFlow's own log."
# Keeps `--step` near `--steps`, and `--speak` away from `--speed`.
OPTION_LIKENESS = 0.75


class _SpelledOptions(click.Command):
    """A command whose error for an unknown option says what may be meant: a setting, another option or a command."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        """Parse the words of the command line; a usage error for an unknown option."""
        try:
            return super().parse_args(context, args)
        except click.NoSuchOption as error:
            hint = self._hint(context, error.option_name.strip("-"))
            raise click.UsageError(f"no such option {error.option_name}{hint}", context) from None

    def _hint(self, context: click.Context, wanted: str) -> str:
        parameters = self.get_params(context)
        options = {name: parameter for parameter in parameters for name in parameter.opts if name[:2] == "--"}
        # What Tab offers after --set is each setting that the command takes, as `section.key=`.
        settings = [item.value for item in options["--set"].shell_complete(context, "")] if "--set" in options else []
        if named := [name for name in settings if name.partition(".")[2] == f"{wanted.replace('-', '_')}="]:
            return f"; use {' or '.join(f'--set {name}VALUE' for name in named)}"
        if near := nearest_name(wanted, [name[2:] for name in options], OPTION_LIKENESS):
            return f"; did you mean --{near}?"
        if isinstance(self, click.Group):
            return f"; name one of its commands first: {', '.join(self.list_commands(context))}"
        if any(isinstance(parameter, click.Argument) for parameter in parameters):
            return f"; the usage is {context.command_path} {' '.join(self.collect_usage_pieces(context))}"
        return ""


class DocumentedCommand(_SpelledOptions):
    """A command whose `--help` has its everyday options first and ends with an example; it takes `--debug` too.

    sections: headings, and below each the names of parameters; parameters without a heading stand first.
    """

    def __init__(
        self, *args: Any, example: str, sections: Mapping[str, Sequence[str]] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.params.append(_debug_option())
        self.example = example
        self._sections = sections or {}

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        """Parse the words of the command line; a usage error, with the example, for one that is missing or too many."""
        context.allow_extra_args = True
        try:
            extra = super().parse_args(context, args)
        except click.MissingParameter as error:
            missing = error.param.get_error_hint(context).replace("'", "") if error.param else "an option"
            context.fail(f"{missing} is missing; an example is: {self.example}")
        if extra and not context.resilient_parsing:
            context.fail(f"found {extra[0]}, which belongs to no option; an example is: {self.example}")
        return extra

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options in the order of their definition, those of each section below its heading."""
        headings = {name: heading for heading, names in self._sections.items() for name in names}
        sections: dict[str, list[tuple[str, str]]] = {heading: [] for heading in ("Options", *self._sections)}
        for parameter in self.get_params(context):
            record = parameter.get_help_record(context)
            if record is not None and isinstance(parameter, click.Option):
                sections[headings.get(parameter.name or "", "Options")].append(record)
        _write_sections(formatter, sections)

    def format_epilog(self, _context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the example."""
        with formatter.section("Example"):
            formatter.write(f"  {self.example}\n")


def _debug_option() -> click.Option:
    """Return the option that makes `xtts train --debug` the same as `xtts --debug train`."""

    def set_debug(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
        context.obj = context.obj or value

    return click.Option(["--debug"], is_flag=True, expose_value=False, callback=set_debug, help=DEBUG_HELP)


class SummaryGroup(_SpelledOptions, click.Group):
    """A group whose `--help` lists commands in the order of their definition, with summaries that are never cut off."""

    command_class = DocumentedCommand

    def list_commands(self, _context: click.Context) -> list[str]:
        """Return the names of the commands, in the order of their definition."""
        return [name for summaries in self.sections.values() for name in summaries]

    @property
    def sections(self) -> Mapping[str, Mapping[str, str]]:
        """The one-line summary of each command, below its heading."""
        return {
            "Commands": {name: (command.help or "").partition("\n\n")[0] for name, command in self.commands.items()}
        }

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
        _write_sections(formatter, {heading: [*summaries.items()] for heading, summaries in self.sections.items()})


class LazyGroup(SummaryGroup):
    """A group that knows its commands by name and summary, and imports one from `cli/commands/` when it is used.

    The command `verify-cache` is the object `verify_cache` of the module `verify_cache`. Those below a heading of
    `packages` lie in that package of `cli/commands/`, such as `.vocoder`.
    """

    def __init__(
        self, *args: Any, sections: Mapping[str, Mapping[str, str]], packages: Mapping[str, str], **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._sections, self._packages = sections, packages

    @property
    def sections(self) -> Mapping[str, Mapping[str, str]]:
        """The one-line summary of each command, below its heading."""
        return self._sections

    def get_command(self, _context: click.Context, name: str) -> click.Command | None:
        """Return a command, imported now; None if there is none of this name."""
        heading = next((heading for heading, summaries in self._sections.items() if name in summaries), None)
        if heading is None:
            return None
        attribute = name.replace("-", "_")
        package = f"xtts_pipeline.cli.commands{self._packages.get(heading, '')}"
        command: click.Command = getattr(importlib.import_module(f"{package}.{attribute}"), attribute)
        return command

    def shell_complete(self, context: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the names that start with `incomplete`, without importing their commands."""
        names = [
            CompletionItem(name, help=text)
            for summaries in self._sections.values()
            for name, text in summaries.items()
            if name.startswith(incomplete)
        ]
        return [*names, *click.Command.shell_complete(self, context, incomplete)]


def _write_sections(formatter: click.HelpFormatter, sections: Mapping[str, Sequence[tuple[str, str]]]) -> None:
    """Write rows of a term and its explanation below headings; all explanations start in one column."""
    # click writes the explanation of a longer term on the next line.
    width = max(len(term) for rows in sections.values() for term, _ in rows if len(term) <= MAX_TERM_WIDTH)
    for heading, rows in sections.items():
        with formatter.section(heading):
            formatter.write_dl([(f"{term:<{width}}", text) for term, text in rows])


@add_completion_class
class JoinedBashComplete(BashComplete):
    """Completes `SECTION.KEY=VALUE` in bash, which splits words at `=`, and adds no space after a `=`."""

    source_template = BashComplete.source_template.replace(
        "COMPREPLY+=($value)", "COMPREPLY+=($value); [[ $value == *= ]] && compopt -o nospace"
    )

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before the incomplete one, and that one with the `KEY=` that bash has cut off."""
        words, incomplete = super().get_completion_args()
        if incomplete == "=":
            words, incomplete = [*words, "="], ""
        if len(words) > 1 and words[-1] == "=":
            return words[:-2], f"{words[-2]}={incomplete}"
        return words, incomplete

    def format_completion(self, item: CompletionItem) -> str:
        """Return the line for bash, which replaces only what follows a `=`."""
        return f"{item.type},{item.value.partition('=')[2] or item.value}"
