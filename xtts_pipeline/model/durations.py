"""Which token each frame belongs to, from durations of tokens; the same in training and in synthesis."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

# A token of over 1,000 frames is no speech.
MAX_LOG_DURATION = 7.0
# Keeps divisions by the duration of a padded token finite.
LEAST_DURATION = 1e-3


class Timing(NamedTuple):
    """When tokens are spoken, in frames, float32 [B, S] each; padded tokens last 0 frames."""

    begin: tf.Tensor
    duration: tf.Tensor


def timing_of(duration_BS: tf.Tensor) -> Timing:
    """Return the timing of tokens of these durations, one after the other from frame 0 on."""
    return Timing(tf.cumsum(duration_BS, axis=1, exclusive=True), duration_BS)


def token_shares(timing: Timing, frame_T: tf.Tensor) -> tf.Tensor:
    """Return how much of each frame belongs to each token, float32 [B, T, S]: their overlap in time.

    The shares of a frame within the text sum to 1; the shares of a token over all frames sum to its duration.
    """
    begin_B1S, end_B1S = timing.begin[:, None, :], (timing.begin + timing.duration)[:, None, :]
    frame_T1 = tf.cast(frame_T, tf.float32)[:, None]
    return tf.maximum(tf.minimum(frame_T1 + 1.0, end_B1S) - tf.maximum(frame_T1, begin_B1S), 0.0)


def places(timing: Timing, frame_T: tf.Tensor, shares_BTS: tf.Tensor) -> tf.Tensor:
    """Return where each frame lies in its token, float32 [B, T, 3].

    The distance of its centre from the begin and from the end, in durations of the token, and the log of that duration.
    """
    centre_T1 = tf.cast(frame_T, tf.float32)[:, None] + 0.5
    duration_BS = tf.maximum(timing.duration, LEAST_DURATION)
    after_BTS = tf.clip_by_value((centre_T1 - timing.begin[:, None, :]) / duration_BS[:, None, :], 0.0, 1.0)
    from_begin_BT = tf.reduce_sum(shares_BTS * after_BTS, axis=-1)
    from_end_BT = tf.reduce_sum(shares_BTS, axis=-1) - from_begin_BT
    log_duration_BT = tf.einsum("BTS,BS->BT", shares_BTS, tf.math.log(duration_BS))
    return tf.stack([from_begin_BT, from_end_BT, log_duration_BT], axis=-1)


def spoken_durations(log_duration_BS: tf.Tensor, mask_BS: tf.Tensor, speed: tf.Tensor | float) -> tf.Tensor:
    """Return the durations in frames, float32 [B, S], of predicted logs; each row sums to a whole number.

    No token lasts under one frame at normal speed: the aligner's paths skip none.
    """
    duration_BS = tf.exp(tf.clip_by_value(log_duration_BS, 0.0, MAX_LOG_DURATION))
    return whole_frames(tf.where(mask_BS, duration_BS / speed, 0.0))


def whole_frames(duration_BS: tf.Tensor) -> tf.Tensor:
    """Return the durations, scaled so that each row sums to a whole number of frames."""
    total_B1 = tf.reduce_sum(duration_BS, axis=1, keepdims=True)
    return duration_BS * tf.maximum(tf.round(total_B1), 1.0) / tf.maximum(total_B1, LEAST_DURATION)


def cut_durations(durations: np.ndarray, frames: int) -> np.ndarray:
    """Return how much of each token's frames, float [S], lies within the first `frames`."""
    end = np.minimum(np.cumsum(durations, dtype=np.float64), frames)
    return np.diff(end, prepend=0.0).astype(durations.dtype)
