"""Compile a function once for each batch shape, and explain every call whose arguments have another shape or type.

Compares descriptions of arguments. Reads no tensor's values.
"""

import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import count, cycle
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.python.framework import ops

from xtts_pipeline.config.schema import TrainingConfig
from xtts_pipeline.data.batching import from_signature
from xtts_pipeline.errors import TrainingError

# For each padded argument: what is padded, and the setting that bounds its length.
_LENGTHS = {"tokens": ("texts", "limits.max_text_length"), "mel": ("mels", "limits.max_mel_frames")}

# How often this process has named a program.
_named: Counter[str] = Counter()

# Opens the context in which a Python function of this name is traced and compiled.
Compiling = Callable[[str], AbstractContextManager[None]]


class Argument(NamedTuple):
    """One argument as tf.function sees it. `shape` and `dtype` are None unless it is a tensor or an array."""

    name: str
    type: str
    shape: tuple[int | None, ...] | None
    dtype: str | None

    def __str__(self) -> str:
        if self.shape is None:
            return self.type
        shown = f"{self.dtype} [{', '.join('None' if size is None else str(size) for size in self.shape)}]"
        return shown if self.type == "tensor" else f"{self.type} {shown}"


Arguments = tuple[Argument, ...]


@dataclass(frozen=True)
class SignatureMismatch:
    """How a call differs from the signature: pairs of (static, dynamic) arguments, the likely cause and its remedy."""

    arguments: tuple[tuple[Argument, Argument], ...]
    kind: str
    cause: str
    remedy: str

    @property
    def finding(self) -> str:
        """The arguments that differ, and the likely cause."""
        pairs = ", ".join(f"{static.name} (static {static}, dynamic {dynamic})" for static, dynamic in self.arguments)
        return f"{pairs}; likely cause: {self.cause}"

    def __str__(self) -> str:
        return f"{self.finding}; remedy: {self.remedy}"

    def to_json(self) -> dict[str, Any]:
        """Return the mismatch as `--json` prints it."""
        arguments = [
            {"name": static.name, "static": str(static), "dynamic": str(dynamic)} for static, dynamic in self.arguments
        ]
        return {"kind": self.kind, "arguments": arguments, "cause": self.cause, "remedy": self.remedy}


class RetraceError(TrainingError):
    """A strict function was called with arguments that fit none of its signatures. The call was not executed."""


