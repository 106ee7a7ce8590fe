"""Building blocks of the network: dense layers, attention, convolution, dropout.

Plain tf.Modules with explicit shapes; every mask is boolean and True means real. No file access, no cache.

Shape key for the whole project: B batch, S tokens, T frames, F decoder steps, R frames of a decoder step, M mel bins, D
width, H heads, K head width, V voice latents, C frames of a reference, N all positions of all rows.

Matrices are multiplied in the type of their input, set by `training.precision`. Sums over a row, softmax and
normalisation are always float32.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from xtts_pipeline.model.products import affine

MASKED_SCORE = -1e9
# Keeps the normalisation of a constant row finite.
NORM_EPSILON = 1e-5
GOLDEN_RATIO = (np.sqrt(5.0) - 1.0) / 2.0


@dataclass(frozen=True)
class Dropout:
    """The randomness of one forward pass; masks come from a hash, not from a random number generator.

    A mask hashed from (example, position, channel, layer, step) in uint32 arithmetic fuses into its neighbours under
    XLA. Stateful and Philox random numbers do not, and made the step twice as slow on a CPU. The same key gives the
    same noise at the same position, whether speech is decoded whole or in chunks: see `draw_normal`.

    key: uint32 scalar tensor, different at each training step.
    is_training: False switches dropout off.
    first_example: the number of the first row, so that a part of a batch has the masks that it has in the whole batch.
    None gives each row the masks of row 0, so that speech does not depend on the other rows.
    """

    key: tf.Tensor
    is_training: bool
    first_example: tf.Tensor | int | None = 0

    @classmethod
    def for_step(cls, seed: int, step: tf.Tensor, first_example: tf.Tensor | int = 0) -> "Dropout":
        """Return the dropout of one training step."""
        key = mix_bits(tf.cast(step, tf.uint32) + np.uint32(seed * 0x9E3779B1 & 0xFFFFFFFF))
        return cls(key, is_training=True, first_example=first_example)

    @classmethod
    def fixed(cls, seed: int | tf.Tensor) -> "Dropout":
        """Return the randomness of evaluation and inference, a function of the seed, so that results are repeatable."""
        key = seed if isinstance(seed, tf.Tensor) else tf.constant(seed & 0xFFFFFFFF, tf.uint32)
        return cls(key, is_training=False, first_example=None)

    def apply(self, x: tf.Tensor, rate: float, salt: int) -> tf.Tensor:
        """Return x [B, S, D] with elements zeroed at `rate` and the rest scaled up; `salt` is the layer's number."""
        if rate == 0.0 or not self.is_training:
            return x
        batch, positions, width = x.shape
        channel_D = tf.cast(tf.range(width), tf.uint32)[None, None, :]
        row_BS1 = self._hash_positions(salt, batch, positions, 0)[..., None]
        is_kept = mix_bits(row_BS1 + channel_D * np.uint32(0xC2B2AE35)) >= np.uint32(rate * 2**32)
        return tf.where(is_kept, x * tf.cast(1.0 / (1.0 - rate), x.dtype), tf.zeros([], x.dtype))

    def draw(self, salt: int, batch: int) -> tf.Tensor:
        """Return float32 [batch], uniform in [0, 1)."""
        # A float32 holds 24 bits: 32 would sometimes round up to 1.
        bits = tf.bitwise.right_shift(self._hash_positions(salt, batch, 1, 0)[:, 0], np.uint32(8))
        return tf.cast(bits, tf.float32) * 2.0**-24

    def draw_evenly(self, salt: int, batch: int) -> tf.Tensor:
        """Return float32 [batch], each uniform in [0, 1), and together evenly spaced. For training only."""
        start_1 = Dropout(self.key, self.is_training).draw(salt, 1)
        return spread_evenly(tf.cast(tf.range(batch) + self.first_example, tf.float32), start_1)

    def draw_normal(
        self, salt: int, batch: int, positions: int, width: int, first_position: tf.Tensor | int = 0
    ) -> tf.Tensor:
        """Return float32 [batch, positions, width] of mean 0 and deviation 1 (Box and Muller 1958).

        first_position: the number of the first position, which may be negative.
        """
        row_BS1 = self._hash_positions(salt, batch, positions, first_position)[..., None]
        bits_BSD = mix_bits(row_BS1 + tf.cast(tf.range(width), tf.uint32)[None, None, :] * np.uint32(0xC2B2AE35))
        # Two uniform numbers of 16 bits each, in the middles of their intervals: never 0. The largest value is 4.8.
        radius_BSD = tf.sqrt(-2.0 * tf.math.log(_unit_interval(tf.bitwise.right_shift(bits_BSD, np.uint32(16)))))
        angle_BSD = 2.0 * np.pi * _unit_interval(tf.bitwise.bitwise_and(bits_BSD, np.uint32(0xFFFF)))
        return radius_BSD * tf.cos(angle_BSD)

    def _hash_positions(self, salt: int, batch: int, positions: int, first_position: tf.Tensor | int) -> tf.Tensor:
        """Return uint32 [batch, positions]."""
        example_B = tf.zeros([batch], tf.int32) if self.first_example is None else tf.range(batch) + self.first_example
        example_B1 = tf.cast(example_B, tf.uint32)[:, None]
        position_1S = tf.cast(tf.range(positions) + first_position, tf.uint32)[None, :]
        place = self.key ^ np.uint32(salt * 0x85EBCA6B & 0xFFFFFFFF)
        return mix_bits(mix_bits(example_B1 * np.uint32(0x9E3779B1) + place) + position_1S)


