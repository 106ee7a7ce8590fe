"""Time the vocoder's Fourier transforms beside products with constant matrices, as a graph and compiled by XLA.

    python benchmarks/fourier.py --sizes 512 1024 2048

`fast` is `vocoder.fourier.Stft`, which uses `tf.signal.rfft`. `product` multiplies the same frames by a matrix of
cosines and sines. The gradient has the forward pass. Times are by the clock: the median of --rounds rounds, in turns,
of --calls calls each.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from kernels import measure, parse_arguments, print_table

from xtts_pipeline.system.runtime import NativeLog, prepare_environment


def magnitudes(size: int) -> dict[str, Callable[[Any], Any]]:
    """Return the functions from waves [B, N] to magnitudes [B, frames, 1 + size // 2], by name."""
    import tensorflow as tf

    from xtts_pipeline.audio.mel import periodic_hann
    from xtts_pipeline.vocoder.fourier import TINY_POWER, Stft

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


def main() -> None:
    """Print the table."""
    settings = {"rows": 16, "samples": 8_192, "rounds": 5, "calls": 5}
    arguments = parse_arguments(__doc__, {"sizes": (512, 1024, 2048)}, settings)
    prepare_environment()
    with NativeLog():
        import tensorflow as tf

        shape = (arguments.rows, arguments.samples)
        wave_BN = tf.constant(np.random.default_rng(0).uniform(-0.5, 0.5, shape), tf.float32)
        found = {
            f"{size} samples": measure(
                magnitudes(size), [wave_BN], arguments.rounds, arguments.calls, time.perf_counter
            )
            for size in arguments.sizes
        }
    print_table("ms a call", found)


if __name__ == "__main__":
    main()