class CompiledByShape:
    """A function of a batch's tensors, compiled once for each signature; all compilations share its variables.

    functions: the tf.functions, one for each signature. With `strict_shapes` off there is a single one without a
    signature, which retraces for every new shape. With `debug_eager` the list is empty and the Python function runs.
    mismatches: the calls that fitted no signature.
    is_new_shape: whether the last call was the first of its shape.
    compiling: opens a context around tracing and compilation, by the name of the Python function.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        signatures: Sequence[Any],
        config: TrainingConfig,
        extra_specs: Callable[[Any], Sequence[tf.TensorSpec]] = lambda _: (),
    ) -> None:
        """Compile `function` of a batch and of the arguments that `extra_specs(signature)` describes."""
        fields = sum(spec is not None for spec in signatures[0])

        def on_tensors(*tensors: tf.Tensor) -> Any:
            return function(from_signature(tensors[:fields], signatures[0]), *tensors[fields:])

        # XLA's log and the names of programs have it.
        on_tensors.__name__ = self.python_name = function.__name__

        def compile_for(signature: Any) -> Any:
            specs = None
            if signature is not None:
                specs = [*(spec for spec in signature if spec is not None), *extra_specs(signature)]
            return tf.function(on_tensors, input_signature=specs, jit_compile=config.jit_compile, autograph=False)

        if not config.jit_compile:  # before anything is traced
            keep_order_of_sums()
        self._signatures = [describe_arguments(signature) for signature in signatures]
        self._is_strict = config.strict_shapes
        compiled_for = [] if config.debug_eager else signatures if config.strict_shapes else [None]
        self.functions = [compile_for(signature) for signature in compiled_for]
        callables = self.functions or [on_tensors]
        # Without a signature the single function takes every shape.
        self._by_shape = dict(zip(self._signatures, cycle(callables), strict=False))
        self._fallback = callables[0]
        self._seen: set[Arguments] = set()
        self.mismatches: list[SignatureMismatch] = []
        self.is_new_shape = False
        self.compiling: Compiling = lambda _: nullcontext()

    @property
    def shapes_seen(self) -> int:
        """How many of the signatures have been called."""
        return len(self._seen) - len(self.mismatches)

    def __call__(self, batch: Any) -> Any:
        """Call the function of the batch's shape. Raise RetraceError before tracing if strict and none fits."""
        function = self.function_of(batch)
        with self.showing_compilation(batch):
            return function(*(tensor for tensor in batch if tensor is not None))

    def showing_compilation(self, batch: Any) -> AbstractContextManager[None]:
        """Return the context for the call of what `function_of` has just returned for the batch."""
        return self._compiling(batch) if self.is_new_shape and self.functions else nullcontext()

    def function_of(self, batch: Any) -> Any:
        """Return the function of the batch's shape, or raise RetraceError as a call does."""
        arguments = describe_arguments(batch)
        self.is_new_shape = arguments not in self._seen
        if self.is_new_shape:
            self._add_shape(arguments)
        return self._by_shape[arguments]

    def trace(self, batch: Any) -> None:
        """Trace the function of the batch's shape without running it; nothing in eager mode or if no signature fits."""
        function = self._by_shape.get(describe_arguments(batch))
        if self.functions and function is not None:
            with self._compiling(batch):
                function.get_concrete_function(*(tensor for tensor in batch if tensor is not None))

    @contextmanager
    def _compiling(self, batch: Any) -> Iterator[None]:
        """Open the context in which the function is traced and compiled for the batch's shape."""
        shape = " ".join(map(str, describe_arguments(batch)))
        with self.compiling(self.python_name), repeatable_names(f"{self.python_name} {shape}"):
            yield

    def _add_shape(self, arguments: Arguments) -> None:
        if arguments not in self._by_shape:
            mismatch = find_mismatch(arguments, self._signatures)
            if mismatch is not None:
                if self._is_strict:
                    raise RetraceError(
                        f"{self.python_name.lstrip('_')} was called with what it was not compiled for: {mismatch} "
                        "(training.strict_shapes=false goes on)"
                    )
                self.mismatches.append(mismatch)
            self._by_shape[arguments] = self._fallback
        self._seen.add(arguments)


@contextmanager
def repeatable_names(program: str) -> Iterator[None]:
    """Within, let TensorFlow number what it traces from a start that depends on the name of the program.

    The names of traced functions have these numbers, and the compile cache finds a program by its names. TensorFlow
    itself numbers all that a process makes. So a resumed run, which loads weights first, would compile again. A name
    that a process gives again has another start. For one thread.
    """
    # TensorFlow makes it in the first trace, which would have one number more.
    ops.get_default_graph()
    usual, ops.uid = ops.uid, _numbers_of(program).__next__
    try:
        yield
    finally:
        ops.uid = usual


def _numbers_of(program: str) -> Iterator[int]:
    _named[program] += 1
    # TensorFlow's own numbers are small. A trace needs some thousands.
    return count((1 << 62) + (zlib.crc32(f"{program} {_named[program]}".encode()) << 28))


def keep_order_of_sums() -> None:
    """Let this process' plain graphs add in the order of the program, so that the same step gives the same bits.

    TensorFlow would join a chain of additions into one AddN. AddN begins with the first input that no other operation
    still needs, so the order of its sum depends on which thread is ahead. Under XLA, AddN keeps the order.
    """
    tf.config.optimizer.set_experimental_options({"arithmetic_optimization": False})


def describe_arguments(batch: Any) -> Arguments:
    """Describe the arguments of a call or a signature without the fields that are None: the key of a trace."""
    return tuple(_describe(name, value) for name, value in zip(batch._fields, batch, strict=True) if value is not None)


