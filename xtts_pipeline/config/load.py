"""Load settings: presets, YAML files and `--set` overrides, merged and validated.

No TensorFlow; opens no corpus.
"""

import os
import re
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import ValidationError

from xtts_pipeline.config.languages import canonical_language
from xtts_pipeline.config.migration import RULES
from xtts_pipeline.config.schema import MAX_SHOWN, Config, shorten
from xtts_pipeline.errors import ConfigError, did_you_mean, first_line_of
from xtts_pipeline.system.regular_files import read_regular_file
from xtts_pipeline.system.terminal import UNSAFE_CHARACTERS, counted, has_surrogate

MAX_CONFIG_BYTES = 1 << 16
MAX_NUMBER_CHARACTERS = 1_000
_NUMBERS = (":int", ":float")
_NAMED = re.compile(r"\w+\.\w+")
# In the words of YAML, where pydantic speaks of Python.
_EXPECTED = {
    "bool_type": "input should be true or false",
    "model_type": "input should be settings, such as `KEY: VALUE`",
    "string_pattern_mismatch": "a time such as 10min",
}
MAX_PROBLEMS = 20
# PyYAML raises these for values with valid YAML syntax and invalid content: `2001-99-99`, `!!int x`, a list as a key.
_MALFORMED = (ValueError, TypeError, AttributeError, RecursionError)
PRESET_FOLDERS = (
    Path(__file__).parent.parent / "presets",  # in an installed wheel
    Path(__file__).parent.parent.parent / "configs",  # in a checkout
)


class EarlierLoader(yaml.SafeLoader):
    """PyYAML's loader of YAML 1.1, which the earlier system had; `1e-4` is a number, duplicate keys are errors.

    So are aliases: they turn a file of a few hundred bytes into a tree of billions of nodes, or one without an end.
    """

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Return the next node. Raises ComposerError for an alias."""
        if self.check_event(yaml.events.AliasEvent):
            raise yaml.composer.ComposerError(None, None, "aliases are not allowed", self.peek_event().start_mark)  # type: ignore[no-untyped-call]
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return a mapping. Raises ConstructorError for a duplicate key."""
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=deep)
            if key in seen:
                problem = f"duplicate key {shorten(key)}"
                raise yaml.constructor.ConstructorError(None, None, problem, key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> Any:
        """Return a scalar's text. Raises ConstructorError for a number too long to print."""
        if node.tag.endswith(_NUMBERS) and len(node.value) > MAX_NUMBER_CHARACTERS:
            problem = f"a number of {len(node.value)} characters, expected at most {MAX_NUMBER_CHARACTERS}"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
        return super().construct_scalar(node)


class StrictLoader(EarlierLoader):
    """Reads numbers as people do, by the core schema of YAML 1.2: `0100` is 100, `1e-4` a number, `1:30` a text.

    Unlike the core schema it allows underscores between digits: `20_000`.
    """

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 -- PyYAML's name; filled below

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        """Return a whole number. Raises ValueError for other text."""
        text = self.construct_scalar(node)
        return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))

    def construct_yaml_float(self, node: yaml.ScalarNode) -> float:
        """Return a number. Raises ValueError for other text."""
        return float(self.construct_scalar(node).lower().replace(".inf", "inf").replace(".nan", "nan"))


class StrictDumper(yaml.SafeDumper):
    """Quotes every text that either loader would read as a number, a switch or nothing."""


_DIGITS = "[0-9]+(?:_[0-9]+)*"
_CORE_SCALARS = {
    "null": ("~|null|Null|NULL|", ["~", "n", "N", ""]),
    "bool": ("true|True|TRUE|false|False|FALSE", list("tTfF")),
    "int": (f"[-+]?{_DIGITS}|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    "float": (
        rf"[-+]?(?:\.{_DIGITS}|{_DIGITS}(?:\.(?:{_DIGITS})?)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|INF)|\.(?:nan|NAN)",
        list("-+.0123456789"),
    ),
}
for _name, (_pattern, _first_characters) in _CORE_SCALARS.items():
    _resolver = f"tag:yaml.org,2002:{_name}", re.compile(f"^(?:{_pattern})$"), _first_characters
    StrictLoader.add_implicit_resolver(*_resolver)
    StrictDumper.add_implicit_resolver(*_resolver)
    if _name == "float":
        EarlierLoader.add_implicit_resolver(*_resolver)
StrictLoader.add_constructor("tag:yaml.org,2002:int", StrictLoader.construct_yaml_int)
StrictLoader.add_constructor("tag:yaml.org,2002:float", StrictLoader.construct_yaml_float)


def preset_names() -> list[str]:
    """Return the names that `--config NAME` accepts, such as `ljspeech`."""
    return sorted(
        {
            file.relative_to(folder).with_suffix("").as_posix()
            for folder in PRESET_FOLDERS
            for file in folder.rglob("*.yaml")
        }
    )


