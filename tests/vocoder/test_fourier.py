"""Short-time Fourier transforms: equal to librosa's and scipy's, and inverse to each other."""

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

    found = Stft(hann_window(audio), audio.hop_samples)(tf.constant(wave))[0].numpy()

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

    found = InverseStft(audio)(tf.constant(spectrum)).numpy()

    assert found.shape == wave.shape
    # Windows whose squares sum to nearly nothing determine a few samples at hops of almost a whole window.
    np.testing.assert_allclose(found, wave, atol=1e-5)


@pytest.mark.parametrize("audio", AUDIO)
def test_xla_makes_the_same_spectra_waves_and_gradients(audio: AudioConfig) -> None:
    forward, inverse = Stft(hann_window(audio), audio.hop_samples), InverseStft(audio)

    def there_and_back(wave: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(wave)
            made = inverse(forward(wave))
            magnitude = forward.magnitude(made)
        return made, magnitude, tape.gradient(magnitude, wave)

    wave = tf.constant(waves(2, 12 * audio.hop_samples + audio.fft_size))
    expected = there_and_back(wave)
    for found, known in zip(tf.function(there_and_back, jit_compile=True)(wave), expected, strict=True):
        np.testing.assert_allclose(found, known, atol=1e-3)


def test_the_gradient_is_that_of_small_changes() -> None:
    transform = Stft(hann_window(AUDIO[2]), AUDIO[2].hop_samples)

    def total(wave: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(tf.square(transform.magnitude(wave)))

    wave, direction = waves(2, 240)
    with tf.GradientTape() as tape:
        tape.watch(start := tf.constant(wave[None]))
        at_start = total(start)
    gradient = tape.gradient(at_start, start)[0].numpy()
    more, less = (total(tf.constant((wave + step * direction)[None])) for step in (1e-2, -1e-2))
    assert float(more - less) == pytest.approx(2e-2 * float(gradient @ direction), rel=1e-3)


def test_the_gradient_of_a_magnitude_is_finite_in_silence() -> None:
    wave = tf.zeros([1, 4_096])
    with tf.GradientTape() as tape:
        tape.watch(wave)
        total = tf.reduce_sum(Stft(hann_window(AudioConfig()), 256).magnitude(wave))
    assert np.isfinite(tape.gradient(total, wave).numpy()).all()
