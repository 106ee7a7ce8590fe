"""Change the voices of clips: move all frequencies of their mels by one factor, the pitch and the formants alike.

After vocal tract length perturbation (Jaitly and Hinton 2013). A network of few speakers so learns from more voices.
"""

import numpy as np
import tensorflow as tf

from xtts_pipeline.audio.filterbank import bin_hz, bin_of_hz
from xtts_pipeline.config.schema import AudioConfig

# Factors between the lowest and the highest, evenly spaced in their logarithms. Odd, so that one of them is 1.
FACTORS = 61


class VoiceChange:
    """Interpolates log mels between bins; above the highest frequency it repeats the last bin.

    largest: the factors lie between 1 / (1 + largest) and 1 + largest.
    """

    def __init__(self, audio: AudioConfig, largest: float) -> None:
        hz_M = bin_hz(np.arange(audio.mel_bins), audio)
        factor_N = (1.0 + largest) ** np.linspace(-1.0, 1.0, FACTORS)
        source_NM = np.vectorize(lambda hz: bin_of_hz(hz, audio))(hz_M[None, :] / factor_N[:, None])
        self._source_NM = np.clip(source_NM, 0.0, audio.mel_bins - 1).astype(np.float32)

    def matrices(self, share_B: tf.Tensor, is_changed_B: tf.Tensor) -> tf.Tensor:
        """Return what to multiply each row's mels by, float32 [B, M, M]; shares in [0, 1) choose the factor."""
        factor_B = tf.where(is_changed_B, tf.cast(share_B * FACTORS, tf.int32), FACTORS // 2)
        source_B1M = tf.gather(self._source_NM, factor_B)[:, None, :]
        bin_1M1 = tf.range(self._source_NM.shape[1], dtype=tf.float32)[None, :, None]
        return tf.maximum(1.0 - tf.abs(source_B1M - bin_1M1), 0.0)


def change_voices(mel_BTM: tf.Tensor, matrix_BMM: tf.Tensor) -> tf.Tensor:
    """Return natural-log mels with their voices changed, of the type they have."""
    return tf.cast(tf.matmul(tf.cast(mel_BTM, tf.float32), matrix_BMM), mel_BTM.dtype)
