"""Short-time Fourier transforms with static shapes. TensorFlow operations only.

Frames are cut and added by reshapes, and XLA has a fast Fourier transform: with its gradient it takes 0.2 to 0.6 of
the time of products with constant matrices (`benchmarks/fourier.py`, 2,048 to 512 samples).

Shape key: B batch, T frames, N samples, K bins of a spectrum, H hops, O the hops of one frame.
"""

import numpy as np
import tensorflow as tf

from xtts_pipeline.audio.mel import hann_window
from xtts_pipeline.config.schema import AudioConfig
from xtts_pipeline.vocoder.griffin_lim import TINY, overlap_gain, window_squares

# Keeps the gradient of a magnitude finite where the spectrum is zero.
TINY_POWER = 1e-12


class Stft:
    """The spectra of a wave's whole frames; no frame reaches over an end of the wave.

    `window` is float32 [fft_size].
    """

    def __init__(self, window: np.ndarray, hop_samples: int) -> None:
        self.hop_samples, self.overlap = hop_samples, -(-len(window) // hop_samples)
        self._window = window

    def __call__(self, wave_BN: tf.Tensor) -> tf.Tensor:
        """Return the spectra, complex64 [B, frames, 1 + fft_size // 2].

        There are N // hop_samples - overlap + 1 frames; samples after the last whole hop are not used.
        """
        rows, samples = wave_BN.shape
        hops = samples // self.hop_samples
        frames = hops - self.overlap + 1
        hops_BHN = tf.reshape(wave_BN[:, : hops * self.hop_samples], [rows, hops, self.hop_samples])
        frames_BTN = tf.concat([hops_BHN[:, first : first + frames] for first in range(self.overlap)], axis=-1)
        return tf.signal.rfft(frames_BTN[..., : len(self._window)] * self._window)

    def magnitude(self, wave_BN: tf.Tensor) -> tf.Tensor:
        """Return the magnitudes, [B, frames, 1 + fft_size // 2]."""
        spectrum_BTK = self(wave_BN)
        power_BTK = tf.square(tf.math.real(spectrum_BTK)) + tf.square(tf.math.imag(spectrum_BTK))
        return tf.sqrt(power_BTK + TINY_POWER)


class InverseStft:
    """The wave of centred frames, as `log_mel` analyses them: frame 0 is centred at the first sample."""

    def __init__(self, audio: AudioConfig) -> None:
        self.audio = audio
        self._window = hann_window(audio)
        # Zeros that complete the last hop.
        self._rest = audio.overlap * audio.hop_samples - audio.fft_size

    def __call__(self, spectrum_BTK: tf.Tensor, mask_BT: tf.Tensor | None = None) -> tf.Tensor:
        """Return [B, (frames - 1) * hop_samples] of complex64 spectra; the mask is True for real frames, at the start.

        The wave of a row is that of its real frames alone, then zero.
        """
        sums_BHN = overlap_add(self.windowed_frames(spectrum_BTK))
        if mask_BT is None:
            gain = overlap_gain(0, spectrum_BTK.shape[1], self.audio, is_last=True)
        else:
            gain = masked_gain(mask_BT, self.audio)
        return between_centres(sums_BHN * gain, self.audio)

    def windowed_frames(self, spectrum_BTK: tf.Tensor) -> tf.Tensor:
        """Return the windowed samples of each frame of complex64 spectra, in hops: [B, T, overlap, hop_samples]."""
        samples_BTN = tf.signal.irfft(spectrum_BTK, [self.audio.fft_size]) * self._window
        samples_BTN = tf.pad(samples_BTN, [[0, 0], [0, 0], [0, self._rest]])
        return tf.reshape(samples_BTN, [spectrum_BTK.shape[0], -1, self.audio.overlap, self.audio.hop_samples])


def overlap_add(hops_BTON: tf.Tensor) -> tf.Tensor:
    """Return the sum of overlapping frames that are cut into hops, [B, frames + overlap - 1, hop_samples]."""
    overlap = hops_BTON.shape[2]
    return tf.add_n(
        [tf.pad(hops_BTON[:, :, shift], [[0, 0], [shift, overlap - 1 - shift], [0, 0]]) for shift in range(overlap)]
    )


def masked_gain(mask_BT: tf.Tensor, audio: AudioConfig) -> tf.Tensor:
    """Return the `overlap_gain` of each row's real frames, which come first, float32 [B, hops, hop_samples]."""
    summed_BHN = overlap_add(tf.cast(mask_BT, tf.float32)[..., None, None] * window_squares(audio))
    shape = summed_BHN.shape[1:]
    sample_HN = np.arange(shape.num_elements(), dtype=np.int32).reshape(shape) - audio.fft_size // 2
    length_B11 = tf.reduce_sum(tf.cast(mask_BT, tf.int32), axis=1)[:, None, None]
    is_between = (sample_HN >= 0) & (sample_HN < (length_B11 - 1) * audio.hop_samples)
    return tf.where(is_between & (summed_BHN > TINY), 1.0 / tf.maximum(summed_BHN, TINY), 0.0)


def between_centres(wave_BHN: tf.Tensor, audio: AudioConfig) -> tf.Tensor:
    """Return the samples from the centre of the first frame to that of the last, [B, (frames - 1) * hop_samples]."""
    rows, hops, hop_samples = wave_BHN.shape
    frames = hops + 1 - audio.overlap
    start = audio.fft_size // 2
    return tf.reshape(wave_BHN, [rows, hops * hop_samples])[:, start : start + (frames - 1) * hop_samples]
