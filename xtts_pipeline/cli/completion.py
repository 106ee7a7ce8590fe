"""What Tab offers for the values of options: presets, settings and their choices, utterance ids.

Reads a listing at most. Imports no TensorFlow.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import click
from click.shell_completion import CompletionItem

from xtts_pipeline.cache.format.listings import read_utterances
from xtts_pipeline.config.load import preset_names
from xtts_pipeline.config.schema import Config
from xtts_pipeline.errors import CacheError

# More would only fill the screen.
MAX_IDS = 100

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def complete_preset(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the presets that start with `incomplete`; the shell completes file names."""
    presets = [CompletionItem(name) for name in preset_names() if name.startswith(incomplete)]
    # bash drops everything that comes before the item of a file.
    return [CompletionItem(incomplete, type="file"), *presets]


def complete_id(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the first utterance ids of --cache that start with `incomplete`."""
    try:
        ids = (entry.id for entry in read_utterances(context.params.get("cache") or Path("cache")))
        return [CompletionItem(id) for id in islice((id for id in ids if id.startswith(incomplete)), MAX_IDS)]
    except CacheError:
        return []


def complete_setting(section: str = "") -> Completer:
    """Return the completion of SECTION.KEY=VALUE: the settings of one section or of all, then their choices."""

    def complete(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        key, equals, value = incomplete.partition("=")
        named = {name: few for name, few in setting_choices() if name.startswith(section)}
        if equals:
            offered = [f"{key}={choice}" for choice in named.get(key, []) if choice.startswith(value)]
        else:
            offered = [f"{name}=" for name in named if name.startswith(key)]
        return [CompletionItem(text) for text in offered]

    return complete


def complete_setting_name(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the settings that start with `incomplete`."""
    return [CompletionItem(name) for name, _ in setting_choices() if name.startswith(incomplete)]


def setting_choices() -> Iterator[tuple[str, list[str]]]:
    """Yield every SECTION.KEY with its choices; an empty list where any number or text is possible."""
    for section, part in Config.model_fields.items():
        for key, field in part.annotation.model_fields.items():  # type: ignore[union-attr]
            yield f"{section}.{key}", list(_choices(field.annotation))


def _choices(annotation: Any) -> Iterator[str]:
    if annotation is bool:
        yield from ("true", "false")
    elif get_origin(annotation) is Literal:
        yield from get_args(annotation)
    else:
        for part in get_args(annotation):
            yield from _choices(part)
