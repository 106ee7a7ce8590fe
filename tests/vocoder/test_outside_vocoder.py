"""The HiFi-GAN mel in docs/vocoder.md equals its published definition."""

import librosa
import numpy as np

from xtts_pipeline.audio.mel import log_mel
from xtts_pipeline.config.schema import AudioConfig

AUDIO = AudioConfig()
HALF_HOP = AUDIO.hop_samples // 2


def hifi_gan_mel(wave: np.ndarray) -> np.ndarray:
    """Return HiFi-GAN's log-mel magnitudes (Kong et al., 2020), [frames, 80]: not centred, reflected ends."""
    padded = np.pad(wave, (1_024 - 256) // 2, mode="reflect")
    spectrum = librosa.stft(padded, n_fft=1_024, hop_length=256, win_length=1_024, window="hann", center=False)
    magnitudes = np.sqrt(spectrum.real**2 + spectrum.imag**2 + 1e-9)
    filters = librosa.filters.mel(sr=22_050, n_fft=1_024, n_mels=80, fmin=0, fmax=8_000)
    return np.log(np.maximum(filters @ magnitudes, 1e-5)).T


def test_hifi_gan_sees_the_same_half_a_hop_later():
    wave = np.random.default_rng(0).normal(0, 0.1, 30_000).astype(np.float32)
    theirs, ours = hifi_gan_mel(wave), log_mel(wave[HALF_HOP:], AUDIO)
    assert len(theirs) == len(wave) // 256
    # Away from the ends, where they reflect and this package has zeros.
    np.testing.assert_allclose(theirs[2:-3], ours[2 : len(theirs) - 3], atol=1e-3)


def test_silence_is_the_same_floor():
    silence = np.zeros(5_000, np.float32)
    np.testing.assert_allclose(hifi_gan_mel(silence).max(), log_mel(silence, AUDIO).max(), atol=1e-6)
    np.testing.assert_allclose(log_mel(silence, AUDIO), np.log(1e-5), atol=1e-6)
