"""The ConvNeXt block over frames, of the parallel decoder and of the trained vocoder."""

import tensorflow as tf

from xtts_pipeline.model.architecture import CONVNEXT_TAPS
from xtts_pipeline.model.layers import Dense, Initializer, LayerNorm


class DepthwiseConvolution(tf.Module):
    """A convolution of each channel along time, as shifted products: XLA's own is up to 24 times slower on a CPU."""

    def __init__(self, initializer: Initializer, width: int, name: str) -> None:
        super().__init__(name=name)
        self.weight = initializer.normal((CONVNEXT_TAPS, width), CONVNEXT_TAPS**-0.5, "weight")
        self.bias = tf.Variable(tf.zeros([width]), name="bias")

    def __call__(self, x_BTD: tf.Tensor) -> tf.Tensor:
        """Return [B, T, D]."""
        frames = x_BTD.shape[1]
        padded_BTD = tf.pad(x_BTD, [[0, 0], [CONVNEXT_TAPS // 2, CONVNEXT_TAPS // 2], [0, 0]])
        weight = tf.cast(self.weight, x_BTD.dtype)
        taps = [padded_BTD[:, tap : tap + frames] * weight[tap] for tap in range(CONVNEXT_TAPS)]
        return tf.add_n(taps) + tf.cast(self.bias, x_BTD.dtype)


class ConvNextBlock(tf.Module):
    """Depthwise convolution, normalisation, two dense layers with a GELU between, and a scaled residual (Liu 2022)."""

    def __init__(self, initializer: Initializer, width: int, inner_width: int, scale: float, name: str) -> None:
        super().__init__(name=name)
        self.depthwise = DepthwiseConvolution(initializer, width, "depthwise")
        self.norm = LayerNorm(width, "norm")
        self.widen = Dense(initializer, width, inner_width, "widen")
        self.narrow = Dense(initializer, inner_width, width, "narrow")
        self.scale = tf.Variable(tf.fill([width], scale), name="scale")

    def __call__(self, x_BTD: tf.Tensor, mask_BT1: tf.Tensor) -> tf.Tensor:
        """Return [B, T, D]; the mask is 1 for real frames and 0 for others."""
        # Frames that are not there stay zero in every layer, so that a streamed block equals a part of the whole.
        return (x_BTD + self.change(x_BTD)) * mask_BT1

    def change(self, x_BTD: tf.Tensor) -> tf.Tensor:
        """Return what the block adds to x."""
        inner = self.widen(self.norm(self.depthwise(x_BTD)))
        return self.narrow(tf.nn.gelu(inner, approximate=True)) * tf.cast(self.scale, x_BTD.dtype)