def find_mismatch(dynamic: Arguments, signatures: Sequence[Arguments]) -> SignatureMismatch | None:
    """Return how a call differs from the nearest signature, or None if it fits one."""
    names = list(dict.fromkeys(argument.name for arguments in (*signatures, dynamic) for argument in arguments))

    def of_every_field(arguments: Arguments) -> list[Argument]:
        by_name = {argument.name: argument for argument in arguments}
        return [by_name.get(name, Argument(name, "nothing", None, None)) for name in names]

    def differing(static: Arguments) -> tuple[tuple[Argument, Argument], ...]:
        pairs = zip(of_every_field(static), of_every_field(dynamic), strict=True)
        return tuple((wanted, given) for wanted, given in pairs if wanted != given)

    candidates = [(differing(static), static) for static in signatures]
    arguments, static = min(candidates, key=lambda candidate: (len(candidate[0]), _distance(candidate[0])))
    return SignatureMismatch(arguments, *_explain(arguments, static, dynamic)) if arguments else None


def _describe(name: str, value: Any) -> Argument:
    if isinstance(value, tf.Tensor | tf.TensorSpec):
        return Argument(name, "tensor", tuple(value.shape.as_list()), value.dtype.name)
    if hasattr(value, "shape"):
        return Argument(name, "NumPy", tuple(value.shape), str(value.dtype))
    return Argument(name, f"Python {type(value).__name__}", None, None)


def _distance(arguments: Sequence[tuple[Argument, Argument]]) -> int:
    """Return the summed difference of all axis lengths, so that the nearest bucket is named."""
    pairs = [(static.shape or (), dynamic.shape or ()) for static, dynamic in arguments]
    return sum(
        abs((one or 0) - (other or 0)) for static, dynamic in pairs for one, other in zip(static, dynamic, strict=False)
    )


def _explain(
    arguments: Sequence[tuple[Argument, Argument]], all_static: Sequence[Argument], all_dynamic: Sequence[Argument]
) -> tuple[str, str, str]:
    """Return kind, likely cause and remedy by the first rule that fits, the most obvious rule first."""
    for static, dynamic in arguments:
        if static.type != dynamic.type:
            return _explain_type(static, dynamic)
    for static, dynamic in arguments:
        if static.dtype != dynamic.dtype:
            made_by_python = "Python and NumPy make int64 ids and lengths"
            cause = made_by_python if dynamic.dtype == "int64" else "a cast in the input pipeline"
            return "dtype", cause, f"cast {static.name} to {static.dtype} where the batch is made, as schema.py has it"
    rows, found = (all_static[0].shape or (None,))[0], {argument.shape[0] for argument in all_dynamic if argument.shape}
    if len(found) == 1 and found != {rows}:
        cause = f"a batch of {found.pop()} rows instead of {rows}, as the last of an epoch may be"
        return "incomplete_batch", cause, f"batch with drop_remainder=True, so that each has {rows} rows"
    for static, _ in arguments:
        if static.name in _LENGTHS:
            what, limit = _LENGTHS[static.name]
            remedy = f"pad all {what} to {limit}, or to their bucket's length"
            return "shape", f"{what} are padded to the longest of their batch", remedy
    name = arguments[0][0].name
    return "shape", f"{name} is built with another shape", f"make {name} as the manifest's fields say"


def _explain_type(static: Argument, dynamic: Argument) -> tuple[str, str, str]:
    if static.type == "nothing":
        cause = f"the batch holds {static.name}, which this cache has but one of"
        return "type", cause, f"make the batch with to_batch, which drops {static.name}"
    if dynamic.type == "nothing":
        cause = f"{static.name} was left out of the batch"
        return "type", cause, f"make the batch with to_batch, which gives it {static.name}"
    if dynamic.type == "NumPy":
        cause = "a NumPy array is copied to the device at each call"
        return "type", cause, f"pass {static.name} as a tensor of the input pipeline"
    cause = f"the value of a {dynamic.type} is part of the trace, so each new value is traced again"
    return "python_argument", cause, f"pass {static.name} as a tensor: tf.constant(value, tf.{static.dtype})"
