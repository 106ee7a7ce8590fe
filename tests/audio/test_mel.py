"""Log-mels are librosa's, to the last digits that float32 has; trimming drops frames and changes none."""

import librosa
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xtts_pipeline.audio.filterbank import describe_short_window, describe_silent_filters, mel_filterbank
from xtts_pipeline.audio.mel import BLOCK_FRAMES, log_mel, wave_to_mel
from xtts_pipeline.config.schema import AudioConfig
from xtts_pipeline.errors import AudioError, Reason
from xtts_pipeline.perf.benchmark.librosa_mel import log_mel_of

SETTINGS = [
    AudioConfig(),
    AudioConfig(
        sample_rate=16_000, fft_size=512, hop_samples=160, window_samples=400, mel_bins=40, max_hz=7_600.0, min_hz=80.0
    ),
    AudioConfig(sample_rate=48_000, fft_size=2_048, hop_samples=600, window_samples=2_047, max_hz=24_000.0, floor=1e-3),
]


def noise(samples: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 0.1, samples).astype(np.float32)


@pytest.mark.parametrize("audio", SETTINGS)
def test_filters_are_librosas(audio):
    theirs = librosa.filters.mel(
        sr=audio.sample_rate, n_fft=audio.fft_size, n_mels=audio.mel_bins, fmin=audio.min_hz, fmax=audio.max_hz
    )  # fmt: skip
    np.testing.assert_allclose(mel_filterbank(audio), theirs, atol=1e-8)


def test_filters_without_a_frequency_are_named_and_those_of_the_defaults_have_one():
    assert describe_silent_filters(AudioConfig()) is None
    assert describe_silent_filters(AudioConfig(max_hz=500.0)) == (
        "audio.mel_bins=80 from 0 to 500 Hz with fft_size=1024: 35 between 0 and 78 of the mel filters hold no FFT bin "
        "and are always silent; use fewer mel_bins, a higher max_hz or a larger fft_size"
    )
    silent = AudioConfig(mel_bins=400)
    mel = log_mel(np.random.default_rng(0).normal(size=22_050).astype(np.float32), silent)
    assert f"{int((mel == np.float32(np.log(np.float32(silent.floor)))).all(axis=0).sum())} between" in str(
        describe_silent_filters(silent)
    )


def test_a_window_too_short_for_low_voices_is_named_and_those_of_25_ms_are_long_enough():
    for audio in (AudioConfig(), AudioConfig(sample_rate=16_000, window_samples=400), AudioConfig(sample_rate=32_000)):
        assert describe_short_window(audio) is None
    assert describe_short_window(AudioConfig(sample_rate=44_100)) == (
        "audio.window_samples=1024 at 44100 Hz: the window is too short for low voices, under 86 Hz; "
        "raise fft_size and window_samples"
    )


@pytest.mark.parametrize("audio", SETTINGS)
@pytest.mark.filterwarnings("ignore:n_fft=.* is too large:UserWarning")
@pytest.mark.parametrize("frames", [0.4, 3.7, 100.2, BLOCK_FRAMES - 1, BLOCK_FRAMES])
def test_log_mel_is_librosas(audio, frames):
    wave = noise(round(frames * audio.hop_samples))
    mel = log_mel(wave, audio)
    assert mel.dtype == np.float32
    assert mel.shape == (1 + len(wave) // audio.hop_samples, audio.mel_bins)
    np.testing.assert_allclose(mel, log_mel_of(wave.astype(np.float64), audio), atol=1e-4)


def test_silence_is_the_floor():
    audio = AudioConfig()
    np.testing.assert_allclose(log_mel(np.zeros(5_000, np.float32), audio), np.log(audio.floor), rtol=1e-6)


@settings(max_examples=25, deadline=None)
@given(samples=st.integers(1, 30_000), gain=st.floats(0.5, 2.0))
def test_a_louder_wave_is_a_higher_mel(samples, gain):
    audio = AudioConfig(floor=1e-10)
    wave = noise(samples)
    np.testing.assert_allclose(log_mel(wave * np.float32(gain), audio) - log_mel(wave, audio), np.log(gain), atol=2e-3)


def test_a_shift_by_a_hop_is_a_shift_by_a_frame():
    audio = AudioConfig()
    wave = noise(20_000)
    shifted = np.concatenate([np.zeros(audio.hop_samples, np.float32), wave])
    np.testing.assert_allclose(log_mel(shifted, audio)[5:70], log_mel(wave, audio)[4:69], atol=1e-4)


def test_a_wave_that_is_empty_or_not_finite_is_an_error():
    with pytest.raises(AudioError) as raised:
        log_mel(np.zeros(0, np.float32), AudioConfig())
    assert raised.value.reason == Reason.AUDIO_EMPTY
    wave = noise(5_000)
    wave[2_000] = np.nan
    with pytest.raises(AudioError) as raised:
        log_mel(wave, AudioConfig())
    assert raised.value.reason == Reason.AUDIO_NOT_FINITE


def speech_between_silence(before: float, after: float, audio: AudioConfig) -> np.ndarray:
    """Return a second of noise with near-silence around it."""
    parts = [
        noise(round(before * audio.sample_rate), 1) * 1e-4,
        noise(audio.sample_rate),
        noise(round(after * audio.sample_rate), 2) * 1e-4,
    ]
    return np.concatenate(parts)


@pytest.mark.parametrize(("before", "after"), [(0.5, 1.0), (0.0, 0.7), (0.3, 0.0), (0.0, 0.0)])
@pytest.mark.parametrize("margin", [0.0, 0.1])
def test_trimming_cuts_where_librosa_does(before, after, margin):
    audio = AudioConfig(trim_db=40.0, trim_margin_seconds=margin)
    wave = speech_between_silence(before, after, audio)
    trimmed = wave_to_mel(wave, audio)
    _, (start, end) = librosa.effects.trim(wave, top_db=40.0, frame_length=audio.fft_size, hop_length=audio.hop_samples)
    margin_frames = margin * audio.sample_rate / audio.hop_samples
    frames = len(wave) / audio.hop_samples
    first = max(0, start / audio.hop_samples - margin_frames)
    last = min(frames, end / audio.hop_samples + margin_frames)
    # librosa weighs the samples of a frame alike, the window does not: they part by two frames at each end.
    assert len(trimmed) == pytest.approx(last - first, abs=4)


def test_frames_that_trimming_keeps_are_those_of_the_whole_clip():
    audio = AudioConfig(trim_db=40.0)
    wave = speech_between_silence(0.5, 0.5, audio)
    whole, trimmed = log_mel(wave, audio), wave_to_mel(wave, audio)
    assert len(trimmed) < len(whole)
    starts = [
        start
        for start in range(len(whole) - len(trimmed) + 1)
        if np.array_equal(whole[start : start + len(trimmed)], trimmed)
    ]
    assert len(starts) == 1


def test_without_trimming_the_mel_is_whole():
    wave = speech_between_silence(0.2, 0.2, AudioConfig())
    np.testing.assert_array_equal(wave_to_mel(wave, AudioConfig()), log_mel(wave, AudioConfig()))


def test_digital_silence_all_through_is_kept():
    audio = AudioConfig(trim_db=40.0)
    assert len(wave_to_mel(np.zeros(5_000, np.float32), audio)) == 1 + 5_000 // audio.hop_samples
