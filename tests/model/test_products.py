"""Affine maps in bfloat16: the values, the gradients, and the products that XLA makes of them on a CPU."""

import re
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from xtts_pipeline.model import products
from xtts_pipeline.model.products import affine
from xtts_pipeline.system.machine import has_bfloat16_products

# Rows, inputs and outputs: wider, narrower, and sizes that fill no vector.
SHAPES = [(96, 32, 64), (96, 64, 32), (7, 5, 3), (1, 1, 1)]


needs_bfloat16 = pytest.mark.skipif(not has_bfloat16_products(), reason="the processor multiplies no bfloat16")


def numbers(*shape: int, seed: int) -> tf.Tensor:
    return tf.random.stateless_normal(shape, [1, seed])


def gradients_of(
    x: tf.Tensor, weight: tf.Variable, bias: tf.Variable, above: tf.Tensor
) -> Callable[[], tuple[tf.Tensor, list[tf.Tensor]]]:
    def run() -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape() as tape:
            tape.watch(x)
            mapped = affine(x, weight, bias)
        return mapped, tape.gradient(mapped, [x, weight, bias], above)

    return run


@needs_bfloat16
@pytest.mark.parametrize(("rows", "inputs", "outputs"), SHAPES)
def test_the_map_and_its_gradients_have_float32_sums(rows: int, inputs: int, outputs: int) -> None:
    x = tf.cast(numbers(rows, inputs, seed=1), tf.bfloat16)
    weight, bias = tf.Variable(numbers(inputs, outputs, seed=2)), tf.Variable(numbers(outputs, seed=3))
    above = tf.cast(numbers(rows, outputs, seed=4), tf.bfloat16)
    run = tf.function(gradients_of(x, weight, bias, above), jit_compile=True, autograph=False)
    mapped, (x_gradient, weight_gradient, bias_gradient) = run()

    wide_x, wide_above = (tf.cast(each, tf.float32).numpy() for each in (x, above))
    rounded = tf.cast(tf.cast(weight, tf.bfloat16), tf.float32).numpy()
    assert {mapped.dtype, x_gradient.dtype} == {tf.bfloat16}
    assert {weight_gradient.dtype, bias_gradient.dtype} == {tf.float32}
    # Half of the last bit of bfloat16.
    np.testing.assert_allclose(tf.cast(mapped, tf.float32), wide_x @ rounded + bias, rtol=2**-8, atol=1e-4)
    np.testing.assert_allclose(tf.cast(x_gradient, tf.float32), wide_above @ rounded.T, rtol=2**-8, atol=1e-4)
    np.testing.assert_allclose(weight_gradient, wide_x.T @ wide_above, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(bias_gradient, wide_above.sum(axis=0), rtol=1e-5, atol=1e-4)


@needs_bfloat16
@pytest.mark.parametrize(("inputs", "outputs"), [(32, 128), (128, 32), (64, 64)])
def test_xla_converts_no_matrix_of_a_product_to_float32(inputs: int, outputs: int) -> None:
    x, above = (tf.cast(numbers(256, width, seed=1), tf.bfloat16) for width in (inputs, outputs))
    weight, bias = tf.Variable(numbers(inputs, outputs, seed=2)), tf.Variable(tf.zeros([outputs]))

    def run(x: tf.Tensor, above: tf.Tensor) -> tuple[tf.Tensor, list[tf.Tensor]]:
        return gradients_of(x, weight, bias, above)()

    compiled = tf.function(run, jit_compile=True, autograph=False)
    program = compiled.experimental_get_compiler_ir(x, above)(stage="optimized_hlo")
    types = dict(re.findall(r"%([\w.-]+) = (\w+)\[", program))
    operands = re.findall(r" dot\(%([\w.-]+), %([\w.-]+)\)", program)
    assert len(operands) == 3
    assert {types[name] for pair in operands for name in pair} == {"bf16"}


@pytest.mark.parametrize("where", ["a GPU", "another processor", "a plain graph"])
def test_elsewhere_the_product_has_the_type_of_its_input(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if where == "a GPU":
        monkeypatch.setattr(tf.config, "list_physical_devices", lambda _: ["GPU:0"])
    monkeypatch.setattr(products, "has_bfloat16_products", lambda: where != "another processor")
    monkeypatch.setattr(products, "_affine_with_float32_sums", None)
    x, weight, bias = (
        tf.cast(numbers(4, 3, seed=1), tf.bfloat16),
        tf.Variable(numbers(3, 2, seed=2)),
        tf.Variable([0.0, 1.0]),
    )
    mapped = tf.function(lambda: affine(x, weight, bias), jit_compile=where != "a plain graph", autograph=False)()
    assert mapped.dtype == tf.bfloat16


def test_on_a_gpu_the_gradient_of_a_bias_is_a_product(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda _: ["GPU:0"])
    x, above = (tf.cast(numbers(96, width, seed=width), tf.bfloat16) for width in (32, 64))
    weight, bias = tf.Variable(numbers(32, 64, seed=2)), tf.Variable(numbers(64, seed=3))
    run = tf.function(gradients_of(x, weight, bias, above), jit_compile=True, autograph=False)
    program = run.experimental_get_compiler_ir()(stage="hlo")
    assert " reduce(" not in program
    assert "bf16[8,96]" in program  # XLA would turn a product with one row into the sum again
    assert len(re.findall(r" dot\(", program)) == 4  # the map, and the gradients of its three inputs
    _, (_, _, bias_gradient) = run()
    expected = tf.cast(above, tf.float32).numpy().sum(axis=0)
    np.testing.assert_allclose(bias_gradient, expected, rtol=2**-7, atol=2**-6)
