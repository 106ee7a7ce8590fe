"""Fourier transforms as matrix products: equal to librosa's and scipy's, and inverse to each other."""

import librosa
import numpy as np
import pytest
import tensorflow as tf

from xtts_pipeline.audio.mel import hann_window
from xtts_pipeline.config.schema import AudioConfig
from xtts_pipeline.vocoder.fourier import InverseStft, Stft

# Hops that divide the window and hops that do not, and a window shorter than the transform.
AUDIO = [
    AudioConfig(),
    AudioConfig(fft_size=512, window_samples=400, hop_samples=160, sample_rate=16_000),
    AudioConfig(fft_size=64, window_samples=64, hop_samples=24, max_hz=4_000.0),
]


def waves(rows: int, samples: int) -> np.ndarray:
    return np.random.default_rng(0).uniform(-0.5, 0.5, (rows, samples)).astype(np.float32)


@pytest.mark.parametrize("audio", AUDIO)
def test_spectra_are_those_of_librosa(audio: AudioConfig) -> None:
    wave = waves(1, 20 * audio.hop_samples + audio.fft_size)
    expected = librosa.stft(
        wave[0], n_fft=audio.fft_size, hop_length=audio.hop_samples, window=hann_window(audio), center=False
    ).T

    real, imaginary = Stft(hann_window(audio), audio.hop_samples)(tf.constant(wave))

    found = real[0].numpy() + 1j * imaginary[0].numpy()
    # Only whole hops are framed, so librosa may have one frame more.
    np.testing.assert_allclose(found, expected[: len(found)], atol=2e-5)
    assert len(expected) - len(found) in (0, 1)


@pytest.mark.parametrize("audio", AUDIO)
def test_the_inverse_of_centred_spectra_is_the_wave(audio: AudioConfig) -> None:
    wave = waves(2, 12 * audio.hop_samples)
    spectrum = np.stack(
        [
            librosa.stft(
                row, n_fft=audio.fft_size, hop_length=audio.hop_samples, window=hann_window(audio), pad_mode="constant"
            ).T
            for row in wave
        ]
    )

    found = InverseStft(audio)(tf.constant(spectrum.real), tf.constant(spectrum.imag)).numpy()

    assert found.shape == wave.shape
    # Windows whose squares sum to nearly nothing determine a few samples at hops of almost a whole window.
    np.testing.assert_allclose(found, wave, atol=1e-5)


@pytest.mark.parametrize("audio", AUDIO)
def test_frames_by_the_fast_transform_are_those_of_the_matrix_product(audio: AudioConfig) -> None:
    random, inverse, shape = np.random.default_rng(0), InverseStft(audio), (2, 3, 1 + audio.fft_size // 2)
    # The imaginary parts of the first and the last bin have no effect.
    parts = [tf.constant(random.normal(size=shape), tf.float32) for _ in range(2)]
    expected, found = (inverse.windowed_frames(*parts, is_compiled=is_compiled) for is_compiled in (True, False))
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_the_gradient_of_a_magnitude_is_finite_in_silence() -> None:
    wave = tf.zeros([1, 4_096])
    with tf.GradientTape() as tape:
        tape.watch(wave)
        total = tf.reduce_sum(Stft(hann_window(AudioConfig()), 256).magnitude(wave))
    assert np.isfinite(tape.gradient(total, wave).numpy()).all()
