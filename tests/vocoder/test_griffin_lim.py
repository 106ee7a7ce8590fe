"""A wave that was made into a mel comes back from it, near enough to be understood."""

import librosa
import numpy as np
import pytest

from xtts_pipeline.audio.filterbank import mel_filterbank
from xtts_pipeline.audio.mel import log_mel
from xtts_pipeline.config.schema import AudioConfig
from xtts_pipeline.errors import AudioError
from xtts_pipeline.vocoder.griffin_lim import GriffinLim, mel_to_magnitudes

AUDIO = AudioConfig()


def voice(seconds: float = 1.5, audio: AudioConfig = AUDIO) -> np.ndarray:
    """Return harmonics of a gliding pitch under a moving envelope, with a little breath."""
    time = np.arange(round(seconds * audio.sample_rate)) / audio.sample_rate
    phase = 2 * np.pi * np.cumsum(120 + 40 * np.sin(2 * np.pi * 0.7 * time)) / audio.sample_rate
    wave = sum(np.sin(harmonic * phase) / harmonic for harmonic in range(1, 30))
    breath = np.random.default_rng(0).normal(0, 0.02, len(time))
    return (0.1 * (1 + np.sin(2 * np.pi * 3 * time)) * wave + breath * 0.1).astype(np.float32)


def convergence(wave: np.ndarray, target: np.ndarray) -> float:
    """Return the spectral convergence: how far the magnitudes are from the wanted ones, relative to these."""
    magnitudes = np.abs(librosa.stft(wave, n_fft=1_024, hop_length=256))
    wanted = np.abs(librosa.stft(target, n_fft=1_024, hop_length=256))[:, : magnitudes.shape[1]]
    return float(np.linalg.norm(magnitudes[:, : wanted.shape[1]] - wanted) / np.linalg.norm(wanted))


@pytest.mark.parametrize(
    "audio",
    [
        AUDIO,
        AudioConfig(hop_samples=200, window_samples=800),
        AudioConfig(sample_rate=16_000, fft_size=512, hop_samples=128, window_samples=512),
    ],
)
@pytest.mark.parametrize("frames", [2, 3, 33, 100])
def test_the_wave_has_a_hop_for_each_frame_but_one(audio, frames):
    mel = log_mel(voice(2.0, audio), audio)[:frames]
    wave = GriffinLim(audio, 3, 0.99)(mel)
    assert wave.dtype == np.float32
    assert wave.shape == ((frames - 1) * audio.hop_samples,)
    assert np.isfinite(wave).all()


@pytest.mark.parametrize("frames", [0, 1])
def test_fewer_than_two_frames_are_no_sound(frames):
    assert GriffinLim(AUDIO, 3, 0.99)(np.zeros((frames, 80), np.float32)).shape == (0,)


def test_copy_synthesis_beats_librosa_in_as_many_iterations():
    wave = voice()
    mel = log_mel(wave, AUDIO)
    ours = GriffinLim(AUDIO, 30, 0.99)(mel)
    theirs = librosa.feature.inverse.mel_to_audio(
        np.exp(mel).T, sr=AUDIO.sample_rate, n_fft=1_024, hop_length=256, power=1.0, n_iter=30, fmax=8_000.0
    )
    assert convergence(ours, wave) < convergence(theirs, wave)
    assert np.abs(log_mel(ours, AUDIO) - mel).mean() < 0.25


def test_more_iterations_come_nearer():
    mel = log_mel(voice(), AUDIO)
    errors = [np.abs(log_mel(GriffinLim(AUDIO, count, 0.99)(mel), AUDIO) - mel).mean() for count in (1, 8, 40)]
    assert errors == sorted(errors, reverse=True)


def test_the_same_frames_give_the_same_wave():
    mel = log_mel(voice(0.5), AUDIO)
    np.testing.assert_array_equal(GriffinLim(AUDIO, 5, 0.99)(mel), GriffinLim(AUDIO, 5, 0.99)(mel.copy()))


def test_float16_frames_from_a_cache_will_do():
    mel = log_mel(voice(0.5), AUDIO)
    exact, stored = GriffinLim(AUDIO, 20, 0.99)(mel), GriffinLim(AUDIO, 20, 0.99)(mel.astype(np.float16))
    assert convergence(stored, exact) < 0.1


def test_magnitudes_give_the_mel_back():
    mel = log_mel(voice(), AUDIO)
    magnitudes = mel_to_magnitudes(mel, AUDIO)
    assert magnitudes.min() >= 0
    again = np.log(np.maximum(magnitudes @ mel_filterbank(AUDIO)[:, : magnitudes.shape[1]].T, AUDIO.floor))
    assert np.abs(again - mel).mean() < 0.01


def test_silence_stays_silent():
    mel = np.full((50, 80), np.log(AUDIO.floor), np.float32)
    assert np.abs(GriffinLim(AUDIO, 10, 0.99)(mel)).max() < 1e-3


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e4])
def test_frames_that_are_no_log_mel_are_an_error(bad):
    mel = np.zeros((5, 80), np.float32)
    mel[2, 3] = bad
    with pytest.raises(AudioError, match="not finite"):
        GriffinLim(AUDIO, 3, 0.99)(mel)
