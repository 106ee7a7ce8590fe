"""What one clip's sound is measured as."""

import numpy as np
import pytest

from xtts_pipeline.audio.mel import log_mel
from xtts_pipeline.config.schema import AudioConfig
from xtts_pipeline.quality.sound import SoundMeasures, measure_clipping, measure_sound

AUDIO = AudioConfig()
RATE = AUDIO.sample_rate


def tone(seconds: float) -> np.ndarray:
    times = np.arange(round(seconds * RATE)) / RATE
    return sum(np.sin(2 * np.pi * hertz * times) for hertz in (150, 450, 1200, 3000)).astype(np.float32) / 16


def measure(wave: np.ndarray) -> SoundMeasures:
    return measure_sound(log_mel(wave, AUDIO), wave, AUDIO, measure_clipping(wave))


def test_silences_are_found_at_both_ends_and_between_to_a_frame():
    parts = [
        np.zeros(round(0.3 * RATE)),
        tone(1.0),
        np.zeros(round(0.7 * RATE)),
        tone(0.8),
        np.zeros(round(0.5 * RATE)),
    ]

    found = measure(np.concatenate(parts).astype(np.float32))

    assert found.leading_silence == pytest.approx(0.3, abs=0.04)
    assert found.longest_pause == pytest.approx(0.7, abs=0.06)
    assert found.trailing_silence == pytest.approx(0.5, abs=0.04)
    assert found.seconds == pytest.approx(3.3)


def test_noise_lowers_the_ratio_of_signal_to_noise_and_does_not_hide_the_silence():
    draw = np.random.default_rng(0)
    clean = np.concatenate([tone(1.0), np.zeros(RATE), tone(1.0)])
    found = [measure((clean + draw.normal(0, level, len(clean))).astype(np.float32)) for level in (1e-4, 1e-3, 1e-2)]

    ratios = [measured.snr_db for measured in found]
    # Ten times the noise is 20 dB less.
    assert ratios[0] - ratios[1] == pytest.approx(20, abs=1.5)
    assert ratios[1] - ratios[2] == pytest.approx(20, abs=1.5)
    assert [round(measured.longest_pause, 1) for measured in found] == [1.0, 1.0, 1.0]


def test_clipping_is_found_although_the_clip_was_made_quieter_afterwards():
    wave = np.random.default_rng(0).normal(0.0, 0.1, RATE).astype(np.float32)
    loud = np.clip(5 * wave, -1.0, 1.0)

    assert measure_clipping(wave).share < 0.001
    assert measure_clipping(loud).share == pytest.approx(0.05, abs=0.01)
    assert measure_clipping(loud * 0.5).share == measure_clipping(loud).share
    assert measure_clipping(loud * 0.5).peak_db == pytest.approx(-6.02, abs=0.01)


def test_the_level_is_that_of_the_speech_however_long_the_silence_is():
    speech = tone(1.0)
    rms_db = 20 * np.log10(np.sqrt(np.mean(np.square(speech))))

    for silence in (0.0, 3.0, 24.0):
        found = measure(np.concatenate([speech, np.zeros(round(silence * RATE), np.float32)]))
        assert found.level_db == pytest.approx(rms_db, abs=0.6)
        assert found.trailing_silence == pytest.approx(silence, abs=0.04)


def test_without_a_wave_there_is_neither_a_level_nor_clipping():
    found = measure_sound(log_mel(tone(1.0), AUDIO), None, AUDIO)

    assert (found.level_db, found.clipping) == (None, None)
    assert found.seconds == pytest.approx(1.0, abs=0.02)
