"""The learning rate over the steps of a run."""

import math

import tensorflow as tf

from xtts_pipeline.config.schema import TrainingConfig


class LearningRate:
    """The learning rate of each step: linear warm-up to the peak, then the schedule's decay.

    cosine and exponential reach `final_lr_fraction` of the peak at `config.steps` and stay there. noam decays with the
    inverse square root of the step (Vaswani et al. 2017, 5.3, scaled to the same peak). constant does not decay.

    numbers: a variable, so that the compile cache finds the program of a run with another peak or more steps. It is no
    state of the run, and no checkpoint has it.
    """

    def __init__(self, config: TrainingConfig) -> None:
        self._schedule = config.schedule
        numbers = [config.learning_rate, config.warmup_steps, config.steps, config.final_lr_fraction]
        self.numbers = tf.Variable(numbers, dtype=tf.float32, trainable=False, name="learning_rate")

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        """Return the float32 rate of a 0-based step."""
        peak, warmup_steps, steps, final = tf.unstack(self.numbers.read_value())
        step = tf.cast(step, tf.float32)
        warmed_up = tf.maximum(warmup_steps, 1.0)
        warmup = tf.minimum((step + 1.0) / warmed_up, 1.0)
        progress = tf.clip_by_value((step - warmup_steps) / tf.maximum(steps - warmup_steps, 1.0), 0.0, 1.0)
        match self._schedule:
            case "cosine":
                decay = final + (1.0 - final) * 0.5 * (1.0 + tf.cos(math.pi * progress))
            case "exponential":
                decay = tf.pow(final, progress)
            case "noam":
                decay = tf.sqrt(warmed_up / tf.maximum(step + 1.0, warmed_up))
            case "constant":
                decay = tf.ones([])
        return peak * warmup * decay
