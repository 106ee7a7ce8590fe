"""The trained vocoder's network: mel frames to spectra by ConvNeXt blocks at the frame rate, then one inverse STFT.

After Vocos (Siuzdak 2023). The magnitudes start from the pseudo-inverse of the mel, as in FreeV (Lv et al. 2024), and
the phases of low bins from harmonics of the pitch, so the blocks learn only what a mel does not hold.
"""

import math
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from xtts_pipeline.audio.filterbank import mel_filterbank
from xtts_pipeline.config.schema import AudioConfig
from xtts_pipeline.model.architecture import CONVNEXT_TAPS as TAPS
from xtts_pipeline.model.batch import to_network_scale
from xtts_pipeline.model.convnext import ConvNextBlock
from xtts_pipeline.model.layers import Dense, Initializer, LayerNorm, shifted
from xtts_pipeline.vocoder.fourier import InverseStft
from xtts_pipeline.vocoder.harmonic_phase import HarmonicPhase

# The inner width of a block, in widths.
EXPANSION = 3
# Natural logs of magnitudes: the floor, and the bound that windows of over 1,024 samples raise.
LEAST_LOG_MAGNITUDE, GREATEST_LOG_MAGNITUDE = -16.0, 6.0
# How far the bound of longer windows is above a sine at full scale, in nats.
HEADROOM = 0.45
# The least magnitude that the pseudo-inverse gives; it may be negative.
LEAST_MEL_MAGNITUDE = 1e-4
# The pseudo-inverse leaves out singular values of the mel filters below this share of the largest. Filters about as
# wide as FFT bins nearly depend on each other; without the limit the inverse would hold millions.
LEAST_SINGULAR_VALUE = 0.05


class Spectrum(NamedTuple):
    """The spectrum of each frame.

    bins: complex64 [B, T, 1 + fft_size // 2].
    cycles: the fractional part of the pitch's cycles up to each frame, float64 [B, T].
    """

    bins: tf.Tensor
    cycles: tf.Tensor


class Generator(tf.Module):
    """Mel frames to a wave.

    reach: how many frames to each side a frame's spectrum depends on, but for the cycles of the pitch up to it.
    greatest_log_magnitude: the bound of natural logs of magnitudes, which keeps `exp` finite.
    """

    def __init__(self, audio: AudioConfig, width: int, blocks: int, seed: int = 0) -> None:
        super().__init__(name="generator")
        initializer = Initializer(seed)
        self.audio, self.bins = audio, 1 + audio.fft_size // 2
        self.reach = TAPS // 2 * (blocks + 1)
        # The sum of a Hann window is half its length, and half of a sine is at its negative frequency.
        full_scale = math.log(audio.window_samples / 4)
        self.greatest_log_magnitude = max(GREATEST_LOG_MAGNITUDE, full_scale + HEADROOM)
        filters = mel_filterbank(audio)
        self.inverse_filters = np.linalg.pinv(filters, rcond=LEAST_SINGULAR_VALUE).T.astype(np.float32)
        self.embed = Dense(initializer, TAPS * audio.mel_bins, width, "embed")
        self.embed_norm = LayerNorm(width, "embed_norm")
        self.blocks = [
            ConvNextBlock(initializer, width, EXPANSION * width, 1.0 / blocks, f"block_{index}")
            for index in range(blocks)
        ]
        self.norm = LayerNorm(width, "norm")
        self.to_spectrum = Dense(initializer, width, 2 * self.bins, "to_spectrum")
        self.inverse = InverseStft(audio)
        self.harmonic_phase = HarmonicPhase(audio, self.reach)

    def __call__(self, mel_BTM: tf.Tensor, mask_BT: tf.Tensor | None = None, dtype: tf.DType = tf.float32) -> tf.Tensor:
        """Return the wave [B, (frames - 1) * hop_samples] of mels, float32 in natural log; see `spectrum`."""
        return self.inverse(self.spectrum(mel_BTM, mask_BT, dtype).bins, mask_BT)

    def spectrum(
        self,
        mel_BTM: tf.Tensor,
        mask_BT: tf.Tensor | None = None,
        dtype: tf.DType = tf.float32,
        *,
        cycles_before_B: tf.Tensor | float = 0.0,
        has_context: bool = False,
        is_compiled: bool = True,
    ) -> Spectrum:
        """Return each frame's spectrum.

        The mask is True for real frames. The blocks compute in `dtype`; the magnitudes of the mel are float32, its
        pitch is float64. `cycles_before_B` are those of `Spectrum.cycles` before the first frame. With `has_context`
        the first and the last `reach` frames are context and have no spectrum. Without `is_compiled`, for float32 that
        XLA does not compile, TensorFlow's own kernels are used where they are faster.
        """
        # The frames at both edges of a layer, whose neighbours the last layer did not see.
        edge, context = (TAPS // 2, self.reach) if has_context else (0, 0)
        is_real = tf.ones(mel_BTM.shape[:2], tf.bool) if mask_BT is None else mask_BT
        mask_BT1 = tf.cast(is_real, dtype)[..., None]
        # A frame that is not there is zero for the network.
        scaled_BTM = tf.where(is_real[..., None], to_network_scale(mel_BTM), 0.0)
        window_BTN = tf.concat(shifted(scaled_BTM, TAPS // 2), axis=-1)
        x_BTD = _without(edge, self.embed_norm(self.embed(tf.cast(window_BTN, dtype))) * mask_BT1)
        for block in self.blocks:
            mask_BT1 = _without(edge, mask_BT1)
            x_BTD = _without(edge, block(x_BTD, mask_BT1, is_compiled=is_compiled))
        pitch_hz_BT = _without(context, self.harmonic_phase.pitch_hz(scaled_BTM, is_real))
        cycles_BT = self.harmonic_phase.cycles(pitch_hz_BT, cycles_before_B)
        mask_BT1, mel_BTM = _without(edge, mask_BT1), _without(context, mel_BTM)
        change_BTK, phase_BTK = tf.split(tf.cast(self.to_spectrum(self.norm(x_BTD)), tf.float32), 2, axis=-1)
        log_magnitude_BTK = tf.clip_by_value(
            self.mel_magnitude(mel_BTM) + change_BTK, LEAST_LOG_MAGNITUDE, self.greatest_log_magnitude
        )
        phase_BTK += self.harmonic_phase(pitch_hz_BT, cycles_BT)
        magnitude_BTK = tf.exp(log_magnitude_BTK) * tf.cast(mask_BT1, tf.float32)
        bins_BTK = tf.complex(magnitude_BTK * tf.cos(phase_BTK), magnitude_BTK * tf.sin(phase_BTK))
        return Spectrum(bins_BTK, cycles_BT)

    def mel_magnitude(self, mel_BTM: tf.Tensor) -> tf.Tensor:
        """Return the natural logs of the magnitudes that the pseudo-inverse of the mel filters gives, [B, T, K]."""
        magnitude_BTK = tf.matmul(tf.exp(mel_BTM), tf.constant(self.inverse_filters))
        return tf.math.log(tf.maximum(magnitude_BTK, LEAST_MEL_MAGNITUDE))


def _without(frames: int, x_BTD: tf.Tensor) -> tf.Tensor:
    """Return a tensor without its first and last frames."""
    return x_BTD[:, frames:-frames] if frames else x_BTD
