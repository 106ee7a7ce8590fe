"""The ConvNeXt block over frames, of the parallel decoder and of the trained vocoder."""

import tensorflow as tf

from xtts_pipeline.model.architecture import CONVNEXT_TAPS
from xtts_pipeline.model.layers import Dense, Initializer, LayerNorm, recomputed, unflatten


class DepthwiseConvolution(tf.Module):
    """A convolution of each channel along time.

    XLA's own is up to 25 times slower on a CPU than shifted products; without XLA TensorFlow's kernel is the fastest.
    """

    def __init__(self, initializer: Initializer, width: int, name: str) -> None:
        super().__init__(name=name)
        self.weight = initializer.normal((CONVNEXT_TAPS, width), CONVNEXT_TAPS**-0.5, "weight")
        self.bias = tf.Variable(tf.zeros([width]), name="bias")

    def __call__(self, x_BTD: tf.Tensor, *, is_compiled: bool) -> tf.Tensor:
        """Return [B, T, D]."""
        if not is_compiled:
            filters = self.weight[None, :, :, None]
            return tf.nn.depthwise_conv2d(x_BTD[:, None], filters, [1, 1, 1, 1], "SAME")[:, 0] + self.bias
        _, frames, width = x_BTD.shape
        padded_BTD = tf.pad(x_BTD, [[0, 0], [CONVNEXT_TAPS // 2, CONVNEXT_TAPS // 2], [0, 0]])
        weight = tf.cast(self.weight, x_BTD.dtype)
        # As rows, so that the gradients sum over one axis, as in `Dense`.
        taps = [
            tf.reshape(padded_BTD[:, tap : tap + frames], [-1, width]) * weight[tap] for tap in range(CONVNEXT_TAPS)
        ]
        return unflatten(tf.add_n(taps) + tf.cast(self.bias, x_BTD.dtype), x_BTD)


class ConvNextBlock(tf.Module):
    """Depthwise convolution, normalisation, two dense layers with a GELU between, and a scaled residual (Liu 2022)."""

    def __init__(self, initializer: Initializer, width: int, inner_width: int, scale: float, name: str) -> None:
        super().__init__(name=name)
        self.depthwise = DepthwiseConvolution(initializer, width, "depthwise")
        self.norm = LayerNorm(width, "norm")
        self.widen = Dense(initializer, width, inner_width, "widen")
        self.narrow = Dense(initializer, inner_width, width, "narrow")
        self.scale = tf.Variable(tf.fill([width], scale), name="scale")

    def __call__(self, x_BTD: tf.Tensor, mask_BT1: tf.Tensor, *, is_compiled: bool = True) -> tf.Tensor:
        """Return [B, T, D]; the mask is 1 for real frames and 0 for others."""
        # Frames that are not there stay zero in every layer, so that a streamed block equals a part of the whole.
        return (x_BTD + self.change(x_BTD, is_compiled=is_compiled)) * mask_BT1

    def change(self, x_BTD: tf.Tensor, *, is_compiled: bool = True) -> tf.Tensor:
        """Return what the block adds to x.

        Without `is_compiled`, for float32 that XLA does not compile, TensorFlow's own kernels are used where they are
        faster.
        """
        normal_BTD = self.norm(self.depthwise(x_BTD, is_compiled=is_compiled))
        normal_ND = tf.reshape(normal_BTD, [-1, x_BTD.shape[-1]])
        if is_compiled:
            # Else XLA keeps the GELU's tangent and output, which are as wide as its input. The time is the same.
            inner_ND = recomputed(self._narrow, self.widen(normal_ND))
        else:
            # In this form, with `bias_add`, TensorFlow fuses bias and GELU with the product.
            inner_ND = self._narrow(tf.nn.bias_add(tf.matmul(normal_ND, self.widen.weight), self.widen.bias))
        return unflatten(inner_ND * tf.cast(self.scale, x_BTD.dtype), x_BTD)

    def _narrow(self, wide_NE: tf.Tensor) -> tf.Tensor:
        return self.narrow(tf.nn.gelu(wide_NE, approximate=True))