def describe_preset(name: str) -> str:
    """Return the first line of a preset, a comment that says what it is for."""
    with find_config_file(name).open(encoding="utf-8") as file:
        return file.readline().lstrip("# ").rstrip()


def find_config_file(name: str) -> Path:
    """Return the file that `--config` names: a path, or a preset with or without `.yaml`.

    Raises ConfigError if there is none.
    """
    if Path(name).is_file():
        return Path(name)
    for folder in PRESET_FOLDERS:
        for candidate in (folder / name, folder / f"{name}.yaml"):
            if candidate.is_file():
                return candidate
    if os.path.lexists(name):
        raise ConfigError(f"--config {name}: found no regular file, expected a YAML file or the name of a preset")
    raise ConfigError(f"--config {name}: no such file or preset; {did_you_mean(name, preset_names())}")


def load_config(
    files: Sequence[str] = (),
    overrides: Sequence[str] = (),
    base: Mapping[str, Any] | None = None,
    base_source: str = "the cache's settings",
) -> Config:
    """Merge `base`, then each YAML file, then each `section.key=value`; a later one overrides an earlier one.

    Files and overrides give any name of a language, which becomes its code. The language of `base`, which an earlier
    version may have written, stays as it is.

    Raises ConfigError that names the file or override, the key, what was found and what was expected.
    """
    tree: dict[str, Any] = {}
    sources: dict[str, str] = {}
    layers = [(base_source, dict(base or {}))]
    layers += [(name, read_yaml(find_config_file(name))) for name in files]
    layers += [(f"--set {text[:MAX_SHOWN]}", _parse_override(text)) for text in overrides]
    for source, layer in layers:
        _merge(tree, layer, source, sources)
    config = validate_tree(tree, sources)
    source = sources.get("text.language", base_source)
    return config if source == base_source else _with_language_code(config, source)


def _with_language_code(config: Config, source: str) -> Config:
    try:
        code = canonical_language(config.text.language)
    except ValueError as error:
        key = "" if "text.language" in source else "text."
        raise ConfigError(f"{source}: {key}{error}") from None
    return config.with_settings("text", language=code)


def override_synthesis(config: Config, overrides: Sequence[str]) -> Config:
    """Return a trained run's config, overridden by each `synthesis.key=value`.

    Raises ConfigError for any other section, since training has fixed those settings, and for an invalid value.
    """
    for text in overrides:
        if set(_parse_override(text)) != {"synthesis"}:
            raise ConfigError(
                f"--set {text[:MAX_SHOWN]}: a trained run takes synthesis.* alone, such as synthesis.flow_steps=8"
            )
    return load_config(overrides=overrides, base=config.model_dump(mode="json")) if overrides else config


def validate_tree(tree: Mapping[str, Any], sources: Mapping[str, str]) -> Config:
    """Return the config of these sections. Raises ConfigError with every problem.

    sources: where each `section.key` was given, which is the start of a problem's line.
    """
    try:
        return Config.model_validate(tree)
    except ValidationError as error:
        raise ConfigError(*_explain(error, sources)) from None


def dump_config(config: Config) -> str:
    """Return the config as YAML that `load_config` reads back unchanged, but with every setting as one that is set."""
    return to_yaml(config.model_dump(mode="json"))


def to_yaml(tree: Mapping[str, Any]) -> str:
    """Return sections of settings as YAML that `load_config` reads back unchanged."""
    text = yaml.dump(dict(tree), Dumper=StrictDumper, sort_keys=False, allow_unicode=True)
    if UNSAFE_CHARACTERS.search(text.replace("\n", "")):
        text = yaml.dump(dict(tree), Dumper=StrictDumper, sort_keys=False)  # with YAML's escapes
    return text


def read_yaml(path: Path, loader: type[yaml.SafeLoader] = StrictLoader) -> dict[str, Any]:
    """Return the sections of a YAML file, not validated. Raises ConfigError if the file is no YAML of sections."""
    try:
        text = read_regular_file(path, MAX_CONFIG_BYTES).decode()
        tree = yaml.load(text, Loader=loader)  # noqa: S506 (a SafeLoader)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); expected a YAML file of settings") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        problem = getattr(error, "problem", None) or first_line_of(error)
        raise ConfigError(f"{where}: not valid YAML: {problem}") from None
    except _MALFORMED as error:
        raise ConfigError(f"{path}: not valid YAML for settings: {str(error)[:MAX_SHOWN]}") from None
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise ConfigError(f"{path}: found a {type(tree).__name__}, expected sections such as `training:`")
    return tree


