"""The phases of a voice's harmonics, from the pitch that is read from mels.

A mel has no phases, and equal frames give equal phases. The wave of a steady voice then repeats with each hop, at 86
Hz with the default `audio` settings, and voices near 86 Hz spoke at 86 Hz. Here the phase runs on with the pitch from
frame to frame, as in the source of neural source-filter models (Wang, Takaki and Yamagishi 2019).

Shape key, beside that of `layers`: G the bins of a spectrum whose phases are those of harmonics.
"""

import numpy as np
import tensorflow as tf

from xtts_pipeline.audio.filterbank import NEEDED_PITCH_HZ, lowest_hz_of_window
from xtts_pipeline.config.schema import AudioConfig
from xtts_pipeline.model.layers import shifted
from xtts_pipeline.model.pitch import REFERENCE_HZ, PitchFinder, weight_of

# Above it a small error of the pitch turns a harmonic's phase by whole turns, and there is more noise than harmonics.
HIGHEST_HARMONIC_HZ = 1_000.0
# Scores of candidates are averaged over this many frames to each side.
SMOOTHING_REACH = 3


class HarmonicPhase:
    """The phase of each frame's spectrum if its harmonics run on from frame to frame.

    Pitch and cycles are float64, since cycles add up over a whole text.

    reach: how many frames to each side the pitch of a frame depends on, a multiple of 3 from 3 on.
    """

    def __init__(self, audio: AudioConfig, reach: int) -> None:
        self.reach = reach
        self.finder = PitchFinder(audio, tf.float64)
        self.frame_seconds = audio.frame_seconds
        weights = np.hanning(2 * SMOOTHING_REACH + 3)[1:-1]
        self.weights = weights / weights.sum()
        bins = 1 + audio.fft_size // 2
        fft_hz = np.arange(bins) * audio.sample_rate / audio.fft_size
        lowest_hz = max(REFERENCE_HZ * 2.0 ** self.finder.octaves[0], lowest_hz_of_window(audio))
        # Low voices would be read an octave too high, and no phase is better than a wrong one.
        highest_hz = HIGHEST_HARMONIC_HZ if lowest_hz <= NEEDED_PITCH_HZ else 0.0
        self.harmonic_hz = fft_hz[fft_hz < highest_hz]
        self.other_bins = bins - len(self.harmonic_hz)
        # Frames start half a transform before their centre, so the phase of a pulse at the centre alternates.
        self.pulse_phase = (np.pi * (np.arange(bins) % 2)).astype(np.float32)

    def pitch_hz(self, scaled_BTM: tf.Tensor, is_real_BT: tf.Tensor) -> tf.Tensor:
        """Return the pitch of frames in the network's scale, float64 [B, T]; that of unvoiced frames has no meaning.

        Frames that are not real must be zero. They have no influence on others, as if the mel ended before them.
        """
        finder = self.finder
        score_BTC = finder.compare(tf.cast(scaled_BTM, tf.float64))
        neighbours = zip(self.weights, shifted(score_BTC, SMOOTHING_REACH), strict=True)
        score_BTC = finder.without_multiples(tf.add_n([weight * x_BTC for weight, x_BTC in neighbours]))
        # Smoothing gives scores to frames that are not real, next to real ones.
        score_BTC = tf.where(is_real_BT[..., None], score_BTC, tf.zeros([], score_BTC.dtype))
        # Every third frame: neighbours are averages of nearly the same frames.
        context_BTC = tf.add_n(shifted(weight_of(score_BTC), self.reach - SMOOTHING_REACH, SMOOTHING_REACH))
        return finder.best_hz(score_BTC, finder.best_near(score_BTC, context_BTC))

    def cycles(self, pitch_hz_BT: tf.Tensor, before_B: tf.Tensor | float = 0.0) -> tf.Tensor:
        """Return the fractional part of the pitch's cycles up to each frame, [B, T].

        before_B: the cycles up to the frame before the first.
        """
        before_B1 = tf.reshape(tf.cast(before_B, tf.float64), [-1, 1])
        return tf.math.floormod(before_B1 + tf.cumsum(pitch_hz_BT * self.frame_seconds, axis=1), 1.0)

    def __call__(self, pitch_hz_BT: tf.Tensor, cycles_BT: tf.Tensor) -> tf.Tensor:
        """Return the phase of each frame's bins in radians, float32 [B, T, K], at these cycles of the pitch."""
        harmonic_BTG = tf.round(self.harmonic_hz / pitch_hz_BT[..., None])
        turned_BTG = tf.math.floormod(harmonic_BTG * cycles_BT[..., None], 1.0)
        phase_BTG = tf.cast(2.0 * np.pi * turned_BTG, tf.float32)
        return tf.pad(phase_BTG, [[0, 0], [0, 0], [0, self.other_bins]]) + self.pulse_phase
