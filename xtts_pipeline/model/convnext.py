"""The ConvNeXt block along time, of the frame decoder, the flow head and the trained vocoder."""

from collections.abc import Callable

import tensorflow as tf

from xtts_pipeline.model.architecture import CONVNEXT_TAPS
from xtts_pipeline.model.layers import Dense, Initializer, LayerNorm, recomputed, shifted, unflatten


class DepthwiseConvolution(tf.Module):
    """A convolution of each channel along time.

    XLA's own is up to 20 times slower on a CPU than shifted products; without XLA TensorFlow's kernel is the fastest.
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
        weight, bias = tf.convert_to_tensor(self.weight), tf.convert_to_tensor(self.bias)
        return tf.cast(convolve_taps(tf.cast(x_BTD, tf.float32), weight, bias), x_BTD.dtype)


@tf.custom_gradient
def convolve_taps(
    x_BTD: tf.Tensor, weight_LD: tf.Tensor, bias_D: tf.Tensor
) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, ...]]]:
    """Return x [B, T, D] convolved along time with the L taps of each channel, as a sum of shifted products; float32.

    The gradient of x is the convolution with the taps in reverse. XLA would pad an array for each tap instead.
    """

    def gradient(above_BTD: tf.Tensor) -> tuple[tf.Tensor, ...]:
        # As rows, so that the sums are over one axis, as in `Dense`.
        above_ND = tf.reshape(above_BTD, [-1, above_BTD.shape[-1]])
        sums_LD = [tf.reduce_sum(shifted_ND * above_ND, axis=0) for shifted_ND in _taps(x_BTD)]
        x_gradient_ND = _sum_of_products(above_BTD, weight_LD[::-1])
        return unflatten(x_gradient_ND, x_BTD), tf.stack(sums_LD), tf.reduce_sum(above_ND, axis=0)

    return unflatten(_sum_of_products(x_BTD, weight_LD) + bias_D, x_BTD), gradient


def _sum_of_products(x_BTD: tf.Tensor, weight_LD: tf.Tensor) -> tf.Tensor:
    """Return [N, D]."""
    return tf.add_n([rows_ND * tap_D for rows_ND, tap_D in zip(_taps(x_BTD), tf.unstack(weight_LD), strict=True)])


def _taps(x_BTD: tf.Tensor) -> list[tf.Tensor]:
    """Return x as seen by each tap, [N, D] each, with zeros outside."""
    return [tf.reshape(tap_BTD, [-1, x_BTD.shape[-1]]) for tap_BTD in shifted(x_BTD, CONVNEXT_TAPS // 2)]


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
        return unflatten(tf.cast(tf.cast(inner_ND, tf.float32) * self.scale, x_BTD.dtype), x_BTD)

    def _narrow(self, wide_NE: tf.Tensor) -> tf.Tensor:
        # In bfloat16 XLA would round after each operation of the GELU.
        active_NE = tf.nn.gelu(tf.cast(wide_NE, tf.float32), approximate=True)
        return self.narrow(tf.cast(active_NE, wide_NE.dtype))
