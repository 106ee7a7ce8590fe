"""Metrics of how well attention follows the text, as sums over a batch that the caller divides by its counts.

Tensors in, scalars out. Attention is that of the guided heads [B, G, F, S]; rows of length 0 have no weight.
"""

import tensorflow as tf

from xtts_pipeline.model.layers import length_mask

# Largest distance from the diagonal, as a share of the text, that counts as on it.
DIAGONAL_BAND = 0.15
# A token counts as spoken if one decoder step attends to it with at least this weight.
COVERED_WEIGHT = 0.2


def attention_focus(attention_BGFS: tf.Tensor, steps_B: tf.Tensor) -> tf.Tensor:
    """Return the sum over real decoder steps of the largest weight of any head (focus rate, Ren et al. 2019).

    The mean over steps is 1 / S for uniform attention and 1 for a single token. If it is low, attention has not
    aligned.
    """
    sharpest_BF = tf.reduce_max(attention_BGFS, axis=[1, 3])
    return tf.reduce_sum(tf.where(length_mask(steps_B, attention_BGFS.shape[2]), sharpest_BF, 0.0))


def diagonal_share(attention_BGFS: tf.Tensor, text_length_B: tf.Tensor, steps_B: tf.Tensor) -> tf.Tensor:
    """Return the sum over real decoder steps of the weight within DIAGONAL_BAND of the diagonal, mean of the heads."""
    steps, symbols = attention_BGFS.shape[2:]
    is_near_BFS = tf.abs(off_diagonal(text_length_B, steps_B, symbols, steps)) <= DIAGONAL_BAND
    near_BF = tf.reduce_sum(tf.where(is_near_BFS, tf.reduce_mean(attention_BGFS, axis=1), 0.0), axis=-1)
    return tf.reduce_sum(tf.where(length_mask(steps_B, steps), near_BF, 0.0))


def attention_coverage(attention_BGFS: tf.Tensor, text_length_B: tf.Tensor, steps_B: tf.Tensor) -> tf.Tensor:
    """Return how many real tokens have a weight of at least COVERED_WEIGHT in any real decoder step and head."""
    steps, symbols = attention_BGFS.shape[2:]
    is_real_B1F1 = length_mask(steps_B, steps)[:, None, :, None]
    most_BS = tf.reduce_max(tf.where(is_real_B1F1, attention_BGFS, 0.0), axis=[1, 2])
    is_covered_BS = (most_BS >= COVERED_WEIGHT) & length_mask(text_length_B, symbols)
    return tf.reduce_sum(tf.cast(is_covered_BS, tf.float32))


def stop_error(stop_logit_BF: tf.Tensor, steps_B: tf.Tensor) -> tf.Tensor:
    """Return by how many decoder steps stops come too early at a threshold of 0.5, summed over rows.

    A row without a stop counts all its steps. Logits after a clip's end are padding and ignored.
    """
    step_1F = tf.range(stop_logit_BF.shape[1])[None, :]
    is_stop_BF = (stop_logit_BF > 0.0) & (step_1F < steps_B[:, None])
    first_B = tf.reduce_min(tf.where(is_stop_BF, step_1F, steps_B[:, None]), axis=1)
    error_B = tf.where(first_B < steps_B, steps_B - 1 - first_B, steps_B)
    return tf.reduce_sum(tf.cast(error_B, tf.float32))


def off_diagonal(text_length_B: tf.Tensor, steps_B: tf.Tensor, symbols: int, steps: int) -> tf.Tensor:
    """Return the signed distance of decoder steps and tokens from the diagonal, in shares of the whole: [B, F, S]."""
    along_steps_BF = tf.range(steps, dtype=tf.float32)[None, :] / tf.cast(tf.maximum(steps_B, 1), tf.float32)[:, None]
    along_text_BS = (
        tf.range(symbols, dtype=tf.float32)[None, :] / tf.cast(tf.maximum(text_length_B, 1), tf.float32)[:, None]
    )
    return along_steps_BF[:, :, None] - along_text_BS[:, None, :]
