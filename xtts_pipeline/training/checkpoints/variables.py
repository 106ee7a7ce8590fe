"""Name variables by their dotted paths of attributes, for checkpoints and the optimizer."""

from collections.abc import Iterable, Iterator

import tensorflow as tf


def named_variables(module: tf.Module) -> dict[str, tf.Variable]:
    """Return every variable by a path such as `network.frame_decoder.norm.scale`.

    Raises ValueError if no path leads to a variable of the module: checkpoints would silently lack it.
    """
    named = dict(_walk(module, "", set()))
    if {id(variable) for variable in named.values()} != {id(variable) for variable in module.variables}:
        raise ValueError(f"{module.name} holds variables outside attributes, lists and dicts of modules")
    return named


def _walk(value: object, path: str, seen: set[int]) -> Iterator[tuple[str, tf.Variable]]:
    children: Iterable[tuple[object, object]] = ()
    if isinstance(value, tf.Variable):
        yield path, value
    elif isinstance(value, tf.Module) and id(value) not in seen:
        seen.add(id(value))
        children = ((name, child) for name, child in sorted(vars(value).items()) if not name.startswith("_"))
    elif isinstance(value, list):
        children = enumerate(value)
    elif isinstance(value, dict):
        children = value.items()
    for name, child in children:
        yield from _walk(child, f"{path}.{name}" if path else str(name), seen)
