"""The learning rate over the steps of a run."""

import math

import tensorflow as tf

from xtts_pipeline.config.schema import TrainingConfig


def learning_rate(step: tf.Tensor, config: TrainingConfig) -> tf.Tensor:
    """Return the float32 learning rate of a 0-based step: linear warm-up to the peak, then the schedule's decay.

    cosine and exponential reach `final_lr_fraction` of the peak at `config.steps` and stay there. noam decays with the
    inverse square root of the step (Vaswani et al. 2017, 5.3, scaled to the same peak). constant does not decay.
    """
    step = tf.cast(step, tf.float32)
    warmup_steps = max(config.warmup_steps, 1)
    warmup = tf.minimum((step + 1.0) / warmup_steps, 1.0)
    progress = tf.clip_by_value((step - config.warmup_steps) / max(config.steps - config.warmup_steps, 1), 0.0, 1.0)
    final = config.final_lr_fraction
    match config.schedule:
        case "cosine":
            decay = final + (1.0 - final) * 0.5 * (1.0 + tf.cos(math.pi * progress))
        case "exponential":
            decay = tf.pow(final, progress)
        case "noam":
            decay = tf.sqrt(warmup_steps / tf.maximum(step + 1.0, warmup_steps))
        case "constant":
            decay = tf.ones([])
    return config.learning_rate * warmup * decay
