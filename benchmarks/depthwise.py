"""Time the vocoder's depthwise convolution beside TensorFlow's own, as a graph and compiled by XLA.

    python benchmarks/depthwise.py --widths 256 512

`shifted` is the vocoder's: a product for each tap, over rows, added up; `two axes` is the same without rows, whose
gradient of the weight sums over two axes. `depthwise` is `tf.nn.depthwise_conv2d`, `grouped` is
`tf.nn.conv1d` with one group a channel. The gradient is that of input and weight, with the forward pass. Times are CPU
time of the process: the median of --rounds rounds, in turns, of --calls calls each.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from xtts_pipeline.perf.timing import in_turns
from xtts_pipeline.system.runtime import NativeLog, prepare_environment

TAPS = 7


def convolutions() -> dict[str, Callable[[Any, Any], Any]]:
    """Return the convolutions of x [B, T, D] with weight [TAPS, D], by name."""
    import tensorflow as tf

    def slices(x_BTD: Any) -> list[Any]:
        padded_BTD = tf.pad(x_BTD, [[0, 0], [TAPS // 2, TAPS // 2], [0, 0]])
        return [padded_BTD[:, tap : tap + x_BTD.shape[1]] for tap in range(TAPS)]

    def shifted(x_BTD: Any, weight: Any) -> Any:
        rows = [tf.reshape(slice_BTD, [-1, x_BTD.shape[-1]]) for slice_BTD in slices(x_BTD)]
        return tf.reshape(tf.add_n([row_ND * weight[tap] for tap, row_ND in enumerate(rows)]), x_BTD.shape)

    def two_axes(x_BTD: Any, weight: Any) -> Any:
        return tf.add_n([slice_BTD * weight[tap] for tap, slice_BTD in enumerate(slices(x_BTD))])

    def depthwise(x_BTD: Any, weight: Any) -> Any:
        return tf.nn.depthwise_conv2d(x_BTD[:, None], weight[None, :, :, None], [1, 1, 1, 1], "SAME")[:, 0]

    def grouped(x_BTD: Any, weight: Any) -> Any:
        return tf.nn.conv1d(x_BTD, weight[:, None], 1, "SAME")

    return {"shifted": shifted, "two axes": two_axes, "depthwise": depthwise, "grouped": grouped}


def programs(convolve: Callable[[Any, Any], Any], jit_compile: bool) -> dict[str, Callable[[Any, Any], Any]]:
    """Return the forward pass, and the forward pass with the gradients of both arguments."""
    import tensorflow as tf

    def gradient(x_BTD: Any, weight: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch((x_BTD, weight))
            y_BTD = convolve(x_BTD, weight)
        # The output as its own gradient, so that nothing is constant.
        return tape.gradient(y_BTD, (x_BTD, weight), y_BTD)

    return {
        name: tf.function(function, jit_compile=jit_compile, autograph=False)
        for name, function in (("forward", convolve), ("gradient", gradient))
    }


def milliseconds(program: Callable[[], Any], calls: int) -> float:
    """Return the CPU time of a call."""
    started = time.process_time()
    for _ in range(calls):
        result = program()
    # On a GPU calls return early.
    for tensor in result if isinstance(result, tuple) else (result,):
        tensor.numpy()
    return 1e3 * (time.process_time() - started) / calls


def measure(width: int, rows: int, frames: int, rounds: int, calls: int) -> dict[str, float | None]:
    """Return the ms of each program by `convolution, engine, pass`; None if TensorFlow does not have it."""
    import tensorflow as tf

    random = np.random.default_rng(0)
    x_BTD = tf.constant(random.normal(size=(rows, frames, width)), tf.float32)
    weight = tf.constant(random.normal(size=(TAPS, width)), tf.float32)
    found: dict[str, float | None] = {}
    ready: dict[str, Callable[[], float]] = {}
    for name, convolve in convolutions().items():
        for engine, jit_compile in (("graph", False), ("XLA", True)):
            for part, program in programs(convolve, jit_compile).items():
                key, call = f"{name}, {engine}, {part}", partial(program, x_BTD, weight)
                found[key] = None
                try:
                    milliseconds(call, 1)
                except (tf.errors.InvalidArgumentError, tf.errors.UnimplementedError):
                    continue
                ready[key] = partial(milliseconds, call, calls)
    taken = in_turns(ready, rounds, lambda _: None)
    return found | {key: statistics.median(times) for key, times in taken.items()}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--widths", type=int, nargs="+", default=[256, 512])
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--frames", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=20)
    arguments = parser.parse_args()
    prepare_environment()
    sizes = (arguments.rows, arguments.frames, arguments.rounds, arguments.calls)
    with NativeLog():
        found = {width: measure(width, *sizes) for width in arguments.widths}
    print(f"| CPU ms a call | {' | '.join(f'width {width}' for width in found)} |\n|{'---|' * (1 + len(found))}")
    for key in next(iter(found.values())):
        times = [figures[key] for figures in found.values()]
        print(f"| {key} | {' | '.join('not there' if ms is None else f'{ms:.2f}' for ms in times)} |")


if __name__ == "__main__":
    main()
