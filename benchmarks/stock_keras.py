"""Build the same network with Keras's `MultiHeadAttention` and `Dropout`. Run by side_by_side.py.

The rest of the step, XLA included, is the same, so the ratio shows the effect of the hand-written attention and of the
hashed dropout masks.
"""

from typing import Any

import keras
import tensorflow as tf

from xtts_pipeline.model import encoders, layers


class StockAttention(tf.Module):
    """`layers.Attention` on keras.layers.MultiHeadAttention, which projects keys and values itself."""

    def __init__(self, _initializer: Any, width: int, heads: int, name: str) -> None:
        super().__init__(name=name)
        self._attention = keras.layers.MultiHeadAttention(heads, width // heads)
        self._attention.build([1, None, width], [1, None, width], [1, None, width])
        # Keras layers are not tf.Modules: the optimizer finds their variables in this list.
        self.variables_in_order = [variable.value for variable in self._attention.weights]

    def __call__(self, x: tf.Tensor, memory: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Return the same as `layers.Attention`."""
        # [..., F, S] here, [B, 1, F, S] with a head axis there.
        allowed = tf.broadcast_to(mask, [x.shape[0], 1, x.shape[1], memory.shape[1]])[:, 0]
        return self._attention(x, memory, memory, attention_mask=allowed, training=True)


_DROPOUTS: dict[int, keras.layers.Dropout] = {}


def stock_dropout(self: layers.Dropout, x: tf.Tensor, rate: float, salt: int) -> tf.Tensor:
    """Apply a keras.layers.Dropout of its own at each place in the network, as `layers.Dropout.apply`."""
    if rate == 0.0 or not self.is_training:
        return x
    if salt not in _DROPOUTS:
        # The layer's generator is a variable, which must be created outside the traced function.
        with tf.init_scope():
            _DROPOUTS[salt] = keras.layers.Dropout(rate, seed=salt)
    return _DROPOUTS[salt](x, training=True)


def put_in() -> None:
    """Replace this project's layers by the stock layers in this process."""
    layers.Attention = encoders.Attention = StockAttention
    layers.Dropout.apply = stock_dropout
