"""Time the vocoder's Fourier transforms beside products with constant matrices, as a graph and compiled by XLA.

    python benchmarks/fourier.py --sizes 512 1024 2048

`fast` is `vocoder.fourier.Stft`, which uses `tf.signal.rfft`. `product` multiplies the same frames by a matrix of
cosines and sines. The gradient is that of the sum of all magnitudes, with the forward pass. Times are by the clock: the
median of --rounds rounds, in turns, of --calls calls each.
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


def magnitudes(size: int) -> dict[str, Callable[[Any], Any]]:
    """Return the functions from waves [B, N] to magnitudes [B, frames, 1 + size // 2], by name."""
    import tensorflow as tf

    from xtts_pipeline.vocoder.fourier import TINY_POWER, Stft, periodic_hann

    window, hop, bins = periodic_hann(size), size // 4, 1 + size // 2
    angle = 2 * np.pi * np.outer(np.arange(size), np.arange(bins)) / size
    basis = (np.concatenate([np.cos(angle), -np.sin(angle)], axis=1) * window[:, None]).astype(np.float32)

    def product(wave_BN: Any) -> Any:
        hops_BHN = tf.reshape(wave_BN, [wave_BN.shape[0], -1, hop])
        frames = hops_BHN.shape[1] - 3
        frames_BTN = tf.concat([hops_BHN[:, first : first + frames] for first in range(4)], axis=-1)
        real, imaginary = tf.split(tf.matmul(frames_BTN, basis), 2, axis=-1)
        return tf.sqrt(tf.square(real) + tf.square(imaginary) + TINY_POWER)

    return {"fast": Stft(window, hop).magnitude, "product": product}


def programs(magnitude: Callable[[Any], Any], jit_compile: bool) -> dict[str, Callable[[Any], Any]]:
    """Return the forward pass, and the forward pass with the gradient of the wave."""
    import tensorflow as tf

    def gradient(wave_BN: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(wave_BN)
            total = tf.reduce_sum(magnitude(wave_BN))
        return tape.gradient(total, wave_BN)

    return {
        name: tf.function(function, jit_compile=jit_compile, autograph=False)
        for name, function in (("forward", magnitude), ("gradient", gradient))
    }


def milliseconds(program: Callable[[], Any], calls: int) -> float:
    """Return the time of a call."""
    started = time.perf_counter()
    for _ in range(calls):
        result = program()
    # On a GPU calls return early.
    result.numpy()
    return 1e3 * (time.perf_counter() - started) / calls


def measure(size: int, rows: int, samples: int, rounds: int, calls: int) -> dict[str, float]:
    """Return the ms of each program by `transform, engine, pass`."""
    import tensorflow as tf

    wave_BN = tf.constant(np.random.default_rng(0).uniform(-0.5, 0.5, (rows, samples)), tf.float32)
    ready: dict[str, Callable[[], float]] = {}
    for name, magnitude in magnitudes(size).items():
        for engine, jit_compile in (("graph", False), ("XLA", True)):
            for part, program in programs(magnitude, jit_compile).items():
                call = partial(program, wave_BN)
                milliseconds(call, 1)
                ready[f"{name}, {engine}, {part}"] = partial(milliseconds, call, calls)
    return {key: statistics.median(times) for key, times in in_turns(ready, rounds, lambda _: None).items()}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[512, 1024, 2048])
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--samples", type=int, default=8_192)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=5)
    arguments = parser.parse_args()
    prepare_environment()
    sizes = (arguments.rows, arguments.samples, arguments.rounds, arguments.calls)
    with NativeLog():
        found = {size: measure(size, *sizes) for size in arguments.sizes}
    print(f"| ms a call | {' | '.join(f'{size} samples' for size in found)} |\n|{'---|' * (1 + len(found))}")
    for key in next(iter(found.values())):
        print(f"| {key} | {' | '.join(f'{figures[key]:.2f}' for figures in found.values())} |")


if __name__ == "__main__":
    main()
