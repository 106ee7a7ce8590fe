"""Turn pydantic's errors about settings into one line each, for people."""

import difflib
from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ValidationError

MAX_PROBLEMS, MAX_SHOWN = 20, 100
# Earlier names of settings, which are too far from the present ones to be found by their spelling.
RENAMED_KEYS = {
    "own_frames_start": "scheduled_sampling_start",
    "own_frames_ramp_steps": "scheduled_sampling_ramp_steps",
    "own_frames_share": "scheduled_sampling_share",
    "average_decay": "ema_decay",
    "final_rate_share": "final_lr_fraction",
    "null_voice_share": "reference_dropout",
    "skipped_in_a_row": "max_consecutive_skips",
    "speak_every_evaluations": "sample_every_evaluations",
    "spoken_sentences": "sample_sentences",
    "in_memory": "cache_records",
    "cache_in_memory": "cache_features",
}


def shorten(value: object) -> str:
    """Return the repr of a value, cut after 100 characters."""
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


def explain(error: ValidationError, sources: Mapping[str, str], settings: type[BaseModel]) -> list[str]:
    """Return one line per problem: its source, its key and, for an unknown key, the nearest known key or all of them.

    sources: where each `section.key` was given.
    settings: the model that raised the error.
    """
    problems: list[str] = []
    for item in error.errors():
        keys = _keys_of(settings, item["loc"])
        path = ".".join(keys)
        source = sources.get(path, sources.get(keys[0], "") if keys else "")
        if item["type"] == "extra_forbidden":
            problem = _unknown_key(keys, settings)
        elif item["type"] == "value_error":
            problem = f"{path}: {item['ctx']['error']}" if path else str(item["ctx"]["error"])
        else:
            problem = f"{path}={shorten(item['input'])}: {item['msg'][0].lower()}{item['msg'][1:]}"
        problem = f"{source}: {problem}" if source else problem
        head, _, expected = problem.partition(": input should be ")
        if expected and problems and problems[-1].startswith(f"{head}: "):
            # A choice such as `a number or auto` fails once for each of its types: one line names them all.
            problems[-1] += f", or {expected}"
        elif problem not in problems:
            problems.append(problem)
    more = [f"{len(problems) - MAX_PROBLEMS} more problems"] if len(problems) > MAX_PROBLEMS else []
    return problems[:MAX_PROBLEMS] + more


def _unknown_key(keys: Sequence[str], settings: type[BaseModel]) -> str:
    *section, key = keys
    known = _known_keys(settings, section)
    near = [RENAMED_KEYS[key]] if RENAMED_KEYS.get(key) in known else difflib.get_close_matches(key, known, 1, 0.5)
    remedy = f"did you mean {'.'.join([*section, near[0]])}?" if near else f"known are {', '.join(known)}"
    return f"unknown key {'.'.join(keys)}; {remedy}"


def _keys_of(section: type[BaseModel], place: Sequence[str | int]) -> list[str]:
    """Return the keys of a place in the settings, without the type that pydantic adds for a choice of types."""
    keys: list[str] = []
    inner: type[BaseModel] | None = section
    for key in map(str, place):
        if inner is None:
            break
        keys.append(key)
        inner = _section_within(inner, key)
    return keys


def _known_keys(section: type[BaseModel], path: Sequence[str]) -> list[str]:
    inner: type[BaseModel] | None = section
    for key in path:
        inner = None if inner is None else _section_within(inner, key)
    return [] if inner is None else list(inner.model_fields)


def _section_within(section: type[BaseModel], key: str) -> type[BaseModel] | None:
    field = section.model_fields.get(key)
    inner = None if field is None else field.annotation
    return inner if isinstance(inner, type) and issubclass(inner, BaseModel) else None
