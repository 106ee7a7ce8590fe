"""Load settings: presets, YAML files and `--set` overrides, merged and validated.

No TensorFlow; opens no corpus.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from xtts_pipeline.config.explain import MAX_SHOWN, explain
from xtts_pipeline.config.schema import Config
from xtts_pipeline.config.strict_yaml import StrictDumper, StrictLoader
from xtts_pipeline.errors import ConfigError

MAX_CONFIG_BYTES = 1 << 20
MAX_KEY_DEPTH = 4
# PyYAML raises these for values with valid YAML syntax and invalid content: `2001-99-99`, `!!int x`, a list as a key.
_MALFORMED = (ValueError, TypeError, AttributeError, RecursionError)
PRESET_FOLDERS = (
    Path(__file__).parent.parent / "presets",  # in an installed wheel
    Path(__file__).parent.parent.parent / "configs",  # in a checkout
)


def preset_names() -> list[str]:
    """Return the names that `--config NAME` accepts, such as `ljspeech`."""
    return sorted(
        {
            file.relative_to(folder).with_suffix("").as_posix()
            for folder in PRESET_FOLDERS
            for file in folder.rglob("*.yaml")
        }
    )


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
    raise ConfigError(f"--config {name}: no such file or preset; presets are {', '.join(preset_names())}")


def load_config(
    files: Sequence[str] = (), overrides: Sequence[str] = (), base: Mapping[str, Any] | None = None
) -> Config:
    """Merge `base`, then each YAML file, then each `section.key=value`; a later one overrides an earlier one.

    Raises ConfigError that names the file or override, the key, what was found and what was expected.
    """
    config, problems = _load(files, overrides, base or {})
    if config is None:
        raise ConfigError("; ".join(problems))
    return config


def override_synthesis(config: Config, overrides: Sequence[str]) -> Config:
    """Return a trained run's config, overridden by each `synthesis.key=value`.

    Raises ConfigError for any other section, since training has fixed those settings, and for an invalid value.
    """
    for text in overrides:
        if set(_parse_override(text)) != {"synthesis"}:
            raise ConfigError(
                f"--set {text[:MAX_SHOWN]}: a trained run takes synthesis.* alone, such as synthesis.sharpness=1.5"
            )
    return load_config(overrides=overrides, base=config.model_dump(mode="json")) if overrides else config


def config_problems(files: Sequence[str] = (), overrides: Sequence[str] = ()) -> list[str]:
    """Return every error of the settings, one line each."""
    try:
        return _load(files, overrides, {})[1]
    except ConfigError as error:
        return [str(error)]


def _load(files: Sequence[str], overrides: Sequence[str], base: Mapping[str, Any]) -> tuple[Config | None, list[str]]:
    tree: dict[str, Any] = {}
    sources: dict[str, str] = {}
    layers = [("the cache's settings", dict(base))]
    layers += [(name, read_yaml(find_config_file(name))) for name in files]
    layers += [(f"--set {text}", _parse_override(text)) for text in overrides]
    for source, layer in layers:
        _merge(tree, layer, source, sources)
    return validate_tree(tree, sources)


def validate_tree(tree: Mapping[str, Any], sources: Mapping[str, str]) -> tuple[Config | None, list[str]]:
    """Return the config of these sections, or its problems, one line each.

    sources: where each `section.key` was given, which is the start of the line.
    """
    try:
        return Config.model_validate(tree), []
    except ValidationError as error:
        return None, explain(error, sources, Config)


def dump_config(config: Config) -> str:
    """Return the config as YAML that `load_config` reads back unchanged."""
    return to_yaml(config.model_dump(mode="json"))


def to_yaml(tree: Mapping[str, Any]) -> str:
    """Return sections of settings as YAML that `load_config` reads back unchanged."""
    return yaml.dump(dict(tree), Dumper=StrictDumper, sort_keys=False, allow_unicode=True)


def read_yaml(path: Path) -> dict[str, Any]:
    """Return the sections of a YAML file, not validated. Raises ConfigError if the file is no YAML of sections."""
    try:
        if path.stat().st_size > MAX_CONFIG_BYTES:
            size = path.stat().st_size
            raise ConfigError(
                f"{path}: {size} bytes, expected settings of at most {MAX_CONFIG_BYTES}; name a config file"
            )
        tree = yaml.load(path.read_text(encoding="utf-8"), Loader=StrictLoader)  # noqa: S506 (a SafeLoader)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read ({error}); expected a YAML file in UTF-8") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise ConfigError(f"{where}: not valid YAML: {problem}") from None
    except _MALFORMED as error:
        raise ConfigError(f"{path}: not valid YAML for settings: {str(error)[:MAX_SHOWN]}") from None
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise ConfigError(f"{path}: found a {type(tree).__name__}, expected sections such as `training:`")
    return tree


def _parse_override(text: str) -> dict[str, Any]:
    path, equals, raw = text.partition("=")
    keys = path.strip().split(".")
    if not equals or not all(keys) or len(keys) > MAX_KEY_DEPTH:
        raise ConfigError(f"--set {text[:MAX_SHOWN]}: expected section.key=value, such as training.batch_size=8")
    try:
        value = yaml.load(raw, Loader=StrictLoader)  # noqa: S506 (a SafeLoader)
    except (yaml.YAMLError, *_MALFORMED):
        raise ConfigError(f"--set {text[:MAX_SHOWN]}: {raw[:MAX_SHOWN]!r} is not a YAML value") from None
    tree: dict[str, Any] = {keys[-1]: value}
    for key in reversed(keys[:-1]):
        tree = {key: tree}
    return tree


def _merge(
    tree: dict[str, Any], layer: Mapping[str, Any], source: str, sources: dict[str, str], prefix: str = ""
) -> None:
    for key, value in layer.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping) and isinstance(tree.get(key, {}), dict):
            _merge(tree.setdefault(key, {}), value, source, sources, f"{path}.")
        else:
            tree[key] = value
        sources[path] = source
