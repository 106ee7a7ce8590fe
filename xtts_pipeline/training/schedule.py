"""The learning rate at each step: linear warm-up, then half a cosine down to a share of the peak."""

import math

import tensorflow as tf

from xtts_pipeline.config import TrainingConfig


def learning_rate(step: tf.Tensor, config: TrainingConfig) -> tf.Tensor:
    """Return the float32 rate of a 0-based step; at and after `config.steps` it stays at its last value."""
    step = tf.cast(step, tf.float32)
    warmup = tf.minimum((step + 1.0) / max(config.warmup_steps, 1), 1.0)
    progress = tf.clip_by_value((step - config.warmup_steps) / max(config.steps - config.warmup_steps, 1), 0.0, 1.0)
    cosine = 0.5 * (1.0 + tf.cos(math.pi * progress))
    return config.learning_rate * warmup * (config.final_rate_share + (1.0 - config.final_rate_share) * cosine)
