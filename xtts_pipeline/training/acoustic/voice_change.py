"""Change the voices of clips: move all frequencies of their mels by one factor, the pitch and the formants alike.

After vocal tract length perturbation (Jaitly and Hinton 2013). A network of few speakers so learns from more voices.
"""

import numpy as np
import tensorflow as tf

from xtts_pipeline.audio.filterbank import bin_to_hz, hz_to_bin
from xtts_pipeline.config.schema import AudioConfig
from xtts_pipeline.model.batch import Batch, References
from xtts_pipeline.model.layers import Dropout

# Factors between the lowest and the highest, evenly spaced in their logarithms. Odd, so that one of them is 1.
FACTORS = 61
# Beyond the numbers of the network's layers, so that it draws otherwise than they do.
_SALT = 1 << 20


class VoiceChange:
    """Interpolates log mels between bins; above the highest frequency it repeats the last bin.

    largest: the factors lie between 1 / (1 + largest) and 1 + largest.
    """

    def __init__(self, audio: AudioConfig, largest: float) -> None:
        hz_M = bin_to_hz(np.arange(audio.mel_bins), audio)
        factor_N = (1.0 + largest) ** np.linspace(-1.0, 1.0, FACTORS)
        source_NM = np.vectorize(lambda hz: hz_to_bin(hz, audio))(hz_M[None, :] / factor_N[:, None])
        self._source_NM = np.clip(source_NM, 0.0, audio.mel_bins - 1).astype(np.float32)

    def __call__(self, batch: Batch, reference: References, dropout: Dropout) -> tuple[Batch, References]:
        """Return clips and their references with changed voices, by one random factor for each row.

        A row without a reference keeps its voice, which is that of a name.
        """
        share_B = dropout.draw(_SALT, batch.mel.shape[0])
        number_B = tf.where(reference.length > 0, tf.cast(share_B * FACTORS, tf.int32), FACTORS // 2)
        return (
            batch._replace(mel=self.change(batch.mel, number_B)),
            reference._replace(mel=self.change(reference.mel, number_B)),
        )

    def change(self, mel_BTM: tf.Tensor, number_B: tf.Tensor) -> tf.Tensor:
        """Return natural-log mels with the factor of this number from the lowest, int32 [B], of the type they have."""
        source_B1M = tf.gather(self._source_NM, number_B)[:, None, :]
        bin_1M1 = tf.range(self._source_NM.shape[1], dtype=tf.float32)[None, :, None]
        weight_BMM = tf.maximum(1.0 - tf.abs(source_B1M - bin_1M1), 0.0)
        return tf.cast(tf.matmul(tf.cast(mel_BTM, tf.float32), weight_BMM), mel_BTM.dtype)
