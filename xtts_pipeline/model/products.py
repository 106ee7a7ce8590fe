"""Affine maps of rows, in the precision of their input.

On a CPU, XLA converts the matrices of a bfloat16 product to float32 first, unless the result is float32. Then it uses
the processor's bfloat16 instructions (AVX-512 BF16), which are twice as fast.

On a GPU, XLA fuses the sum that is the gradient of a bias with the arithmetic before it, such as the gradient of a
GELU, which it so computes a second time. With a product of matrices in place of the sum it is computed once. That
saved 6% of the kernels' time on an H100: docs/benchmarks/gpu.md.
"""

from collections.abc import Callable

import tensorflow as tf
from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext

from xtts_pipeline.system.machine import has_bfloat16_products


def affine(x_ND: tf.Tensor, weight_DE: tf.Variable | tf.Tensor, bias_E: tf.Variable) -> tf.Tensor:
    """Return x @ weight + bias, [N, E] of the type of x."""
    if x_ND.dtype == tf.bfloat16 and GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()):
        if tf.config.list_physical_devices("GPU") and x_ND.shape.is_fully_defined():
            return _add_bias(tf.matmul(x_ND, tf.cast(weight_DE, x_ND.dtype)), tf.cast(bias_E, x_ND.dtype))
        # Only XLA has the product with a float32 result. A GPU does not need it, and would write twice the bytes.
        if has_bfloat16_products():
            return _affine_with_float32_sums(x_ND, tf.convert_to_tensor(weight_DE), tf.convert_to_tensor(bias_E))
    return tf.matmul(x_ND, tf.cast(weight_DE, x_ND.dtype)) + tf.cast(bias_E, x_ND.dtype)


@tf.custom_gradient
def _add_bias(x_NE: tf.Tensor, bias_E: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, ...]]]:
    def gradient(above_NE: tf.Tensor) -> tuple[tf.Tensor, ...]:
        # XLA would turn a product with one row into the sum again.
        ones_8N = tf.ones([8, above_NE.shape[0]], above_NE.dtype)
        return above_NE, tf.matmul(ones_8N, above_NE)[0]

    return x_NE + bias_E, gradient


@tf.custom_gradient
def _affine_with_float32_sums(
    x_ND: tf.Tensor, weight_DE: tf.Tensor, bias_E: tf.Tensor
) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, ...]]]:
    narrow_DE = tf.cast(weight_DE, x_ND.dtype)

    def gradient(above_NE: tf.Tensor) -> tuple[tf.Tensor, ...]:
        x_gradient_ND = tf.cast(_multiply(above_NE, narrow_DE, is_right_transposed=True), x_ND.dtype)
        if weight_DE.shape[0] > weight_DE.shape[1]:
            weight_gradient_ED, _ = _outer_product(above_NE, x_ND)
            bias_gradient_E = tf.reduce_sum(tf.cast(above_NE, tf.float32), axis=0)
            return x_gradient_ND, tf.transpose(weight_gradient_ED), bias_gradient_E
        return x_gradient_ND, *_outer_product(x_ND, above_NE)

    return tf.cast(_multiply(x_ND, narrow_DE) + bias_E, x_ND.dtype), gradient


def _outer_product(left_ND: tf.Tensor, right_NE: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return left^T @ right, float32 [D, E], and the sum of the right rows, [E]."""
    # The left matrix is transposed in memory, since the processor's instructions take no transposed left matrix. XLA
    # would fold a bare transposition into the product. The row of ones prevents that, and sums the right rows.
    padded_DN = tf.pad(tf.transpose(left_ND), [[0, 1], [0, 0]], constant_values=1)
    product_DE = _multiply(padded_DN, right_NE)
    return product_DE[:-1], product_DE[-1]


def _multiply(left: tf.Tensor, right: tf.Tensor, *, is_right_transposed: bool = False) -> tf.Tensor:
    """Return the product of bfloat16 matrices with float32 sums, float32."""
    product: tf.Tensor = tf.raw_ops.BatchMatMulV3(x=left, y=right, Tout=tf.float32, adj_y=is_right_transposed)
    return product
