"""AdamW inside the compiled step.

Hand-written so that XLA fuses the whole update and the state is plain named variables that a checkpoint can hold without pickle.
"""

from collections.abc import Sequence

import tensorflow as tf

BETA_1, BETA_2, EPSILON = 0.9, 0.98, 1e-9


class AdamW(tf.Module):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019); vectors and scalars are not decayed."""

    def __init__(self, variables: Sequence[tf.Variable], weight_decay: float) -> None:
        super().__init__(name="adamw")
        self._trained = tuple(variables)
        self.weight_decay = weight_decay
        self.first_moment = [tf.Variable(tf.zeros_like(variable), trainable=False) for variable in variables]
        self.second_moment = [tf.Variable(tf.zeros_like(variable), trainable=False) for variable in variables]

    def apply(self, gradients: Sequence[tf.Tensor], rate: tf.Tensor, step: tf.Tensor) -> None:
        """Update the variables; `step` counts from 0 and sets the bias correction."""
        count = tf.cast(step + 1, tf.float32)
        correction_1 = 1.0 - tf.pow(BETA_1, count)
        correction_2 = 1.0 - tf.pow(BETA_2, count)
        for variable, gradient, first, second in zip(self._trained, gradients, self.first_moment, self.second_moment, strict=True):
            first.assign(BETA_1 * first + (1.0 - BETA_1) * gradient)
            second.assign(BETA_2 * second + (1.0 - BETA_2) * tf.square(gradient))
            update = (first / correction_1) / (tf.sqrt(second / correction_2) + EPSILON)
            decay = self.weight_decay if variable.shape.rank >= 2 else 0.0
            variable.assign_sub(rate * (update + decay * variable))


def clip_by_global_norm(gradients: Sequence[tf.Tensor], limit: float) -> tuple[list[tf.Tensor], tf.Tensor]:
    """Return the gradients scaled to a joint norm of at most `limit`, and the norm before."""
    norm = tf.sqrt(tf.add_n([tf.reduce_sum(tf.square(gradient)) for gradient in gradients]))
    scale = limit / tf.maximum(norm, limit)
    return [gradient * scale for gradient in gradients], norm
