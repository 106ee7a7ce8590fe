"""Losses of the vocoder, each a mean over a batch of waves, float32 scalars."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from xtts_pipeline.audio.filterbank import mel_filterbank
from xtts_pipeline.audio.mel import hann_window
from xtts_pipeline.config.schema import AudioConfig
from xtts_pipeline.vocoder.discriminators import Judgement
from xtts_pipeline.vocoder.fourier import Stft, periodic_hann

# Below this magnitude no listener hears a difference; the log of anything quieter would be noise.
LEAST_MAGNITUDE = 1e-5


class MelLoss:
    """The mean absolute difference of natural-log mels over all frequencies, up to half of the sample rate."""

    def __init__(self, audio: AudioConfig) -> None:
        full = audio.model_copy(update={"min_hz": 0.0, "max_hz": audio.sample_rate / 2})
        self._transform = Stft(hann_window(audio), audio.hop_samples)
        self._filters = np.ascontiguousarray(mel_filterbank(full).T)

    def __call__(self, wave_BN: tf.Tensor, truth_BN: tf.Tensor) -> tf.Tensor:
        """Return the loss of waves [B, N] against recordings."""
        return tf.reduce_mean(tf.abs(self._log_mel(wave_BN) - self._log_mel(truth_BN)))

    def _log_mel(self, wave_BN: tf.Tensor) -> tf.Tensor:
        mel_BTM = tf.matmul(self._transform.magnitude(wave_BN), tf.constant(self._filters))
        return tf.math.log(tf.maximum(mel_BTM, LEAST_MAGNITUDE))


class SpectralLoss:
    """Spectral convergence and log magnitudes at several resolutions (Yamamoto, Song and Kim 2020)."""

    def __init__(self, fft_sizes: Sequence[int]) -> None:
        self._transforms = [Stft(periodic_hann(size), size // 4) for size in fft_sizes]

    def __call__(self, wave_BN: tf.Tensor, truth_BN: tf.Tensor) -> tf.Tensor:
        """Return the loss of waves [B, N] against recordings."""
        losses = []
        for transform in self._transforms:
            found, true = transform.magnitude(wave_BN), transform.magnitude(truth_BN)
            difference = tf.norm(true - found, axis=[1, 2]) / (tf.norm(true, axis=[1, 2]) + 1e-3)
            logs = tf.math.log(tf.maximum(true, 1e-3)) - tf.math.log(tf.maximum(found, 1e-3))
            losses.append(tf.reduce_mean(difference) + tf.reduce_mean(tf.abs(logs)))
        return tf.add_n(losses) / len(losses)


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
    """Return the mean absolute difference of the discriminators' features, relative to those of recordings."""
    losses = [
        tf.reduce_mean(tf.abs(of_true - of_made)) / (tf.reduce_mean(tf.abs(of_true)) + 1e-6)
        for (_, true_features), (_, made_features) in zip(true, made, strict=True)
        for of_true, of_made in zip(true_features, made_features, strict=True)
    ]
    return tf.add_n(losses) / len(losses)
