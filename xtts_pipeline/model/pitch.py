"""The pitch of tokens and of frames, from the harmonics in mels; tensor operations alone, so a cache needs no pitch.

Shape key, beside that of `layers`: C candidate pitches, L the mel bins below 1,000 Hz, which are evenly spaced.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from xtts_pipeline.audio.filterbank import SLANEY_CORNER_HZ, bin_to_hz
from xtts_pipeline.config.schema import AudioConfig
from xtts_pipeline.model.architecture import HARMONIC_FEATURES

# Below this number of mel bins a period, harmonics cannot be told apart, and a low pitch looks like a higher one.
LEAST_BINS_PER_HARMONIC = 2.1
HIGHEST_PITCH_HZ = 450.0
# Pitch is in octaves from here: between most men and most women.
REFERENCE_HZ = 150.0
CANDIDATES_PER_OCTAVE = 40
# The score at which a token is as likely voiced as not, and how steep the change is.
VOICING_SCORE, VOICING_SLOPE = 0.37, 15.0
# The least mean weight of a clip's pitch. 1.5 s of a voice seldom have under 0.04, and whispered ones at most 0.035.
LEAST_CLIP_WEIGHT = 0.04
# Standard deviation of the envelope that is taken from the harmonics.
WHITENING_HZ = 40.0
# All harmonics of a pitch are harmonics of its half and of its third as well. So this share of the scores of twice and
# of three times a candidate, the larger one, is subtracted from its own.
MULTIPLE_SHARE = 0.8
# A candidate's score loses this for the square of its distance in octaves from the pitch of the context. Without it the
# pitch of hardly voiced sounds is often read one or two octaves too high.
SQUARED_OCTAVE_COST = 0.1
# How many candidates further twice and three times a pitch are.
MULTIPLE_SHIFTS = tuple(round(CANDIDATES_PER_OCTAVE * float(np.log2(multiple))) for multiple in (2, 3))
# Frames of silence are equal in all bins but for rounding, which must not decide on a pitch.
LEAST_DIFFERENCE = 1e-4
# Keeps the scores of silence finite.
LEAST_POWER = 1e-4
# Keeps the parabola of equal scores finite.
LEAST_BEND = 1e-6
# Above it the harmonics of a token's mean pitch are blurred by what the pitch changes within the token.
HIGHEST_FEATURE_HZ = 2_000.0
# Keeps the mean pitch of an unvoiced text finite.
LEAST_VOICED_FRAMES = 1e-3
# No pitch is further than this from 150 Hz, in octaves.
MAX_OCTAVES = 3.0


class Pitch(NamedTuple):
    """Of each token, float32 [B, S]: the voiced share, 0 to 1, and the octaves above 150 Hz.

    The octaves of an unvoiced token have no meaning.
    """

    voicing: tf.Tensor
    octaves: tf.Tensor


class PitchFinder:
    """Compare the lowest mel bins, where filters are evenly spaced, with the harmonics of candidate pitches.

    Cosines over frequency, as in the cepstrum (A. M. Noll, 1967), less the scores of a candidate's multiples.

    octaves: the candidates, from 150 Hz, [C].
    """

    def __init__(self, audio: AudioConfig, dtype: tf.DType = tf.float32) -> None:
        hz_L = bin_to_hz(np.arange(audio.mel_bins), audio)
        hz_L = hz_L[hz_L < SLANEY_CORNER_HZ]
        spacing = float(np.diff(hz_L).mean()) if len(hz_L) > 1 else SLANEY_CORNER_HZ
        lowest = min(LEAST_BINS_PER_HARMONIC * spacing, HIGHEST_PITCH_HZ / 2)
        octaves = np.arange(
            np.log2(lowest / REFERENCE_HZ), np.log2(HIGHEST_PITCH_HZ / REFERENCE_HZ), 1 / CANDIDATES_PER_OCTAVE
        )
        candidate_hz = REFERENCE_HZ * 2.0**octaves
        numpy_dtype = dtype.as_numpy_dtype
        self.octaves = octaves.astype(numpy_dtype)
        # Below the first harmonic there is nothing to compare.
        is_compared_LC = hz_L[:, None] > candidate_hz / 2
        pattern_LC = np.cos(2 * np.pi * hz_L[:, None] / candidate_hz) * is_compared_LC
        pattern_LC -= pattern_LC.sum(axis=0) / max(1, len(hz_L)) * is_compared_LC
        self.pattern_LC = (pattern_LC / (np.linalg.norm(pattern_LC, axis=0) + 1e-6)).astype(numpy_dtype)
        # Times it, mel frames keep how each bin differs from its neighbours.
        whiten_MM = np.eye(audio.mel_bins) - _envelope_matrix(audio.mel_bins, WHITENING_HZ / spacing)
        self.whiten_ML = whiten_MM[:, : len(hz_L)].astype(numpy_dtype)

    def __call__(self, mel_BTM: tf.Tensor, posterior_BTS: tf.Tensor) -> Pitch:
        """Return the pitch of tokens, from the probability that each frame belongs to each."""
        score_BTC = self.compare(mel_BTM)
        duration_BS1 = tf.reduce_sum(posterior_BTS, axis=1)[..., None]
        score_BSC = tf.math.divide_no_nan(tf.matmul(posterior_BTS, score_BTC, transpose_a=True), duration_BS1)
        score_BSC = self.without_multiples(score_BSC)
        clip_B1C = tf.reduce_sum(weight_of(score_BSC) * duration_BS1, axis=1, keepdims=True)
        best_BS = self.best_near(score_BSC, clip_B1C)
        best_score_BS = tf.gather(score_BSC, best_BS, batch_dims=2)
        voicing_BS = tf.sigmoid(VOICING_SLOPE * (best_score_BS - VOICING_SCORE))
        return Pitch(voicing_BS, self._best_octaves(score_BSC, best_BS))

    def of_clips(self, mel_BTM: tf.Tensor, mask_BT: tf.Tensor) -> tf.Tensor:
        """Return the pitch of whole clips in octaves above 150 Hz, [B]; 0 for clips without voice.

        That is the clip's own context, as in `best_near`: single frames may be octaves off, which would move a mean.
        """
        mask_BT1 = tf.cast(mask_BT, mel_BTM.dtype)[..., None]
        weight_BTC = weight_of(self.without_multiples(self.compare(mel_BTM))) * mask_BT1
        frames_B11 = tf.reduce_sum(mask_BT1, axis=1, keepdims=True)
        mean_B1C = tf.math.divide_no_nan(tf.reduce_sum(weight_BTC, axis=1, keepdims=True), frames_B11)
        octaves_B1 = self._best_octaves(mean_B1C, tf.argmax(mean_B1C, axis=-1, output_type=tf.int32))
        return tf.where(tf.reduce_max(mean_B1C, axis=-1) > LEAST_CLIP_WEIGHT, octaves_B1, 0.0)[:, 0]

    def best_near(self, score_BTC: tf.Tensor, context_BTC: tf.Tensor) -> tf.Tensor:
        """Return the number of the best candidate, int32 [B, T]; those far from the context's best cost some score.

        context: sums of `weight_of` scores over what surrounds each frame, or over the clip.
        """
        centre_BT = tf.gather(self.octaves, tf.argmax(context_BTC, axis=-1, output_type=tf.int32))
        cost_BTC = SQUARED_OCTAVE_COST * tf.square(self.octaves - centre_BT[..., None])
        return tf.argmax(score_BTC - cost_BTC, axis=-1, output_type=tf.int32)

    def best_hz(self, score_BTC: tf.Tensor, best_BT: tf.Tensor) -> tf.Tensor:
        """Return the pitch at the best candidates of scores, [B, T]."""
        return REFERENCE_HZ * tf.pow(tf.constant(2.0, score_BTC.dtype), self._best_octaves(score_BTC, best_BT))

    def _best_octaves(self, score_BTC: tf.Tensor, best_BT: tf.Tensor) -> tf.Tensor:
        """Return the octaves above 150 Hz where the parabola through the best score and its neighbours is highest."""
        last = score_BTC.shape[-1] - 1
        best_BT = tf.clip_by_value(best_BT, 1, last - 1)
        below_BT, top_BT, above_BT = (tf.gather(score_BTC, best_BT + shift, batch_dims=2) for shift in (-1, 0, 1))
        bend_BT = tf.minimum(below_BT - 2.0 * top_BT + above_BT, -LEAST_BEND)
        offset_BT = tf.clip_by_value(0.5 * (below_BT - above_BT) / bend_BT, -0.5, 0.5)
        return self.octaves[0] + (tf.cast(best_BT, score_BTC.dtype) + offset_BT) / CANDIDATES_PER_OCTAVE

    def compare(self, mel_BTM: tf.Tensor) -> tf.Tensor:
        """Return how well the harmonics of each candidate fit each frame, [B, T, C]."""
        harmonic_BTL = tf.matmul(mel_BTM, self.whiten_ML)
        harmonic_BTL = tf.where(tf.abs(harmonic_BTL) > LEAST_DIFFERENCE, harmonic_BTL, tf.zeros([], mel_BTM.dtype))
        norm_BT1 = tf.sqrt(tf.reduce_sum(tf.square(harmonic_BTL), axis=-1, keepdims=True) + LEAST_POWER)
        return tf.matmul(harmonic_BTL / norm_BT1, self.pattern_LC)

    def without_multiples(self, score_BTC: tf.Tensor) -> tf.Tensor:
        """Return the scores less a share of those of each candidate's multiples, [B, T, C]."""
        multiples = [
            tf.pad(score_BTC[..., shift:], [[0, 0], [0, 0], [0, min(shift, len(self.octaves))]])
            for shift in MULTIPLE_SHIFTS
        ]
        return score_BTC - MULTIPLE_SHARE * tf.nn.relu(tf.maximum(*multiples))


