"""`xtts config`: list presets; show, check or migrate settings."""

import json
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from xtts_pipeline.cli.completion import complete_preset
from xtts_pipeline.cli.echo import echo
from xtts_pipeline.cli.groups import SummaryGroup
from xtts_pipeline.cli.options import FOLDER, json_option, print_report
from xtts_pipeline.cli.run_options import set_option
from xtts_pipeline.config.load import (
    EarlierLoader,
    describe_preset,
    dump_config,
    load_config,
    preset_names,
    read_yaml,
    to_yaml,
    validate_tree,
)
from xtts_pipeline.config.migration import RULES, NotCarriedError
from xtts_pipeline.config.schema import Config, shorten
from xtts_pipeline.errors import EXIT_UNUSABLE, ConfigError
from xtts_pipeline.system.terminal import columns_of, counted, fold

# If two sections set the same key, the later section wins, as in the earlier system.
_SECTIONS = ("model", "data", "training")
# Where these are not set, `preprocess` and `train` choose by the cache.
_DEPENDENT = {"data": "buckets", "model": "voice_latents", "synthesis": "guidance"}


@click.group(cls=SummaryGroup)
def config() -> None:
    """List presets; show, check or migrate settings."""


@config.command(example="xtts config presets")
@json_option
def presets(as_json: bool) -> None:
    """List what `--config` takes by name."""
    described = {name: describe_preset(name) for name in preset_names()}
    if as_json:
        echo(json.dumps(described, ensure_ascii=False))
    else:
        lines = "\n".join(f"{name:18} {description}" for name, description in described.items())
        echo(*fold(lines, columns_of(sys.stdout)).split("\n"))


@config.command(example="xtts config show ljspeech --set training.batch_size=8")
@click.argument("files", nargs=-1, metavar="[FILE|PRESET]...", shell_complete=complete_preset)
@set_option
@json_option
def show(files: tuple[str, ...], overrides: tuple[str, ...], as_json: bool) -> None:
    """Print the merged settings, defaults included; a default that depends on the cache is a comment."""
    merged = load_config(files, overrides)
    as_text = json.dumps(merged.model_dump(mode="json"), ensure_ascii=False) if as_json else _shown(merged)
    echo(*as_text.rstrip("\n").split("\n"))


def _shown(merged: Config) -> str:
    """Return the settings as YAML that has the effect of what they were merged from."""
    text = dump_config(merged)
    for section, key in _DEPENDENT.items():
        if key not in getattr(merged, section).model_fields_set:
            text = re.sub(rf"^  ({key}: .*)", r"  # \1 (not set; depends on the cache)", text, flags=re.MULTILINE)
    return text


@config.command(example="xtts config check my.yaml")
@click.argument("files", nargs=-1, metavar="[FILE|PRESET]...", shell_complete=complete_preset)
@set_option
@json_option
def check(files: tuple[str, ...], overrides: tuple[str, ...], as_json: bool) -> None:
    """Check whether settings are valid.

    Exit code 0 if they are; otherwise 2, with every error on a line of its own.
    """
    problems: Sequence[str] = ()
    try:
        load_config(files, overrides)
    except ConfigError as error:
        problems = error.problems
    for problem in problems:
        echo(f"xtts: {problem}", err=True)
    if as_json:
        echo(json.dumps({"valid": not problems, "problems": problems}, ensure_ascii=False))
    elif not problems:
        echo("valid")
    if problems:
        sys.exit(EXIT_UNUSABLE)


@config.command("migrate", example="xtts config migrate old.yaml > new.yaml")
@click.argument("file", type=FOLDER, required=False, metavar="[OLD.YAML]")
@click.option("--train-data", metavar="DIR", help="The flag --train-data of train_main.py.")
@click.option("--val-data", metavar="DIR", help="The flag --val-data of train_main.py.")
@click.option("--batch-size", type=int, help="The flag --batch-size of train_main.py.")
@click.option("--num-workers", type=int, help="The flag --num-workers of train_main.py.")
@click.option("--optimization-level", metavar="LEVEL", help="The flag --optimization-level of train_main.py.")
@json_option
def config_migrate(file: Path | None, as_json: bool, **flags: str | int | None) -> None:
    """Print settings of the earlier system (MyXTTS) as settings of this one.

    What became of each key is written to stderr.
    """
    given = {f"--{name.replace('_', '-')}": value for name, value in flags.items() if value is not None}
    if file is None and not given:
        raise click.UsageError("nothing to migrate; name a YAML file of the earlier system, or one of its flags")
    report = migrate(file, given)
    if not as_json:
        for line in report.notes():
            echo(line, err=True)
    print_report(report, as_json)


