"""Time functions of tensors, forward and with their gradient, as a graph and compiled by XLA.

Shared by benchmarks/depthwise.py and benchmarks/fourier.py.
"""

import argparse
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from xtts_pipeline.perf.timing import in_turns

Kernel = Callable[..., Any]


def parse_arguments(
    description: str | None, sizes: Mapping[str, Sequence[int]], settings: Mapping[str, int]
) -> argparse.Namespace:
    """Read the command line: lists of sizes, and single numbers, each with its default."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in sizes.items():
        parser.add_argument(f"--{name}", type=int, nargs="+", default=list(default))
    for name, number in settings.items():
        parser.add_argument(f"--{name}", type=int, default=number)
    return parser.parse_args()


def measure(
    kernels: Mapping[str, Kernel], tensors: Sequence[Any], rounds: int, calls: int, clock: Callable[[], float]
) -> dict[str, float | None]:
    """Return the ms of a call by `kernel, engine, pass`: the median of rounds in turns; None if TensorFlow has it not.

    `gradient` is that of all tensors, with the forward pass.
    """
    import tensorflow as tf

    # Each kernel is traced once, but all gradients have one name, which TensorFlow takes for retracing.
    tf.get_logger().setLevel("ERROR")
    found: dict[str, float | None] = {}
    ready: dict[str, Callable[[], float]] = {}
    for name, kernel in kernels.items():
        for engine, jit_compile in (("graph", False), ("XLA", True)):
            for part, function in (("forward", kernel), ("gradient", with_gradient(kernel))):
                key = f"{name}, {engine}, {part}"
                call = partial(tf.function(function, jit_compile=jit_compile, autograph=False), *tensors)
                found[key] = None
                try:
                    milliseconds(call, 1, clock)
                except (tf.errors.InvalidArgumentError, tf.errors.UnimplementedError):
                    continue
                ready[key] = partial(milliseconds, call, calls, clock)
    taken = in_turns(ready, rounds, lambda _: None)
    return found | {key: statistics.median(times) for key, times in taken.items()}


def with_gradient(kernel: Kernel) -> Kernel:
    """Return the function of all gradients. The output is its own gradient, so that nothing is constant."""
    import tensorflow as tf

    def gradients(*tensors: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            made = kernel(*tensors)
        return tape.gradient(made, tensors, made)

    return gradients


def milliseconds(call: Callable[[], Any], calls: int, clock: Callable[[], float]) -> float:
    """Return the time of a call."""
    started = clock()
    for _ in range(calls):
        made = call()
    # On a GPU calls return early.
    for tensor in made if isinstance(made, tuple) else (made,):
        tensor.numpy()
    return 1e3 * (clock() - started) / calls


def print_table(unit: str, columns: Mapping[str, Mapping[str, float | None]]) -> None:
    """Print a row for each kernel, engine and pass, with a column for each size."""
    print(f"| {unit} | {' | '.join(columns)} |\n|{'---|' * (1 + len(columns))}")
    for key in next(iter(columns.values())):
        times = [figures[key] for figures in columns.values()]
        print(f"| {key} | {' | '.join('not there' if ms is None else f'{ms:.2f}' for ms in times)} |")