def spread_evenly(number: tf.Tensor, start: tf.Tensor | float = 0.0) -> tf.Tensor:
    """Return a place in [0, 1) for each number; those of numbers in a row are evenly spaced, however many there are."""
    return tf.math.floormod(start + number * GOLDEN_RATIO, 1.0)


def _unit_interval(bits: tf.Tensor) -> tf.Tensor:
    """Return 16 bits as float32 between 0 and 1."""
    return (tf.cast(bits, tf.float32) + 0.5) * 2.0**-16


def mix_bits(x: tf.Tensor) -> tf.Tensor:
    """Return a uint32 tensor with every output bit depending on every input bit (lowbias32, C. Wellons 2018)."""
    x = tf.bitwise.bitwise_xor(x, tf.bitwise.right_shift(x, np.uint32(16)))
    x = x * np.uint32(0x7FEB352D)
    x = tf.bitwise.bitwise_xor(x, tf.bitwise.right_shift(x, np.uint32(15)))
    x = x * np.uint32(0x846CA68B)
    return tf.bitwise.bitwise_xor(x, tf.bitwise.right_shift(x, np.uint32(16)))


def length_mask(lengths_B: tf.Tensor, size: int) -> tf.Tensor:
    """Return bool [B, size]: True for the first `length` positions of each row."""
    return tf.range(size)[None, :] < lengths_B[:, None]


def sinusoid_positions(length: int, width: int) -> np.ndarray:
    """Return float32 [length, width] sine and cosine positions (Vaswani et al. 2017, 3.5)."""
    angle = np.arange(length)[:, None] / 10_000 ** (np.arange(0, width, 2)[None, :] / width)
    return np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(length, width).astype(np.float32)


