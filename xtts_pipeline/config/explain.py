"""What is wrong with settings, for people: pydantic's errors as one line each."""

import difflib
from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ValidationError

MAX_PROBLEMS, MAX_SHOWN = 20, 100


def explain(error: ValidationError, sources: Mapping[str, str], settings: type[BaseModel]) -> list[str]:
    """Return one line a problem, with its source, its key and, for an unknown key, the nearest known one or all there are.

    `sources` has where each `section.key` was given; `settings` is the model that refused them.
    """
    problems: list[str] = []
    for item in error.errors():
        keys = _keys_of(settings, item["loc"])
        path = ".".join(keys)
        source = sources.get(path, sources.get(keys[0], "") if keys else "")
        if item["type"] == "extra_forbidden":
            known = _known_keys(settings, keys[:-1])
            near = difflib.get_close_matches(keys[-1], known, n=1, cutoff=0.5)
            remedy = f"did you mean {'.'.join([*keys[:-1], near[0]])}?" if near else f"known are {', '.join(known)}"
            problem = f"unknown key {path}; {remedy}"
        elif item["type"] == "value_error":
            problem = f"{path}: {item['ctx']['error']}" if path else str(item["ctx"]["error"])
        else:
            found = repr(item["input"])
            found = found if len(found) <= MAX_SHOWN else f"{found[:MAX_SHOWN]}..."
            problem = f"{path}={found}: {item['msg'][0].lower()}{item['msg'][1:]}"
        problem = f"{source}: {problem}" if source else problem
        head, _, expected = problem.partition(": input should be ")
        if expected and problems and problems[-1].startswith(f"{head}: "):
            # What is left of a choice, such as a number or `auto`: one problem with the one before it.
            problems[-1] += f", or {expected}"
        elif problem not in problems:
            problems.append(problem)
    more = [f"{len(problems) - MAX_PROBLEMS} more problems"] if len(problems) > MAX_PROBLEMS else []
    return problems[:MAX_PROBLEMS] + more


def _keys_of(section: type[BaseModel], place: Sequence[str | int]) -> list[str]:
    """Return the keys of a place in the settings, without what pydantic adds behind a key to say which of several types was tried."""
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
