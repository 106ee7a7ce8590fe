"""What is asked of a run that goes on, held against what it was: settings that changed, and which of them may. Knows no TensorFlow."""

import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from xtts_pipeline.config.schema import Config
from xtts_pipeline.errors import ConfigError

# What `--allow-change` calls the clips themselves; also the section that lays them out.
RECORDS_KEY = "cache"
Changes = dict[str, tuple[Any, Any]]


def changed_settings(before: Config, now: Config) -> Changes:
    """Return the settings that differ by their keys, `section.key`, each before and now."""
    old, new = (dict(_flat(config.model_dump(mode="json"))) for config in (before, now))
    return {key: (old[key], new[key]) for key in old if old[key] != new[key]}


def check_allowed_keys(allowed: Collection[str]) -> None:
    """Raise ConfigError if a key that may change is neither a setting nor a section."""
    keys = [key for key, _ in _flat(Config().model_dump(mode="json"))]
    known = {*keys, *(key.partition(".")[0] for key in keys), RECORDS_KEY}
    for key in allowed:
        if key not in known:
            raise ConfigError(
                f"--allow-change {key}: no such setting or section; expected one such as training.learning_rate"
            )


def check_changes(run: Path, changes: Changes, allowed: Collection[str]) -> None:
    """Raise ConfigError that names each change which is not allowed, by its key or its section."""
    refused = {
        key: pair for key, pair in changes.items() if key not in allowed and key.partition(".")[0] not in allowed
    }
    if refused:
        listed = "; ".join(
            f"{key}: the run has {json.dumps(was)}, asked for is {json.dumps(now)}"
            for key, (was, now) in refused.items()
        )
        remedy = " ".join(f"--allow-change {key}" for key in refused)
        raise ConfigError(f"{run}: {listed}; leave these as they were, or add {remedy}")


def _flat(tree: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for section, settings in tree.items():
        yield from ((f"{section}.{key}", value) for key, value in settings.items())
