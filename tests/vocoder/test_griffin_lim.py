"""A wave is reconstructed from its mel, near the original."""

import librosa
import numpy as np
import pytest

from tests.vocoder.voice import AUDIO, LAYOUTS, voice
from xtts_pipeline.audio.filterbank import mel_filterbank
from xtts_pipeline.audio.mel import log_mel
from xtts_pipeline.errors import AudioError
from xtts_pipeline.vocoder.griffin_lim import GriffinLim, mel_to_magnitudes


def convergence(wave: np.ndarray, target: np.ndarray) -> float:
    """Return the spectral convergence: how far the magnitudes are from the wanted ones, relative to these."""
    magnitudes = np.abs(librosa.stft(wave, n_fft=1_024, hop_length=256))
    wanted = np.abs(librosa.stft(target, n_fft=1_024, hop_length=256))[:, : magnitudes.shape[1]]
    return float(np.linalg.norm(magnitudes[:, : wanted.shape[1]] - wanted) / np.linalg.norm(wanted))


@pytest.mark.parametrize("audio", LAYOUTS)
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


def test_more_iterations_reduce_the_error():
    mel = log_mel(voice(), AUDIO)
    errors = [np.abs(log_mel(GriffinLim(AUDIO, count, 0.99)(mel), AUDIO) - mel).mean() for count in (1, 8, 40)]
    assert errors == sorted(errors, reverse=True)


def test_the_same_frames_give_the_same_wave():
    mel = log_mel(voice(0.5), AUDIO)
    np.testing.assert_array_equal(GriffinLim(AUDIO, 5, 0.99)(mel), GriffinLim(AUDIO, 5, 0.99)(mel.copy()))


def test_float16_frames_of_a_cache_are_accepted():
    mel = log_mel(voice(0.5), AUDIO)
    exact, stored = GriffinLim(AUDIO, 20, 0.99)(mel), GriffinLim(AUDIO, 20, 0.99)(mel.astype(np.float16))
    assert convergence(stored, exact) < 0.1


def test_magnitudes_have_the_given_mel():
    mel = log_mel(voice(), AUDIO)
    magnitudes = mel_to_magnitudes(mel, AUDIO)
    assert magnitudes.min() >= 0
    again = np.log(np.maximum(magnitudes @ mel_filterbank(AUDIO)[:, : magnitudes.shape[1]].T, AUDIO.floor))
    assert np.abs(again - mel).mean() < 0.01


def test_silence_stays_silent():
    mel = np.full((50, 80), np.log(AUDIO.floor), np.float32)
    assert np.abs(GriffinLim(AUDIO, 10, 0.99)(mel)).max() < 1e-3


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e4, 85.0])
def test_frames_that_are_no_log_mel_are_an_error(bad):
    mel = np.zeros((5, 80), np.float32)
    mel[2, 3] = bad
    with pytest.raises(AudioError, match="not finite"):
        GriffinLim(AUDIO, 3, 0.99)(mel)
