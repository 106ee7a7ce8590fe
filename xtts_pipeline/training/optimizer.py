"""AdamW inside the compiled step.

Hand-written so that XLA fuses the whole update and the state is plain named variables that a checkpoint can hold without pickle.
"""

from collections.abc import Mapping, Sequence

import tensorflow as tf

BETA_1, BETA_2, EPSILON = 0.9, 0.98, 1e-9


class AdamW(tf.Module):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019); vectors and scalars are not decayed."""

    def __init__(self, trained: Mapping[str, tf.Variable], weight_decay: float) -> None:
        super().__init__(name="adamw")
        self._trained = dict(trained)
        self.weight_decay = weight_decay
        # By name: a layer that is added or moved then shows as a missing name, not as another layer's moments.
        self.first_moment = {name: tf.Variable(tf.zeros_like(variable), trainable=False) for name, variable in trained.items()}
        self.second_moment = {name: tf.Variable(tf.zeros_like(variable), trainable=False) for name, variable in trained.items()}

    @property
    def trained(self) -> dict[str, tf.Variable]:
        """The variables that `apply` updates, in the order in which it takes their gradients."""
        return self._trained

    def apply(self, gradients: Sequence[tf.Tensor], rate: tf.Tensor, step: tf.Tensor) -> None:
        """Update the variables; `step` counts from 0 and sets the bias correction."""
        count = tf.cast(step + 1, tf.float32)
        correction_1 = 1.0 - tf.pow(BETA_1, count)
        correction_2 = 1.0 - tf.pow(BETA_2, count)
        for (name, variable), gradient in zip(self._trained.items(), gradients, strict=True):
            first, second = self.first_moment[name], self.second_moment[name]
            first.assign(BETA_1 * first + (1.0 - BETA_1) * gradient)
            second.assign(BETA_2 * second + (1.0 - BETA_2) * tf.square(gradient))
            update = (first / correction_1) / (tf.sqrt(second / correction_2) + EPSILON)
            decay = self.weight_decay if variable.shape.rank >= 2 else 0.0
            variable.assign_sub(rate * (update + decay * variable))


def clip_by_global_norm(gradients: Sequence[tf.Tensor | tf.IndexedSlices], limit: float) -> tuple[list[tf.Tensor], tf.Tensor]:
    """Return the gradients, dense, scaled to a joint norm of at most `limit`, and the norm before."""
    dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
    norm = tf.sqrt(tf.add_n([tf.reduce_sum(tf.square(gradient)) for gradient in dense]))
    scale = limit / tf.maximum(norm, limit)
    return [gradient * scale for gradient in dense], norm
