from pathlib import Path

import numpy as np
import pytest
import soundfile
import soxr
import tensorflow as tf

from tests.data.sounds import tone
from xtts_pipeline.audio.lengths import resampled_length
from xtts_pipeline.audio.load import load_wave
from xtts_pipeline.audio.mel import wave_to_mel as numpy_mel
from xtts_pipeline.cache.format.schema import RecordSpec
from xtts_pipeline.config.schema import AudioConfig, LimitsConfig
from xtts_pipeline.data.features import normalize_level, padded_mel, padded_tokens, read_wave, wave_to_mel
from xtts_pipeline.data.resample import Resampler, change_speed, quick_lengths

SPEC = RecordSpec(max_text_length=6, max_mel_frames=9, mel_bins=4, pad_value=-11.5)


@pytest.mark.parametrize("rate", [8_000, 16_000, 22_051, 44_100, 47_999, 48_000])
def test_resampling_equals_soxr(rate: int) -> None:
    noise = np.random.default_rng(rate).normal(0.0, 0.2, rate // 2 + 7).astype(np.float32)
    resample = tf.function(Resampler([rate, 22_050], 22_050), autograph=False)
    expected = soxr.resample(noise, rate, 22_050, quality="HQ")
    found = resample(noise, tf.constant(rate)).numpy()
    assert len(found) == len(expected) == resampled_length(len(noise), rate, 22_050)
    # soxr's first samples differ; after them both agree up to rounding, over the whole band.
    error = np.abs(found - expected)
    assert error[:16].max() < 0.05
    assert error[16:].max() < 2e-6
    np.testing.assert_array_equal(resample(noise, tf.constant(22_050)), noise)


# 480 and 24,480 samples at 48,000 Hz are a whole number and a half at 22,050 Hz, of which soxr drops the half.
@pytest.mark.parametrize("samples", [1, 2, 3, 480, 1_000, 12_345, 24_480])
def test_any_length_is_resampled_to_the_surveyed_length(samples: int) -> None:
    for rate in (8_000, 48_000):
        found = tf.function(Resampler([rate], 22_050), autograph=False)(tf.ones([samples]), tf.constant(rate))
        assert (
            len(found)
            == resampled_length(samples, rate, 22_050)
            == len(soxr.resample(np.ones(samples, np.float32), rate, 22_050))
        )


def test_an_unknown_rate_is_an_error() -> None:
    resample = tf.function(Resampler([8_000, 16_000], 8_000), autograph=False)
    with pytest.raises(tf.errors.InvalidArgumentError, match="another sample rate"):
        resample(tf.zeros([100]), tf.constant(11_025))


@pytest.mark.parametrize("speed", [0.8, 0.97, 1.0, 1.3])
def test_speed_changes_length_and_pitch_together(speed: float) -> None:
    wave = tone(1.0, 8_000, hz=500.0).astype(np.float32)
    found = change_speed(tf.constant(wave), tf.constant(speed, tf.float32)).numpy()
    assert 0.98 * len(wave) / speed <= len(found) <= len(wave) / speed
    peak_hz = np.abs(np.fft.rfft(found)).argmax() * 8_000 / len(found)
    assert peak_hz == pytest.approx(500.0 * len(wave) / len(found), rel=0.002)
    assert np.sqrt(np.mean(found**2)) == pytest.approx(np.sqrt(np.mean(wave**2)), rel=0.02)


def test_fast_lengths_are_dense_and_even() -> None:
    lengths = quick_lengths().astype(np.int64)
    long = lengths[lengths >= 10_000]
    assert (long[1:] / long[:-1] < 1.016).all()
    assert (lengths % 2 == 0).all()


SETTINGS = [
    AudioConfig(),
    AudioConfig(trim_db=20.0, trim_margin_seconds=0.02),
    AudioConfig(normalize="peak", normalize_to_db=-3.0, window_samples=800, hop_samples=200, min_hz=60.0),
    AudioConfig(normalize="rms", fft_size=2_000, window_samples=1_001, hop_samples=333, mel_bins=40),
    AudioConfig(normalize="rms", normalize_to_db=0.0),  # where the peak limits the gain
]


@pytest.mark.parametrize("audio", SETTINGS)
@pytest.mark.parametrize(("rate", "channels"), [(22_050, 1), (22_050, 3), (48_000, 2)])
def test_mels_equal_those_of_preprocessing(tmp_path: Path, audio: AudioConfig, rate: int, channels: int) -> None:
    path = tmp_path / "clip.wav"
    soundfile.write(path, np.stack([tone(0.7, rate, seed=seed) for seed in range(channels)], axis=1), rate, "PCM_16")
    expected = numpy_mel(load_wave(path, audio, LimitsConfig()), audio)
    resampler, end = Resampler([rate], audio.sample_rate), tf.constant(path.stat().st_size, tf.int64)

    def read(name: tf.Tensor) -> tf.Tensor:
        return wave_to_mel(read_wave(name, end, audio, resampler), audio)

    found = tf.function(read, autograph=False)(str(path)).numpy()
    assert found.shape == expected.shape
    error = np.abs(found - expected)
    assert error.max() < 0.02
    assert np.mean(error < (1e-3 if rate == 22_050 else 0.01)) >= 0.999


def test_normalised_silence_stays_silent() -> None:
    for manner in ("none", "peak", "rms"):
        np.testing.assert_array_equal(
            normalize_level(tf.zeros([50]), AudioConfig(normalize=manner)), np.zeros(50, np.float32)
        )


def test_records_are_padded_as_the_cache_pads_them() -> None:
    mel = padded_mel(tf.ones([5, 4]), SPEC)
    assert mel["mel"].dtype == tf.float16
    np.testing.assert_array_equal(
        mel["mel"], np.concatenate([np.ones((5, 4)), np.full((4, 4), -11.5)]).astype(np.float16)
    )
    assert mel["mel_length"].numpy() == 5
    tokens = padded_tokens(np.array([1, 7, 2], "<i4").tobytes(), SPEC)
    np.testing.assert_array_equal(tokens["tokens"], [1, 7, 2, 0, 0, 0])
    assert tokens["text_length"].numpy() == 3
    with pytest.raises(tf.errors.InvalidArgumentError):
        padded_mel(tf.ones([10, 4]), SPEC)
