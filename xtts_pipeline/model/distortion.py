"""The distance of spoken from recorded mels, whatever their timing, as operations of a graph with static shapes."""

import math

import numpy as np
import tensorflow as tf

from xtts_pipeline.audio.cepstrum import DECIBELS, mel_cepstrum

UNREACHABLE = 1e9


def mel_distortion(
    true_BTM: tf.Tensor, true_length_B: tf.Tensor, spoken_BTM: tf.Tensor, spoken_length_B: tf.Tensor
) -> tf.Tensor:
    """Return the mel-cepstral distortion of each row in dB, float32 [B]; rows have frames.

    Mels are in natural log. Dynamic time warping in its symmetric form: a step of both sequences counts twice, a step
    of one once, and the sum is divided by both lengths (H. Sakoe and S. Chiba, 1978). `xtts evaluate` takes the same
    distances of frames, but their plain mean over a path.
    """
    cost_BXY = _distances(_cepstra(true_BTM), _cepstra(spoken_BTM))
    rows, true_frames, spoken_frames = cost_BXY.shape
    # Row x is shifted right by x, so that a column holds an anti-diagonal, whose cells do not depend on each other.
    diagonals = true_frames + spoken_frames - 1
    shifted_BXD = tf.pad(cost_BXY, [[0, 0], [0, 0], [0, true_frames]], constant_values=UNREACHABLE)
    shifted_BXD = tf.reshape(shifted_BXD, [rows, -1])[:, : true_frames * diagonals]
    cost_DBX = tf.transpose(tf.reshape(shifted_BXD, [rows, true_frames, diagonals]), [2, 0, 1])
    last_diagonal_B = true_length_B + spoken_length_B - 2
    last_frame_B1 = tf.maximum(true_length_B - 1, 0)[:, None]
    nowhere_BX = tf.fill([rows, true_frames], UNREACHABLE)
    first_BX = tf.where(tf.range(true_frames)[None, :] == 0, 2.0 * cost_DBX[0], UNREACHABLE)

    def behind(sum_BX: tf.Tensor) -> tf.Tensor:
        return tf.pad(sum_BX[:, :-1], [[0, 0], [1, 0]], constant_values=UNREACHABLE)

    def advance(
        diagonal: tf.Tensor, before_BX: tf.Tensor, last_BX: tf.Tensor, total_B: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
        cost_BX = cost_DBX[diagonal]
        alone_BX = tf.minimum(last_BX, behind(last_BX)) + cost_BX
        now_BX = tf.minimum(tf.minimum(alone_BX, behind(before_BX) + 2.0 * cost_BX), UNREACHABLE)
        end_B = tf.gather(now_BX, last_frame_B1, batch_dims=1)[:, 0]
        return diagonal + 1, last_BX, now_BX, tf.where(last_diagonal_B == diagonal, end_B, total_B)

    start = (tf.constant(1), nowhere_BX, first_BX, tf.where(last_diagonal_B == 0, first_BX[:, 0], 0.0))
    *_, total_B = tf.while_loop(lambda diagonal, *_: diagonal < diagonals, advance, start)
    return total_B / tf.cast(tf.maximum(true_length_B + spoken_length_B, 1), tf.float32)


def _cepstra(mel_BTM: tf.Tensor) -> tf.Tensor:
    """Return `mel_cepstrum`, float32 [B, T, C], scaled so that its distances are those of spectra in dB."""
    cosines_MC = DECIBELS * math.sqrt(2.0) * mel_cepstrum(np.eye(mel_BTM.shape[-1]))
    return tf.matmul(tf.cast(mel_BTM, tf.float32), cosines_MC.astype(np.float32))


def _distances(one_BXC: tf.Tensor, other_BYC: tf.Tensor) -> tf.Tensor:
    """Return the distance of each vector of one from each of the other, [B, X, Y]."""
    squares_BX1 = tf.reduce_sum(tf.square(one_BXC), axis=-1)[:, :, None]
    squares_B1Y = tf.reduce_sum(tf.square(other_BYC), axis=-1)[:, None, :]
    return tf.sqrt(tf.maximum(squares_BX1 + squares_B1Y - 2.0 * tf.matmul(one_BXC, other_BYC, transpose_b=True), 0.0))
