"""Time the vocoder's depthwise convolution beside TensorFlow's own, as a graph and compiled by XLA.

    python benchmarks/depthwise.py --widths 256 512

`ours` is the vocoder's: a product for each tap, over rows, added up, with a gradient of its own. `shifted` is the same
with TensorFlow's gradient; `two axes` is that without rows, whose gradient of the weight sums over two axes.
`depthwise` is `tf.nn.depthwise_conv2d`, `grouped` is `tf.nn.conv1d` with one group a channel. The gradient is that of
input and weight, with the forward pass. Times are CPU time of the process: the median of --rounds rounds, in turns, of
--calls calls each.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from kernels import measure, parse_arguments, print_table

from xtts_pipeline.model.architecture import CONVNEXT_TAPS as TAPS
from xtts_pipeline.system.runtime import NativeLog, prepare_environment


def convolutions() -> dict[str, Callable[[Any, Any], Any]]:
    """Return the convolutions of x [B, T, D] with weight [TAPS, D], by name."""
    import tensorflow as tf

    from xtts_pipeline.model.convnext import convolve_taps

    def ours(x_BTD: Any, weight: Any) -> Any:
        return convolve_taps(x_BTD, weight, tf.zeros([x_BTD.shape[-1]]))

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

    return {"ours": ours, "shifted": shifted, "two axes": two_axes, "depthwise": depthwise, "grouped": grouped}


def main() -> None:
    """Print the table."""
    settings = {"rows": 16, "frames": 32, "rounds": 5, "calls": 20}
    arguments = parse_arguments(__doc__, {"widths": (256, 512)}, settings)
    prepare_environment()
    with NativeLog():
        import tensorflow as tf

        random, found = np.random.default_rng(0), {}
        for width in arguments.widths:
            x_BTD = tf.constant(random.normal(size=(arguments.rows, arguments.frames, width)), tf.float32)
            weight = tf.constant(random.normal(size=(TAPS, width)), tf.float32)
            found[f"width {width}"] = measure(
                convolutions(), [x_BTD, weight], arguments.rounds, arguments.calls, time.process_time
            )
    print_table("CPU ms a call", found)


if __name__ == "__main__":
    main()
