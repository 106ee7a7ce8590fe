"""Measure the device's peak rate of matrix products and count the arithmetic of a step."""

import math
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

# Large enough that memory bandwidth is no limit: a product of size n does n / 6 operations a byte.
MATRIX_SIZE_CPU, MATRIX_SIZE_GPU = 4_096, 8_192
_GEMM_TYPES = (
    "MatMul",
    "BatchMatMulV2",
    "BatchMatMulV3",
    "Einsum",
    "Conv2D",
    "Conv2DBackpropInput",
    "Conv2DBackpropFilter",
)
_LOOP_TYPES = ("While", "StatelessWhile")


def device_name() -> str:
    """Return the GPU's name, or `CPU`."""
    gpus = tf.config.list_physical_devices("GPU")
    return str(tf.config.experimental.get_device_details(gpus[0]).get("device_name", gpus[0].name)) if gpus else "CPU"


class MatrixPeak:
    """A product of two square matrices, timed beside the step: the device's best rate under the present load.

    It is made by each library at hand, since none is the fastest everywhere: XLA, TensorFlow's own kernel and, for
    float32 on a CPU, NumPy's BLAS. `rates` has the operations per second of each, one for each call of `measure`.
    """

    def __init__(self, dtype: tf.DType, size: int | None = None) -> None:
        has_gpu = bool(tf.config.list_physical_devices("GPU"))
        self.size = size or (MATRIX_SIZE_GPU if has_gpu else MATRIX_SIZE_CPU)
        # One product is too short to time on a GPU.
        self._repeats = 10 if has_gpu else 1
        random = np.random.default_rng(0)
        factors = [random.standard_normal((self.size, self.size), np.float32) for _ in range(2)]
        tensors = [tf.cast(factor, dtype) for factor in factors]
        compiled = tf.function(tf.matmul, jit_compile=True, autograph=False)
        self._products: dict[str, Callable[[], Any]] = {
            "XLA": lambda: compiled(*tensors),
            "TensorFlow": lambda: tf.matmul(*tensors),
        }
        if dtype == tf.float32 and not has_gpu:
            self._products["NumPy"] = lambda: np.matmul(*factors)
        for multiply in self._products.values():
            multiply()
        self.rates: dict[str, list[float]] = {name: [] for name in self._products}

    def measure(self) -> float:
        """Return the operations per second of the fastest library."""
        for name, multiply in self._products.items():
            started = time.perf_counter()
            for _ in range(self._repeats):
                product = multiply()
            # Reading one element waits for the product without timing its copy.
            float(product[0, 0])
            self.rates[name].append(self._repeats * 2.0 * self.size**3 / (time.perf_counter() - started))
        return max(rates[-1] for rates in self.rates.values())

    @property
    def fastest(self) -> str:
        """The library with the largest median rate."""
        return max(self.rates, key=lambda name: statistics.median(self.rates[name]))


def matrix_operations(graph: Any) -> int | None:
    """Return the operations of a traced function's matrix products and convolutions: two for each multiply and add.

    A train step's graph has forward and backward pass. None if a loop has a product, as in gradient accumulation: the
    graph does not tell its iterations.
    """
    operations = graph.get_operations()
    bodies = [operation.get_attr("body").name for operation in operations if operation.type in _LOOP_TYPES]
    functions = (
        {function.signature.name: function for function in graph.as_graph_def().library.function} if bodies else {}
    )
    if any(_holds_product(functions, body) for body in bodies):
        return None
    return sum(_operations_of(operation) for operation in operations if operation.type in _GEMM_TYPES)


def _holds_product(functions: Mapping[str, Any], name: str) -> bool:
    """Return whether a function of the graph's library, or a function that it calls, multiplies matrices."""
    nodes = functions[name].node_def
    called = [value.func.name for node in nodes for value in node.attr.values() if value.func.name in functions]
    return any(node.op in _GEMM_TYPES for node in nodes) or any(_holds_product(functions, each) for each in called)


def _operations_of(operation: Any) -> int:
    first = operation.inputs[0].shape.as_list()
    match operation.type:
        case "MatMul":
            return 2 * _size(operation.outputs[0].shape) * int(first[0 if operation.get_attr("transpose_a") else 1])
        case "BatchMatMulV2" | "BatchMatMulV3":
            return 2 * _size(operation.outputs[0].shape) * int(first[-2 if operation.get_attr("adj_x") else -1])
        case "Einsum":
            labels = operation.get_attr("equation").decode().partition("->")[0].split(",")
            shapes = [tensor.shape for tensor in operation.inputs]
            sizes = {
                label: size
                for axes, shape in zip(labels, shapes, strict=True)
                for label, size in zip(axes, shape, strict=True)
            }
            return 2 * _size(sizes.values()) if len(labels) > 1 else 0
        case "Conv2D":
            return 2 * _size(operation.outputs[0].shape) * _size(operation.inputs[1].shape[:3])
        case "Conv2DBackpropInput":
            return 2 * _size(operation.inputs[2].shape) * _size(operation.inputs[1].shape[:3])
        case _:
            # The input here is the sizes of the filter; the gradient takes them from the filter's tensor.
            given = operation.inputs[1]
            return 2 * _size(operation.inputs[2].shape) * _size(given.op.inputs[given.value_index].shape[:3])


def _size(shape: Iterable[int]) -> int:
    return math.prod(shape)
