"""The depthwise convolution as shifted products, against TensorFlow's own."""

import numpy as np
import pytest
import tensorflow as tf

from xtts_pipeline.model.convnext import ConvNextBlock, DepthwiseConvolution
from xtts_pipeline.model.layers import Initializer


@pytest.mark.parametrize("frames", [1, 3, 20])
def test_shifted_products_have_the_values_and_gradients_of_tensorflows_kernel(frames: int) -> None:
    convolution = DepthwiseConvolution(Initializer(0), 6, "depthwise")
    convolution.bias.assign(tf.range(6, dtype=tf.float32))
    x, above = (tf.random.stateless_normal([2, frames, 6], [1, seed]) for seed in (2, 3))
    results = []
    for is_compiled in (True, False):
        with tf.GradientTape() as tape:
            tape.watch(x)
            convolved = convolution(x, is_compiled=is_compiled)
        results.append([convolved, *tape.gradient(convolved, [x, convolution.weight, convolution.bias], above)])
    for shifted, kernel in zip(*results, strict=True):
        np.testing.assert_allclose(shifted, kernel, rtol=1e-5, atol=1e-5)


def test_a_block_in_bfloat16_is_near_float32() -> None:
    block, mask = ConvNextBlock(Initializer(0), 16, 32, 0.5, "block"), tf.ones([2, 12, 1])
    x = tf.random.stateless_normal([2, 12, 16], [1, 2])
    low = block(tf.cast(x, tf.bfloat16), tf.cast(mask, tf.bfloat16))
    assert low.dtype == tf.bfloat16
    np.testing.assert_allclose(tf.cast(low, tf.float32), block(x, mask), atol=0.05)
