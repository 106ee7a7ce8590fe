"""`GriffinLim` in TensorFlow operations with static shapes, for a graph that runs without this package."""

import numpy as np
import tensorflow as tf

from xtts_pipeline.audio.mel import hann_window
from xtts_pipeline.config.schema import AudioConfig
from xtts_pipeline.vocoder.fourier import InverseStft, Stft, between_centres, masked_gain, overlap_add
from xtts_pipeline.vocoder.griffin_lim import MAGNITUDE_UPDATES, TINY, GriffinLim, inversion_plan


def griffin_lim_wave(mel_BTM: tf.Tensor, mask_BT: tf.Tensor, vocoder: GriffinLim) -> tf.Tensor:
    """Return what `vocoder` makes of each row's real frames, which come first, then zero: [B, (frames - 1) * hop].

    Each iteration amplifies differences of rounding: after 20 the wave is within 0.003 of the vocoder's, as the wave
    of a mel that differs in its last bits.
    """
    audio = vocoder.audio
    forward, inverse = Stft(hann_window(audio), audio.hop_samples), InverseStft(audio)
    magnitude_BTK = _magnitudes(mel_BTM, audio) * tf.cast(mask_BT, tf.float32)[..., None]
    gain_BHN = masked_gain(mask_BT, audio)
    bins = magnitude_BTK.shape[-1]
    middle = np.where(np.arange(bins) % 2, np.float32(-1), np.float32(1))
    # In this form, as in librosa, the momentum acts on the target phases alone.
    momentum = tf.constant(-vocoder.momentum / (1 + vocoder.momentum), tf.complex64)

    def add_frames(spectrum_BTK: tf.Tensor) -> tf.Tensor:
        """Return the overlap-added windowed frames, [B, T + overlap - 1, hop_samples]; higher bins are zero."""
        higher = [[0, 0], [0, 0], [0, 1 + audio.fft_size // 2 - bins]]
        return overlap_add(inverse.windowed_frames(tf.pad(spectrum_BTK, higher)))

    def update(number: tf.Tensor, sums_BHN: tf.Tensor, last_BTK: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        wave_BN = tf.reshape(sums_BHN * gain_BHN, [sums_BHN.shape[0], -1])
        spectrum_BTK = forward(wave_BN)[..., :bins]
        direction_BTK = last_BTK * momentum + spectrum_BTK
        scale_BTK = tf.cast(magnitude_BTK / (tf.abs(direction_BTK) + TINY), tf.complex64)
        return number + 1, add_frames(direction_BTK * scale_BTK), spectrum_BTK

    start = tf.cast(magnitude_BTK * middle, tf.complex64)
    _, sums_BHN, _ = tf.while_loop(
        lambda number, *_: number < vocoder.iterations,
        update,
        (tf.constant(0), add_frames(start), tf.zeros_like(start)),
    )
    return between_centres(sums_BHN * gain_BHN, audio)


def _magnitudes(mel_BTM: tf.Tensor, audio: AudioConfig) -> tf.Tensor:
    """Return `mel_to_magnitudes` of each row, [B, T, K]."""
    filters, spread = inversion_plan(audio)
    amplitude_BTM = tf.exp(mel_BTM)
    magnitude_BTK = tf.matmul(amplitude_BTM / (filters.sum(axis=1) + TINY), spread)
    for _ in range(MAGNITUDE_UPDATES):
        found_BTM = tf.matmul(magnitude_BTK, filters, transpose_b=True)
        magnitude_BTK *= tf.matmul(amplitude_BTM / (found_BTM + TINY), spread)
    return magnitude_BTK