@dataclass(frozen=True)
class MigratedKey:
    """What became of one key of the earlier system: its settings or, if there are none, the reason.

    is_known: whether there is a rule for the key.
    """

    key: str
    value: Any
    settings: Mapping[str, Any]
    why: str
    is_known: bool = True

    def __str__(self) -> str:
        found = shorten(self.value)
        if self.settings:
            became = ", ".join(f"{key}={value!r}" for key, value in self.settings.items())
            return f"{self.key}={found} -> {became}" + (f" ({self.why})" if self.why else "")
        return f"{self.key}={found}: {'dropped' if self.is_known else 'unknown, left out'}; {self.why}"

    def to_json(self) -> dict[str, Any]:
        """Return the key for programs."""
        return {
            "key": self.key,
            "value": _plain(self.value),
            "settings": dict(self.settings),
            "why": self.why,
            "known": self.is_known,
        }


@dataclass(frozen=True)
class Migration:
    """The new settings by section, and what became of each earlier key."""

    settings: dict[str, dict[str, Any]]
    keys: tuple[MigratedKey, ...]

    def to_json(self) -> dict[str, Any]:
        """Return settings and keys for programs."""
        return {"settings": self.settings, "keys": [key.to_json() for key in self.keys]}

    def to_text(self) -> str:
        """Return the new settings as YAML."""
        return to_yaml(self.settings).rstrip("\n")

    def notes(self) -> list[str]:
        """Return what became of each key, one line each, and a last line that counts them."""
        kept = sum(bool(key.settings) for key in self.keys)
        unknown = sum(not key.is_known for key in self.keys)
        dropped = len(self.keys) - kept - unknown
        counts = f"{counted(len(self.keys), 'key')}: {kept} carried over, {dropped} dropped, {unknown} unknown"
        return [*map(str, self.keys), f"{counts}; docs/migration.md says more"]


def migrate(file: Path | None, flags: Mapping[str, str | int]) -> Migration:
    """Translate a YAML file and command-line flags of the earlier system; flags override the file.

    Raises ConfigError if the file is no YAML of sections, or if a value is not valid for its new setting.
    """
    found = [
        *_old_keys({} if file is None else read_yaml(file, EarlierLoader)),
        *((flag, flag, flags[flag]) for flag in flags),
    ]
    old = {name.removeprefix("--").replace("-", "_"): value for _, name, value in found}
    migrated = [_migrate_key(key, name, value, old) for key, name, value in found]
    keys = _without_overridden(migrated, [name for _, name, _ in found])
    sections: dict[str, dict[str, Any]] = {name: {} for name in Config.model_fields}
    source, sources = str(file or "flags"), {}
    for key in keys:
        for setting, value in key.settings.items():
            section, _, name = setting.partition(".")
            sections[section][name] = value
            # A key that keeps its name is in the problem's line already.
            sources[setting] = source if key.key == setting else f"{source}: {key.key}"
    settings = {name: section for name, section in sections.items() if section}
    try:
        validate_tree(settings, sources)
    except ConfigError as error:
        raise ConfigError(*error.problems, *(f"{source}: {key}" for key in keys if not key.is_known)) from None
    return Migration(settings, tuple(keys))


def _plain(value: Any) -> Any:
    """Return a YAML value as JSON; a value that JSON cannot hold, such as a date or `.inf`, becomes text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inside) for key, inside in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inside) for inside in value]
    is_plain = value is None or isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value))
    return value if is_plain else str(value)


def _migrate_key(key: str, name: str, value: Any, old: Mapping[str, Any]) -> MigratedKey:
    rule = RULES.get(name)
    if rule is None:
        is_own = any(key == f"{section}.{setting}" for section, inside in Config() for setting, _ in inside)
        reason = "no setting has this name; xtts config show lists all settings"
        if is_own:
            reason = "no key of MyXTTS, but a setting here; copy it by hand"
        return MigratedKey(key, value, {}, reason, is_known=False)
    try:
        settings = rule.make(value, old)
    except NotCarriedError as error:
        return MigratedKey(key, value, {}, str(error))
    why = rule.why if settings or rule.becomes is None else f"the default of {rule.becomes} does the same"
    return MigratedKey(key, value, settings, why)


def _without_overridden(keys: Sequence[MigratedKey], names: Sequence[str]) -> list[MigratedKey]:
    """Return the keys, without the settings of a key that a later one overrides by its name or by a common setting."""
    last = dict(zip(names, [key.key for key in keys], strict=True))
    origin: dict[str, str] = {}
    kept = []
    for key, name in zip(reversed(keys), reversed(names), strict=True):
        overriding = next((origin[setting] for setting in key.settings if setting in origin), last[name])
        if key.settings and overriding != key.key:
            kept.append(replace(key, settings={}, why=f"{overriding} overrides it"))
        else:
            origin |= dict.fromkeys(key.settings, key.key)
            kept.append(key)
    return kept[::-1]


def _old_keys(tree: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Yield each key with its section, its bare name, and its value; keys that override others come last."""
    order = {name: place for place, name in enumerate(_SECTIONS, start=1)}
    for section in sorted(tree, key=lambda name: order.get(name, 0)):
        yield from _leaves(str(section), str(section), tree[section])


def _leaves(path: str, name: str, value: Any) -> Iterator[tuple[str, str, Any]]:
    if name not in RULES and isinstance(value, Mapping):
        for inner, inside in value.items():
            yield from _leaves(f"{path}.{inner}", str(inner), inside)
    else:
        yield path, name, value
