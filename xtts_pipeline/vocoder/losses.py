"""Losses of the vocoder, float32: of each row of a batch against its recording, or a mean over the batch."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from xtts_pipeline.audio.filterbank import mel_filterbank
from xtts_pipeline.audio.mel import hann_window, periodic_hann
from xtts_pipeline.config.schema import AudioConfig
from xtts_pipeline.vocoder.discriminators import Judgement
from xtts_pipeline.vocoder.fourier import Stft

# Below this magnitude no listener hears a difference; the log of anything quieter would be noise.
LEAST_MAGNITUDE = 1e-5
# Keeps the feature loss of a silent recording finite.
LEAST_FEATURE = 1e-3


class MelLoss:
    """The mean absolute difference of natural-log mels over all frequencies, up to half of the sample rate."""

    def __init__(self, audio: AudioConfig) -> None:
        full = audio.model_copy(update={"min_hz": 0.0, "max_hz": audio.sample_rate / 2})
        self._transform = Stft(hann_window(audio), audio.hop_samples)
        self._filters = np.ascontiguousarray(mel_filterbank(full).T)

    def __call__(self, wave_BN: tf.Tensor, truth_BN: tf.Tensor) -> tf.Tensor:
        """Return the loss of each wave against its recording, [B]; both are [B, N]."""
        return tf.reduce_mean(tf.abs(self._log_mel(wave_BN) - self._log_mel(truth_BN)), axis=[1, 2])

    def _log_mel(self, wave_BN: tf.Tensor) -> tf.Tensor:
        mel_BTM = tf.matmul(self._transform.magnitude(wave_BN), tf.constant(self._filters))
        return tf.math.log(tf.maximum(mel_BTM, LEAST_MAGNITUDE))


class SpectralLoss:
    """Spectral convergence and log magnitudes at several resolutions (Yamamoto, Song and Kim 2020)."""

    def __init__(self, fft_sizes: Sequence[int]) -> None:
        self._transforms = [Stft(periodic_hann(size), size // 4) for size in fft_sizes]

    def __call__(self, wave_BN: tf.Tensor, truth_BN: tf.Tensor) -> tf.Tensor:
        """Return the loss of each wave against its recording, [B]; both are [B, N]."""
        losses = [tf.zeros([wave_BN.shape[0]])]
        for transform in self._transforms:
            found, true = transform.magnitude(wave_BN), transform.magnitude(truth_BN)
            difference = tf.norm(true - found, axis=[1, 2]) / (tf.norm(true, axis=[1, 2]) + 1e-3)
            logs = tf.math.log(tf.maximum(true, 1e-3)) - tf.math.log(tf.maximum(found, 1e-3))
            losses.append(difference + tf.reduce_mean(tf.abs(logs), axis=[1, 2]))
        return tf.add_n(losses) / max(len(self._transforms), 1)


def discriminator_loss(true: Sequence[Judgement], made: Sequence[Judgement]) -> tf.Tensor:
    """Return the hinge loss of telling recordings from generated waves, a mean over the discriminators."""
    losses = [
        tf.reduce_mean(tf.nn.relu(1.0 - of_true)) + tf.reduce_mean(tf.nn.relu(1.0 + of_made))
        for (of_true, _), (of_made, _) in zip(true, made, strict=True)
    ]
    return tf.add_n(losses) / len(losses)


def adversarial_loss(made: Sequence[Judgement]) -> tf.Tensor:
    """Return the hinge loss of passing for a recording, a mean over the discriminators."""
    return tf.add_n([tf.reduce_mean(tf.nn.relu(1.0 - judged)) for judged, _ in made]) / len(made)


def feature_loss(true: Sequence[Judgement], made: Sequence[Judgement]) -> tf.Tensor:
    """Return the mean absolute difference of the discriminators' features, relative to those of each recording."""
    losses = []
    for (_, true_features), (_, made_features) in zip(true, made, strict=True):
        for of_true, of_made in zip(true_features, made_features, strict=True):
            axes = list(range(1, of_true.shape.rank))
            difference_B = tf.reduce_mean(tf.abs(of_true - of_made), axis=axes)
            losses.append(tf.reduce_mean(difference_B / (tf.reduce_mean(tf.abs(of_true), axis=axes) + LEAST_FEATURE)))
    return tf.add_n(losses) / len(losses)
