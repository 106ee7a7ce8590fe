"""AdamW and loss scaling inside the compiled step.

Not Keras's AdamW: XLA fuses this whole update, and its state is plain named variables, which a checkpoint needs.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

EPSILON = 1e-9


class Betas(NamedTuple):
    """The decays of Adam's two moments; the defaults are those of Vaswani et al. (2017)."""

    first: float = 0.9
    second: float = 0.98


class AdamW(tf.Module):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019), without decay of vectors and scalars.

    first_steps: by name, the step of a variable's first update; the default is 0.
    """

    def __init__(
        self,
        trained: Mapping[str, tf.Variable],
        weight_decay: float,
        betas: Betas,
        first_steps: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(name="adamw")
        self._trained, self._first_steps = dict(trained), dict(first_steps or {})
        self.weight_decay, self.betas = weight_decay, betas
        # By name: a moved layer shows as a missing name instead of silently getting another layer's moments.
        self.first_moment, self.second_moment = (
            {name: tf.Variable(tf.zeros_like(variable), trainable=False) for name, variable in trained.items()}
            for _ in range(2)
        )

    @property
    def trained(self) -> dict[str, tf.Variable]:
        """The variables that `apply` updates, in the order of their gradients."""
        return self._trained

    def apply(self, gradients: Sequence[tf.Tensor], rate: tf.Tensor, step: tf.Tensor, is_applied: tf.Tensor) -> None:
        """Update the variables, or nothing if `is_applied` is False. The 0-based `step` sets the bias correction."""
        scalars = {first: self._scalars(rate, step, is_applied, first) for first in {0, *self._first_steps.values()}}
        decays, zero = {first: found["lr"] * self.weight_decay for first, found in scalars.items()}, tf.constant(0.0)
        for (name, variable), gradient in zip(self._trained.items(), gradients, strict=True):
            first = self._first_steps.get(name, 0)
            if variable.shape.rank >= 2:
                variable.assign_sub(decays[first] * variable.read_value())
            tf.raw_ops.ResourceApplyAdam(
                var=variable.handle,
                m=self.first_moment[name].handle,
                v=self.second_moment[name].handle,
                # NaN times 0 is NaN.
                grad=tf.where(is_applied, gradient, zero),
                **scalars[first],
            )

    def _scalars(self, rate: tf.Tensor, step: tf.Tensor, is_applied: tf.Tensor, first: int) -> dict[str, tf.Tensor]:
        """Return the scalars of `ResourceApplyAdam` for the variables whose first update is at step `first`.

        Scalars skip the update. There are hundreds of variables, and every operation on each of them costs tracing
        time; the fused operation saves it too.
        """
        if first:
            is_applied, step = is_applied & (step >= first), tf.maximum(step - first, 0)
        count = tf.cast(step + 1, tf.float32)
        power_1, power_2 = tf.pow(self.betas.first, count), tf.pow(self.betas.second, count)
        return {
            "beta1_power": power_1,
            "beta2_power": power_2,
            "lr": tf.where(is_applied, rate, 0.0),
            "beta1": tf.where(is_applied, self.betas.first, 1.0),
            "beta2": tf.where(is_applied, self.betas.second, 1.0),
            # The fused operation adds epsilon to the uncorrected moment, the other variant of Kingma and Ba (2015).
            "epsilon": EPSILON * tf.sqrt(1.0 - power_2),
        }


class LossScale(tf.Module):
    """The factor of the loss in float16, which keeps small gradients from underflow (Micikevicius et al. 2018).

    It doubles after `GROWTH_STEPS` steps in a row with finite gradients. A gradient that is not finite halves it, and
    the step is skipped.
    """

    FIRST, LEAST, GREATEST, GROWTH_STEPS = 2.0**15, 1.0, 2.0**24, 1_000

    def __init__(self) -> None:
        super().__init__(name="loss_scale")
        self.scale = tf.Variable(self.FIRST, trainable=False, name="scale")
        self.finite_steps = tf.Variable(0.0, trainable=False, name="finite_steps")

    def update(self, is_finite: tf.Tensor) -> None:
        """Grow or shrink the scale after a step."""
        finite_steps = tf.where(is_finite, self.finite_steps + 1.0, 0.0)
        is_growing = finite_steps >= self.GROWTH_STEPS
        scale = tf.where(is_finite, tf.where(is_growing, self.scale * 2.0, self.scale), self.scale * 0.5)
        self.scale.assign(tf.clip_by_value(scale, self.LEAST, self.GREATEST))
        self.finite_steps.assign(tf.where(is_growing, 0.0, finite_steps))
