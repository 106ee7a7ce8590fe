"""The convolutions of benchmarks/depthwise.py; its measurement is started by hand."""

import numpy as np
import pytest
import tensorflow as tf

from benchmarks.depthwise import TAPS, convolutions
from xtts_pipeline.model.convnext import DepthwiseConvolution
from xtts_pipeline.model.layers import Initializer


@pytest.mark.parametrize("name", ["shifted", "depthwise", "grouped"])
def test_each_convolution_is_the_vocoders(name: str) -> None:
    random = np.random.default_rng(0)
    x_BTD = tf.constant(random.normal(size=(2, 9, 4)), tf.float32)
    layer = DepthwiseConvolution(Initializer(0), 4, "layer")
    assert layer.weight.shape == [TAPS, 4]
    found = convolutions()[name](x_BTD, layer.weight)
    for is_compiled in (True, False):
        np.testing.assert_allclose(found, layer(x_BTD, is_compiled=is_compiled), atol=1e-6)
