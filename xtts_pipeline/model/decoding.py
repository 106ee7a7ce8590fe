"""Decoded speech, whole and in chunks, and what is done to every decoder's frames before they are rendered."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

# Standard deviation, in mel bins, of the Gaussian that separates envelope and harmonics; a formant is several times as
# wide.
ENVELOPE_BINS = 2.0


class Speech(NamedTuple):
    """Decoded speech.

    mel [B, T, M] in natural log, silent after mel_length [B] frames. has_stopped [B] is False for a row that reached
    its frame limit. attention [B, F, S]: the share of each token in each decoder step.
    """

    mel: tf.Tensor
    mel_length: tf.Tensor
    has_stopped: tf.Tensor
    attention: tf.Tensor


class Chunk(NamedTuple):
    """Output of the next N decoder steps: mel [B, N * R, M] in natural log, attention [B, N, S].

    length [B]: the frames of each row so far. has_stopped [B] is that of Speech. is_speaking [B] is False for rows that
    have ended, whose frames after `length` are undefined.
    """

    mel: tf.Tensor
    attention: tf.Tensor
    length: tf.Tensor
    has_stopped: tf.Tensor
    is_speaking: tf.Tensor


def sharpen(mel_BTM: tf.Tensor, sharpness: float) -> tf.Tensor:
    """Return natural-log frames that deviate `sharpness` times as much from a smooth envelope."""
    return mel_BTM if sharpness == 1.0 else tf.matmul(mel_BTM, sharpening_matrix(mel_BTM.shape[-1], sharpness))


def sharpening_matrix(mel_bins: int, sharpness: float) -> np.ndarray:
    """Return float32 [M, M]; log-mel frames times it deviate `sharpness` times as much from a smooth envelope.

    A network trained on mean errors predicts flattened harmonics (T. Toda and K. Tokuda, 2007, "global variance"),
    which the vocoder makes hoarse. The matrix works frame by frame, so streamed and whole speech are equal. 1 changes
    nothing; silence stays silence.
    """
    matrix = sharpness * np.eye(mel_bins) + (1.0 - sharpness) * envelope_matrix(mel_bins, ENVELOPE_BINS)
    return matrix.astype(np.float32)


def envelope_matrix(mel_bins: int, width_bins: float) -> np.ndarray:
    """Return float64 [M, M]; log-mel frames times it are their averages over a Gaussian of this standard deviation."""
    bins = np.arange(mel_bins)
    weights = np.exp(-np.square((bins[:, None] - bins[None, :]) / width_bins) / 2.0)
    # Normalised by column: each bin's envelope is an average, at the edges too.
    envelope: np.ndarray = weights / weights.sum(axis=0, keepdims=True)
    return envelope