def weight_of(score_BTC: tf.Tensor) -> tf.Tensor:
    """Return how much scores count in the pitch of their context: clear ones most, negative ones not at all."""
    return tf.square(tf.nn.relu(score_BTC))


def harmonics(pitch: Pitch) -> tf.Tensor:
    """Return where the harmonics of each token's pitch lie, float32 [B, S, HARMONIC_FEATURES].

    Cosines with a peak at each harmonic, at evenly spaced frequencies, times the voiced share. A network hardly learns
    such a comb from the pitch as one number.
    """
    cycles_BS = tf.pow(2.0, -tf.clip_by_value(pitch.octaves, -MAX_OCTAVES, MAX_OCTAVES)) / REFERENCE_HZ
    hz = np.arange(1, HARMONIC_FEATURES + 1, dtype=np.float32) * (HIGHEST_FEATURE_HZ / HARMONIC_FEATURES)
    comb_BSH = tf.cos(2.0 * np.pi * cycles_BS[..., None] * hz)
    return comb_BSH * tf.clip_by_value(pitch.voicing, 0.0, 1.0)[..., None]


def stretched_octaves(pitch: Pitch, duration_BS: tf.Tensor, factor: float) -> tf.Tensor:
    """Return the octaves of tokens of these durations, `factor` times as far from their mean over the voiced time.

    A network predicts the mean of the pitches that a text may have, which varies less than each of them. That speech
    needs the variance of recordings is from Toda and Tokuda (2007).
    """
    voiced_BS = duration_BS * tf.clip_by_value(pitch.voicing, 0.0, 1.0)
    voiced_B1 = tf.maximum(tf.reduce_sum(voiced_BS, axis=1, keepdims=True), LEAST_VOICED_FRAMES)
    mean_B1 = tf.reduce_sum(voiced_BS * pitch.octaves, axis=1, keepdims=True) / voiced_B1
    return pitch.octaves + (factor - 1.0) * (pitch.octaves - mean_B1)


def _envelope_matrix(mel_bins: int, width_bins: float) -> np.ndarray:
    """Return float64 [M, M]; log-mel frames times it are their averages over a Gaussian of this standard deviation."""
    bins = np.arange(mel_bins)
    weights = np.exp(-np.square((bins[:, None] - bins[None, :]) / width_bins) / 2.0)
    # Normalised by column: each bin's envelope is an average, at the edges too.
    envelope: np.ndarray = weights / weights.sum(axis=0, keepdims=True)
    return envelope