def add_positions(x_BSD: tf.Tensor, positions_1SD: np.ndarray | tf.Tensor, scale: tf.Variable) -> tf.Tensor:
    """Return x + scale * positions, of the type of x.

    The custom gradient of the scale is one product with the positions. XLA's CPU compiler would fuse the default one, a
    sum over the batch, with the backward pass of the layer above, which costs 2% of a step.
    """

    @tf.custom_gradient
    def add(x_BSD: tf.Tensor, scale: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]]:
        def gradient(above_BSD: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            share_B = tf.einsum("BSD,SD->B", tf.cast(above_BSD, tf.float32), positions_1SD[0])
            return above_BSD, tf.reduce_sum(share_B)

        return x_BSD + tf.cast(scale * positions_1SD, x_BSD.dtype), gradient

    return add(x_BSD, tf.convert_to_tensor(scale))


class Initializer:
    """Draw initial weights from one seeded generator, and number what draws from `Dropout`: masks, times and noise."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._salts = 0

    def salt(self) -> int:
        """Return a unique number for a method of `Dropout`."""
        self._salts += 1
        return self._salts

    def glorot(self, shape: tuple[int, ...], name: str) -> tf.Variable:
        """Return a uniform Glorot variable; fans are those of the last two axes times the receptive field."""
        receptive = int(np.prod(shape[:-2]))
        limit = np.sqrt(6.0 / (receptive * (shape[-2] + shape[-1])))
        return tf.Variable(self._random.uniform(-limit, limit, shape).astype(np.float32), name=name)

    def normal(self, shape: tuple[int, ...], deviation: float, name: str) -> tf.Variable:
        """Return a normal variable of mean 0."""
        return tf.Variable((self._random.standard_normal(shape) * deviation).astype(np.float32), name=name)


def unflatten(rows_ND: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
    """Return rows with the axes of `like`, of which one may be unknown, but for the last."""
    sizes = [-1 if size is None else size for size in like.shape[:-1]]
    return tf.reshape(rows_ND, [*sizes, rows_ND.shape[-1]])


class Dense(tf.Module):
    """An affine map of the last axis.

    It flattens all other axes, so that the gradient of the bias sums over one axis: under XLA on a CPU four times as
    fast as over two.
    """

    def __init__(self, initializer: Initializer, inputs: int, outputs: int, name: str) -> None:
        super().__init__(name=name)
        self.weight = initializer.glorot((inputs, outputs), "weight")
        self.bias = tf.Variable(tf.zeros([outputs]), name="bias")

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        rows_ND = tf.reshape(x, [-1, x.shape[-1]])
        return unflatten(affine(rows_ND, self.weight, self.bias), x)


class LayerNorm(tf.Module):
    """Normalisation of the last axis to mean 0 and variance 1, then a learnt scale and offset."""

    def __init__(self, width: int, name: str) -> None:
        super().__init__(name=name)
        self.scale = tf.Variable(tf.ones([width]), name="scale")
        self.offset = tf.Variable(tf.zeros([width]), name="offset")

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        wide_ND = tf.reshape(tf.cast(x, tf.float32), [-1, x.shape[-1]])
        centred_ND = wide_ND - tf.reduce_mean(wide_ND, axis=-1, keepdims=True)
        variance_N1 = tf.reduce_mean(tf.square(centred_ND), axis=-1, keepdims=True)
        normal_ND = centred_ND * tf.math.rsqrt(variance_N1 + NORM_EPSILON) * self.scale + self.offset
        return unflatten(tf.cast(normal_ND, x.dtype), x)


def shifted(x_BTD: tf.Tensor, reach: int, step: int = 1) -> list[tf.Tensor]:
    """Return the tensor shifted in time, each [B, T, D]: what is `reach` earlier first; zero where there is nothing."""
    padded_BTD = tf.pad(x_BTD, [[0, 0], [reach, reach], [0, 0]])
    return [padded_BTD[:, first : first - 2 * reach or None] for first in range(0, 2 * reach + 1, step)]


class Convolution(tf.Module):
    """A convolution along time with an odd number of taps, [B, T, inputs] -> [B, T, outputs].

    It is one product of matrices, with neighbouring frames side by side. While XLA tried cuDNN's convolutions on an
    H100, one asked for 13 GB, six times the memory of the step: docs/benchmarks/gpu.md.
    """

    def __init__(self, initializer: Initializer, inputs: int, outputs: int, taps: int, name: str) -> None:
        super().__init__(name=name)
        self.weight = initializer.glorot((taps, inputs, outputs), "weight")
        self.bias = tf.Variable(tf.zeros([outputs]), name="bias")

    def __call__(self, x_BTD: tf.Tensor) -> tf.Tensor:
        taps, inputs, outputs = self.weight.shape
        near_NK = tf.reshape(tf.concat(shifted(x_BTD, taps // 2), axis=-1), [-1, taps * inputs])
        return unflatten(affine(near_NK, tf.reshape(self.weight, [-1, outputs]), self.bias), x_BTD)


class FeedForward(tf.Module):
    """Two dense layers with a ReLU between."""

    def __init__(self, initializer: Initializer, width: int, inner_width: int, name: str) -> None:
        super().__init__(name=name)
        self.widen = Dense(initializer, width, inner_width, "widen")
        self.narrow = Dense(initializer, inner_width, width, "narrow")

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        return self.narrow(tf.nn.relu(self.widen(x)))


def embed(table: tf.Variable, ids: tf.Tensor) -> tf.Tensor:
    """Return the rows [..., D] of a table [N, D], for ids of any shape.

    The gradient of the table is a product with one-hot ids. The usual one adds rows one by one, which GPUs do in any
    order, so that no two runs would be equal.
    """

    @tf.custom_gradient
    def look_up(table: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        rows, width = table.shape

        def gradient(above: tf.Tensor) -> tf.Tensor:
            chosen_IN = tf.one_hot(tf.reshape(ids, [-1]), rows, dtype=above.dtype)
            return tf.matmul(chosen_IN, tf.reshape(above, [-1, width]), transpose_a=True)

        return tf.gather(table, ids), gradient

    found: tf.Tensor = look_up(tf.convert_to_tensor(table))
    return found


class Attention(tf.Module):
    """Multi-head scaled dot-product attention."""

    def __init__(self, initializer: Initializer, width: int, heads: int, name: str) -> None:
        super().__init__(name=name)
        self.heads, self.head_width = heads, width // heads
        self.query = Dense(initializer, width, width, "query")
        self.key = Dense(initializer, width, width, "key")
        self.value = Dense(initializer, width, width, "value")
        self.output = Dense(initializer, width, width, "output")

    def __call__(self, x: tf.Tensor, memory: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Return [B, F, D] for x [B, F, D] and memory [B, S, D]; the bool mask broadcasts to [B, H, F, S]."""
        keys_BSHK, values_BSHK = self._split(self.key(memory)), self._split(self.value(memory))
        # In bfloat16 a score of 16 or more would be rounded to eighths before the softmax.
        query_BFHK, keys_BSHK = (tf.cast(x, tf.float32) for x in (self._split(self.query(x)), keys_BSHK))
        score_BHFS = tf.einsum("BFHK,BSHK->BHFS", query_BFHK * self.head_width**-0.5, keys_BSHK)
        weight_BHFS = tf.nn.softmax(tf.where(mask, score_BHFS, MASKED_SCORE), axis=-1)
        mixed_BFHK = tf.einsum("BHFS,BSHK->BFHK", tf.cast(weight_BHFS, x.dtype), values_BSHK)
        return self.output(tf.reshape(mixed_BFHK, x.shape))

    def _split(self, x: tf.Tensor) -> tf.Tensor:
        return tf.reshape(x, [x.shape[0], x.shape[1], self.heads, self.head_width])


def recomputed(layer: Callable[..., Any], *inputs: tf.Tensor) -> Any:
    """Return layer(*inputs); the backward pass recomputes its activations instead of keeping them.

    `inputs` are float tensors. Other tensors, such as masks, must be captured by the layer and get no gradient.
    Variables are found.
    """

    @tf.custom_gradient
    def call(*inputs: tf.Tensor) -> tuple[Any, Callable[..., Any]]:
        def gradient(*above: tf.Tensor, variables: Sequence[tf.Variable]) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
            again = _after_gradient(above[0], inputs)
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch([*again, *variables])
                outputs = tf.nest.flatten(layer(*again))
            found = tape.gradient(
                outputs, [*again, *variables], above, unconnected_gradients=tf.UnconnectedGradients.ZERO
            )
            return found[: len(again)], found[len(again) :]

        return layer(*inputs), gradient

    return call(*inputs)


def _after_gradient(gradient: tf.Tensor, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Return the inputs with a dependency on the gradient.

    Without it XLA would find the recomputed activations in the forward pass and keep those in memory.
    """
    one = tf.reshape(gradient, [-1])[0]
    # NaN != NaN, so XLA cannot fold this to zero.
    zero = tf.where(tf.equal(one, one), tf.zeros_like(one), one)
    return [x + tf.cast(zero, x.dtype) for x in inputs]