def _parse_override(text: str) -> dict[str, Any]:
    if has_surrogate(text):
        raise ConfigError(f"--set {text[:MAX_SHOWN]}: holds bytes that are not UTF-8; give the setting in UTF-8")
    path, equals, raw = text.partition("=")
    section, point, key = path.strip().partition(".")
    if not equals or not section or (point and not key):
        raise ConfigError(f"--set {text[:MAX_SHOWN]}: expected section.key=value, such as training.batch_size=8")
    try:
        value = yaml.load(raw, Loader=StrictLoader)  # noqa: S506 (a SafeLoader)
    except (yaml.YAMLError, *_MALFORMED):
        raise ConfigError(f"--set {text[:MAX_SHOWN]}: {raw[:MAX_SHOWN]!r} is not a YAML value") from None
    return {section: {key: value} if point else value}


def _merge(tree: dict[str, Any], layer: Mapping[str, Any], source: str, sources: dict[str, str]) -> None:
    for section, given in layer.items():
        settings = {} if given is None else given  # a section whose keys are all comments
        sources[str(section)] = source
        if isinstance(settings, Mapping) and isinstance(tree.get(section, {}), Mapping):
            tree[section] = {**tree.get(section, {}), **settings}
            sources.update((f"{section}.{key}", source) for key in settings)
        else:
            tree[section] = settings


def _explain(error: ValidationError, sources: Mapping[str, str]) -> list[str]:
    """Return one line per key with a problem: its source, its key and, for an unknown key, the nearest known or all."""
    found: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for item in error.errors(include_url=False):
        # Pydantic adds the type that it tried, for a choice of types.
        found.setdefault(tuple(str(key) for key in item["loc"][:2]), []).append(item)
    problems = []
    for keys, items in islice(found.items(), MAX_PROBLEMS):
        path = ".".join(keys)
        source = _source_of(keys, items[0], sources)
        # An override names its key and value already.
        problem = _problem(keys, items, is_named=source.startswith(f"--set {path}="))
        problems.append(f"{source}: {problem}" if source else problem)
    more = [counted(len(found) - MAX_PROBLEMS, "more problem")] if len(found) > MAX_PROBLEMS else []
    return problems + more


def _source_of(keys: Sequence[str], item: Mapping[str, Any], sources: Mapping[str, str]) -> str:
    """Return where a key was given; for a contradiction in a section, where each setting that it names was given."""
    if len(keys) < 2 and item["type"] == "value_error":
        problem = str(item["ctx"]["error"])
        named = [f"{keys[0]}.{name}" for name in re.findall(r"(\w+)=", problem)] if keys else _NAMED.findall(problem)
        if found := dict.fromkeys(sources[key] for key in named if key in sources):
            return ", ".join(found)
    return sources.get(".".join(keys), sources.get(keys[0], "") if keys else "")


def _problem(keys: Sequence[str], items: Sequence[Mapping[str, Any]], *, is_named: bool) -> str:
    """Return what is wrong with a key, and its name and value unless they are named already."""
    path, item = ".".join(keys)[:MAX_SHOWN], items[0]
    if item["type"] == "extra_forbidden":
        return f"unknown key{'' if is_named else f' {path}'}; {_nearest_key(keys)}"
    if item["type"] == "value_error":
        return f"{path}: {item['ctx']['error']}" if path and not is_named else str(item["ctx"]["error"])
    # A choice such as `a number or auto` fails once for each of its types: one line names them all.
    messages = [_EXPECTED.get(item["type"]) or f"{item['msg'][0].lower()}{item['msg'][1:]}" for item in items]
    first, *others = dict.fromkeys([*messages, *(["null"] if _may_be_null(keys) else [])])
    expected = ", or ".join([first, *(text.removeprefix("input should be ") for text in others)])
    return expected if is_named else f"{path}={shorten(item['input'])}: {expected}"


def _may_be_null(keys: Sequence[str]) -> bool:
    section = Config.model_fields.get(keys[0]) if len(keys) == 2 else None
    field = section.annotation.model_fields.get(keys[1]) if section else None  # type: ignore[union-attr]
    return field is not None and type(None) in get_args(field.annotation)


def _nearest_key(keys: Sequence[str]) -> str:
    """Return the remedy for an unknown key: its name here, its section, or the nearest keys of the section it is in."""
    *section, key = keys
    sections = Config().model_dump()
    known = list(sections[section[0]] if section else sections)
    if key not in known:
        if found := [f"{name}.{key}" for name, values in sections.items() if key in values]:
            return f"did you mean {' or '.join(found)}?"
        if rule := RULES.get(key):
            remedy = f"did you mean {rule.becomes}?" if rule.becomes else f"{rule.why};"
            return f"{remedy} `xtts config migrate` translates files of MyXTTS"
    return did_you_mean(key, known, prefix=f"{section[0]}." if section else "")
