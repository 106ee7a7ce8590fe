"""The pitch of tokens and of frames, from the harmonics in mels; tensor operations alone, so a cache needs no pitch."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from xtts_pipeline.audio.filterbank import SLANEY_CORNER_HZ, bin_hz
from xtts_pipeline.config.schema import AudioConfig

# Below this number of mel bins a period, harmonics cannot be told apart, and a low pitch looks like a higher one.
LEAST_BINS_PER_HARMONIC = 2.1
HIGHEST_HZ = 450.0
# Pitch is in octaves from here: between most men and most women.
REFERENCE_HZ = 150.0
CANDIDATES_PER_OCTAVE = 40
# The score at which a token is as likely voiced as not, and how steep the change is.
VOICING_SCORE, VOICING_SLOPE = 0.37, 15.0
# Standard deviation of the envelope that is taken from the harmonics.
WHITENING_HZ = 40.0
# All harmonics of a pitch are harmonics of half of it as well. So a candidate loses this share of its octave's score.
OCTAVE_SHARE = 0.8
# Keeps the scores of silence finite.
LEAST_POWER = 1e-4
# Keeps the parabola of equal scores finite.
LEAST_BEND = 1e-6


class Pitch(NamedTuple):
    """Of each token, float32 [B, S]: the voiced share, 0 to 1, and that share times the octaves above 150 Hz."""

    voicing: tf.Tensor
    octaves: tf.Tensor


class PitchFinder:
    """Compare the lowest mel bins, where filters are evenly spaced, with the harmonics of candidate pitches.

    Cosines over frequency, as in the cepstrum (A. M. Noll, 1967), and the score of a candidate's octave.
    """

    def __init__(self, audio: AudioConfig, dtype: tf.DType = tf.float32) -> None:
        hz_K = bin_hz(np.arange(audio.mel_bins), audio)
        hz_K = hz_K[hz_K < SLANEY_CORNER_HZ]
        spacing = float(np.diff(hz_K).mean()) if len(hz_K) > 1 else SLANEY_CORNER_HZ
        lowest = min(LEAST_BINS_PER_HARMONIC * spacing, HIGHEST_HZ / 2)
        octaves = np.arange(
            np.log2(lowest / REFERENCE_HZ), np.log2(HIGHEST_HZ / REFERENCE_HZ), 1 / CANDIDATES_PER_OCTAVE
        )
        candidate_hz = REFERENCE_HZ * 2.0**octaves
        number = dtype.as_numpy_dtype
        self.octaves = octaves.astype(number)
        # Below the first harmonic there is nothing to compare.
        is_compared_KC = hz_K[:, None] > candidate_hz / 2
        pattern_KC = np.cos(2 * np.pi * hz_K[:, None] / candidate_hz) * is_compared_KC
        pattern_KC -= pattern_KC.mean(axis=0) * is_compared_KC
        self.pattern_KC = (pattern_KC / (np.linalg.norm(pattern_KC, axis=0) + 1e-6)).astype(number)
        # Times it, mel frames keep how each bin differs from its neighbours.
        whiten_MM = np.eye(audio.mel_bins) - _envelope_matrix(audio.mel_bins, WHITENING_HZ / spacing)
        self.whiten_MK = whiten_MM[:, : len(hz_K)].astype(number)

    def __call__(self, mel_BTM: tf.Tensor, posterior_BTS: tf.Tensor) -> Pitch:
        """Return the pitch of tokens, from the probability that each frame belongs to each."""
        score_BTC = self.compare(mel_BTM)
        duration_BS1 = tf.reduce_sum(posterior_BTS, axis=1)[..., None]
        score_BSC = tf.math.divide_no_nan(tf.matmul(posterior_BTS, score_BTC, transpose_a=True), duration_BS1)
        score_BSC = self.without_halves(score_BSC)
        voicing_BS = tf.sigmoid(VOICING_SLOPE * (tf.reduce_max(score_BSC, axis=-1) - VOICING_SCORE))
        octaves_BS = tf.gather(self.octaves, tf.argmax(score_BSC, axis=-1))
        return Pitch(voicing_BS, voicing_BS * octaves_BS)

    def best_hz(self, score_BTC: tf.Tensor) -> tf.Tensor:
        """Return the best pitch of scores, [B, T]: where the parabola through three neighbouring scores is highest."""
        last = score_BTC.shape[-1] - 1
        best_BT = tf.clip_by_value(tf.argmax(score_BTC, axis=-1, output_type=tf.int32), 1, last - 1)
        below_BT, top_BT, above_BT = (tf.gather(score_BTC, best_BT + shift, batch_dims=2) for shift in (-1, 0, 1))
        bend_BT = tf.minimum(below_BT - 2.0 * top_BT + above_BT, -LEAST_BEND)
        offset_BT = tf.clip_by_value(0.5 * (below_BT - above_BT) / bend_BT, -0.5, 0.5)
        octaves_BT = self.octaves[0] + (tf.cast(best_BT, score_BTC.dtype) + offset_BT) / CANDIDATES_PER_OCTAVE
        return REFERENCE_HZ * tf.pow(tf.constant(2.0, score_BTC.dtype), octaves_BT)

    def compare(self, mel_BTM: tf.Tensor) -> tf.Tensor:
        """Return how well the harmonics of each candidate fit each frame, [B, T, C]."""
        harmonic_BTK = tf.matmul(mel_BTM, self.whiten_MK)
        norm_BT1 = tf.sqrt(tf.reduce_sum(tf.square(harmonic_BTK), axis=-1, keepdims=True) + LEAST_POWER)
        return tf.matmul(harmonic_BTK / norm_BT1, self.pattern_KC)

    def without_halves(self, score_BSC: tf.Tensor) -> tf.Tensor:
        """Return the scores less a share of those of each candidate's octave, [B, S, C]."""
        octave_BSC = tf.pad(score_BSC[..., CANDIDATES_PER_OCTAVE:], [[0, 0], [0, 0], [0, CANDIDATES_PER_OCTAVE]])
        return score_BSC - OCTAVE_SHARE * tf.nn.relu(octave_BSC)


def _envelope_matrix(mel_bins: int, width_bins: float) -> np.ndarray:
    """Return float64 [M, M]; log-mel frames times it are their averages over a Gaussian of this standard deviation."""
    bins = np.arange(mel_bins)
    weights = np.exp(-np.square((bins[:, None] - bins[None, :]) / width_bins) / 2.0)
    # Normalised by column: each bin's envelope is an average, at the edges too.
    envelope: np.ndarray = weights / weights.sum(axis=0, keepdims=True)
    return envelope
