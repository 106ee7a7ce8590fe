"""What a compiled function is called with: which argument is not as it was compiled for, and why that may be.

Compares descriptions of arguments. Runs nothing and reads no tensor's values.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import tensorflow as tf

from xtts_pipeline.errors import TrainingError
from xtts_pipeline.model.network import Batch

# How a user says in which dimension clips differ, and what bounds it.
_LENGTHS = {"tokens": ("texts", "limits.max_text_length"), "mel": ("mels", "limits.max_mel_frames")}


class Argument(NamedTuple):
    """One argument as tf.function sees it; shape and dtype are None of what is no tensor and no array."""

    name: str
    type: str
    shape: tuple[int | None, ...] | None
    dtype: str | None

    def __str__(self) -> str:
        if self.shape is None:
            return self.type
        shown = f"{self.dtype} [{', '.join('None' if size is None else str(size) for size in self.shape)}]"
        return shown if self.type == "tensor" else f"{self.type} {shown}"


@dataclass(frozen=True)
class Change:
    """How a call differs from what a function was compiled for: the arguments, static beside dynamic, and the likely cause."""

    arguments: tuple[tuple[Argument, Argument], ...]
    kind: str
    cause: str
    remedy: str

    def __str__(self) -> str:
        pairs = ", ".join(f"{static.name} (static {static}, dynamic {dynamic})" for static, dynamic in self.arguments)
        return f"{pairs}; likely cause: {self.cause}; remedy: {self.remedy}"

    def to_json(self) -> dict[str, Any]:
        """Return it as `--json` prints it."""
        arguments = [
            {"name": static.name, "static": str(static), "dynamic": str(dynamic)} for static, dynamic in self.arguments
        ]
        return {"kind": self.kind, "arguments": arguments, "cause": self.cause, "remedy": self.remedy}


class RetraceError(TrainingError):
    """A strict function was called with what it was not compiled for; it was not run."""

    def __init__(self, function: str, change: Change) -> None:
        super().__init__(
            f"{function} was called with what it was not compiled for: {change} (training.strict_shapes=false goes on)"
        )
        self.change = change


def key_of(batch: Batch) -> Hashable:
    """Return what tf.function tells calls apart by: shape and dtype of tensors and signatures, the type of anything else."""
    return tuple(
        [
            (value.shape, value.dtype)
            if isinstance(value, tf.Tensor | tf.TensorSpec)
            else (type(value), _shape_of(value))
            for value in batch
        ]
    )


def arguments_of(batch: Batch) -> tuple[Argument, ...]:
    """Describe the arguments of a call, or of a signature; what is None is none."""
    return tuple(_describe(name, value) for name, value in zip(Batch._fields, batch, strict=True) if value is not None)


def find_change(dynamic: Sequence[Argument], signatures: Sequence[Sequence[Argument]]) -> Change | None:
    """Return how a call differs from the nearest of the signatures, or None if it fits one."""

    def differing(static: Sequence[Argument]) -> tuple[tuple[Argument, Argument], ...]:
        given = {argument.name: argument for argument in dynamic}
        wanted = {argument.name: argument for argument in static}
        nothing = Argument("", "nothing", None, None)
        names = [name for name in Batch._fields if given.get(name) != wanted.get(name)]
        return tuple(
            (wanted.get(name, nothing._replace(name=name)), given.get(name, nothing._replace(name=name)))
            for name in names
        )

    candidates = [(differing(static), static) for static in signatures]
    arguments, static = min(candidates, key=lambda candidate: (len(candidate[0]), _distance(candidate[0])))
    return Change(arguments, *_explain(arguments, static, dynamic)) if arguments else None


def _shape_of(value: Any) -> tuple[int, ...] | None:
    return tuple(value.shape) if hasattr(value, "shape") else None


def _describe(name: str, value: Any) -> Argument:
    if isinstance(value, tf.Tensor | tf.TensorSpec):
        return Argument(name, "tensor", tuple(value.shape.as_list()), value.dtype.name)
    if hasattr(value, "shape"):
        return Argument(name, "NumPy", tuple(value.shape), str(value.dtype))
    return Argument(name, f"Python {type(value).__name__}", None, None)


def _distance(arguments: Sequence[tuple[Argument, Argument]]) -> int:
    """Return by how many elements along all axes the arguments differ, so that the nearest bucket is named."""
    pairs = [(static.shape or (), dynamic.shape or ()) for static, dynamic in arguments]
    return sum(
        abs((one or 0) - (other or 0)) for static, dynamic in pairs for one, other in zip(static, dynamic, strict=False)
    )


def _explain(
    arguments: Sequence[tuple[Argument, Argument]], all_static: Sequence[Argument], all_dynamic: Sequence[Argument]
) -> tuple[str, str, str]:
    """Return kind, likely cause and remedy; the first rule that fits, from the plainest on."""
    for static, dynamic in arguments:
        if static.type != dynamic.type:
            return _explain_type(static, dynamic)
    for static, dynamic in arguments:
        if static.dtype != dynamic.dtype:
            cause = (
                "ids and lengths are int64 where Python or NumPy made them"
                if dynamic.dtype == "int64"
                else "a cast on the way"
            )
            return "dtype", cause, f"cast {static.name} to {static.dtype} where the batch is made, as schema.py has it"
    rows, found = (all_static[0].shape or (None,))[0], {argument.shape[0] for argument in all_dynamic if argument.shape}
    if len(found) == 1 and found != {rows}:
        cause = f"a batch of {found.pop()} rows instead of {rows}, as the last of an epoch may be"
        return "incomplete_batch", cause, f"batch with drop_remainder=True, so that each has {rows} rows"
    for static, _ in arguments:
        if static.name in _LENGTHS:
            what, limit = _LENGTHS[static.name]
            return (
                "shape",
                f"{what} are padded to the longest of their batch",
                f"pad all {what} to {limit}, or to their bucket's length",
            )
    return (
        "shape",
        "another shape of what the batch is made from",
        f"make {arguments[0][0].name} as the manifest's fields say",
    )


def _explain_type(static: Argument, dynamic: Argument) -> tuple[str, str, str]:
    if static.type == "nothing":
        return (
            "type",
            f"the batch holds {static.name}, which this cache has but one of",
            f"make the batch with to_batch, which drops {static.name}",
        )
    if dynamic.type == "nothing":
        return (
            "type",
            f"{static.name} was left out of the batch",
            f"make the batch with to_batch, which gives it {static.name}",
        )
    if dynamic.type == "NumPy":
        return (
            "type",
            "a NumPy array is copied to the device at each call",
            f"pass {static.name} as a tensor of the input pipeline",
        )
    remedy = f"pass {static.name} as a tensor: tf.constant(value, tf.{static.dtype})"
    return (
        "python_argument",
        f"the value of a {dynamic.type} is part of the trace, so each new value is traced again",
        remedy,
    )
