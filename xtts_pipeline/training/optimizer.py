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

    def apply(self, gradients: Sequence[tf.Tensor], rate: tf.Tensor, step: tf.Tensor, is_applied: tf.Tensor) -> None:
        """Update the variables; `step` counts from 0 and sets the bias correction; nothing changes where `is_applied` is False."""
        count = tf.cast(step + 1, tf.float32)
        correction_1 = 1.0 - tf.pow(BETA_1, count)
        correction_2 = 1.0 - tf.pow(BETA_2, count)
        # Scalars are tensors made once, and what is left out is left out by them: a step has hundreds of variables, and each operation
        # on each of them is traced.
        rate, decayed = tf.where(is_applied, rate, 0.0), tf.constant(self.weight_decay)
        kept_1, new_1, kept_2, new_2 = (
            tf.where(is_applied, share, otherwise)
            for share, otherwise in ((BETA_1, 1.0), (1.0 - BETA_1, 0.0), (BETA_2, 1.0), (1.0 - BETA_2, 0.0))
        )
        epsilon = tf.constant(EPSILON)
        for (name, variable), gradient in zip(self._trained.items(), gradients, strict=True):
            # Not a number times 0 is not a number.
            sound = tf.where(is_applied, gradient, 0.0)
            weight = variable.read_value()
            first = kept_1 * self.first_moment[name].read_value() + new_1 * sound
            second = kept_2 * self.second_moment[name].read_value() + new_2 * tf.square(sound)
            update = (first / correction_1) / (tf.sqrt(second / correction_2) + epsilon)
            if variable.shape.rank >= 2:
                update += decayed * weight
            variable.assign_sub(rate * update)
            self.first_moment[name].assign(first)
            self.second_moment[name].assign(second)


class LossScale(tf.Module):
    """What the loss is multiplied by in float16, whose smallest numbers small gradients would fall under (Micikevicius et al. 2018).

    It doubles after `GROWTH_STEPS` steps of finite gradients in a row; a gradient that is not finite halves it, and its step is left out.
    """

    FIRST, LEAST, GREATEST, GROWTH_STEPS = 2.0**15, 1.0, 2.0**24, 1_000

    def __init__(self) -> None:
        super().__init__(name="loss_scale")
        self.scale = tf.Variable(self.FIRST, trainable=False, name="scale")
        self.finite_steps = tf.Variable(0.0, trainable=False, name="finite_steps")

    def update(self, is_finite: tf.Tensor) -> None:
        """Grow or shrink after a step."""
        finite_steps = tf.where(is_finite, self.finite_steps + 1.0, 0.0)
        is_growing = finite_steps >= self.GROWTH_STEPS
        scale = tf.where(is_finite, tf.where(is_growing, self.scale * 2.0, self.scale), self.scale * 0.5)
        self.scale.assign(tf.clip_by_value(scale, self.LEAST, self.GREATEST))
        self.finite_steps.assign(tf.where(is_growing, 0.0, finite_steps))


def clip_by_global_norm(gradients: Sequence[tf.Tensor], limit: float) -> tuple[list[tf.Tensor], tf.Tensor]:
    """Return the gradients scaled to a joint norm of at most `limit`, and the norm before."""
    norm = tf.sqrt(2.0 * tf.add_n([tf.nn.l2_loss(gradient) for gradient in gradients]))
    scale = limit / tf.maximum(norm, limit)
    return [gradient * scale for gradient in gradients], norm
