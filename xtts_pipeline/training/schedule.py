"""How settings change over a run: the learning rate, the guidance of attention, the share of the network's own frames."""

import math

import tensorflow as tf

from xtts_pipeline.config.schema import TrainingConfig


def learning_rate(step: tf.Tensor, config: TrainingConfig) -> tf.Tensor:
    """Return the float32 rate of a 0-based step: linear warm-up to `config.learning_rate`, then the schedule's way down.

    cosine and exponential reach `final_lr_fraction` of the peak at `config.steps` and stay there; noam falls with the root of the step
    (Vaswani et al. 2017, 5.3, scaled to the same peak); constant stays.
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


def guidance(step: tf.Tensor, config: TrainingConfig) -> tf.Tensor:
    """Return what share of its weight guidance to the diagonal has left: it fades until `guided_attention_steps`."""
    return tf.maximum(0.0, 1.0 - tf.cast(step, tf.float32) / config.guided_attention_steps)


def scheduled_sampling_share(step: tf.Tensor, config: TrainingConfig) -> tf.Tensor:
    """Return in what share of the decoder steps the network hears its own frame: 0 until `scheduled_sampling_start`, then rising."""
    if config.scheduled_sampling_start is None:
        return tf.zeros([])
    risen = (tf.cast(step, tf.float32) - config.scheduled_sampling_start) / config.scheduled_sampling_ramp_steps
    return config.scheduled_sampling_share * tf.clip_by_value(risen, 0.0, 1.0)
