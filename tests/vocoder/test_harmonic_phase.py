"""The phases of harmonics, by the sound of a generator whose network adds nothing."""

import numpy as np
import pytest
import tensorflow as tf

from xtts_pipeline.audio.mel import log_mel
from xtts_pipeline.config.schema import AudioConfig
from xtts_pipeline.evaluation.pitch import find_pitch
from xtts_pipeline.model.batch import to_network_scale
from xtts_pipeline.vocoder.generator import Generator
from xtts_pipeline.vocoder.harmonic_phase import HarmonicPhase

# A longer window and narrower bins than the default, for low voices. Frames come at 86.1 Hz.
AUDIO = AudioConfig(mel_bins=128, fft_size=2048, window_samples=1536)
REACH = 21


def buzz(hz: np.ndarray, odd_level: float = 1.0) -> np.ndarray:
    """Return harmonics of a pitch, float32 [samples], that fall by 6 dB an octave; the odd ones have this level."""
    turns = np.cumsum(hz) / AUDIO.sample_rate
    number = np.arange(1, 40)[:, None]
    levels = np.where(number % 2, odd_level, 1.0) / number
    wave: np.ndarray = 0.1 * (levels * np.sin(2 * np.pi * number * turns)).sum(axis=0)
    return wave.astype(np.float32)


def find_pitch_hz(mel: np.ndarray, phase: HarmonicPhase, missing: int = 0) -> np.ndarray:
    """Return the pitch of a mel's frames, with this many frames that are not there on each side."""
    scaled = np.pad(to_network_scale(tf.constant(mel)), [(missing, missing), (0, 0)])
    is_real = np.pad(np.ones(len(mel), bool), missing)
    found_hz: np.ndarray = phase.pitch_hz(tf.constant(scaled[None]), tf.constant(is_real[None])).numpy()
    return found_hz[0, missing : missing + len(mel)]


@pytest.fixture(scope="module")
def generator() -> Generator:
    """A generator with the magnitudes and the phases of the mel alone."""
    made = Generator(AUDIO, width=8, blocks=1)
    made.to_spectrum.weight.assign(tf.zeros_like(made.to_spectrum.weight))
    return made


@pytest.mark.parametrize("hz", [70.0, 77.0, 95.0, 210.0])
def test_a_voice_near_the_rate_of_frames_keeps_its_pitch(generator: Generator, hz: float) -> None:
    mel = log_mel(buzz(np.full(AUDIO.sample_rate, hz)), AUDIO)
    found_hz = find_pitch(generator(tf.constant(mel[None]))[0].numpy(), AUDIO)[10:-10]
    assert np.isfinite(found_hz).mean() > 0.95
    assert np.nanmedian(found_hz) == pytest.approx(hz, rel=0.02)


def test_a_pitch_that_glides_is_followed(generator: Generator) -> None:
    hz = np.linspace(75.0, 130.0, 2 * AUDIO.sample_rate)
    mel = log_mel(buzz(hz), AUDIO)
    found_hz = find_pitch(generator(tf.constant(mel[None]))[0].numpy(), AUDIO)[10:-10]
    true_hz = hz[:: AUDIO.hop_samples][10:][: len(found_hz)]
    assert np.nanmedian(np.abs(found_hz / true_hz - 1.0)) < 0.02


def test_mels_too_coarse_for_low_pitches_have_no_phases_of_harmonics() -> None:
    assert len(HarmonicPhase(AudioConfig(), REACH).harmonic_hz) > 0
    coarse = AudioConfig(sample_rate=16_000, mel_bins=40, max_hz=8_000.0)
    phase = HarmonicPhase(coarse, REACH)(
        tf.constant([[100.0, 150.0]], tf.float64), tf.constant([[0.3, 0.6]], tf.float64)
    )
    np.testing.assert_allclose(phase, np.broadcast_to(np.pi * (np.arange(513) % 2), (1, 2, 513)), rtol=1e-6)


@pytest.mark.parametrize(("rate", "has_phases"), [(32_000, True), (44_100, False), (48_000, False)])
def test_a_window_too_short_for_low_pitches_gives_no_phases_of_harmonics(rate: int, has_phases: bool) -> None:
    audio = AudioConfig(sample_rate=rate)
    assert (len(HarmonicPhase(audio, REACH).harmonic_hz) > 0) == has_phases


def test_the_pitch_of_a_frame_is_nearer_than_the_candidates_are() -> None:
    mel = log_mel(buzz(np.full(AUDIO.sample_rate, 101.0)), AUDIO)
    found_hz = find_pitch_hz(mel, HarmonicPhase(AUDIO, REACH))[10:-10]
    assert found_hz == pytest.approx(np.full(len(found_hz), 101.0), rel=0.01)


def test_a_frame_whose_odd_harmonics_are_hardly_there_has_the_pitch_of_its_context() -> None:
    clear, weak = buzz(np.full(AUDIO.sample_rate, 100.0)), buzz(np.full(AUDIO.sample_rate // 10, 100.0), odd_level=0.05)
    phase = HarmonicPhase(AUDIO, REACH)

    def find_hz(*waves: np.ndarray) -> np.ndarray:
        return find_pitch_hz(log_mel(np.concatenate(waves), AUDIO), phase)

    assert find_hz(*10 * [weak])[10:-10] == pytest.approx(200.0, rel=0.02)
    assert find_hz(clear, weak, clear)[10:-10] == pytest.approx(100.0, rel=0.02)


def test_the_pitch_does_not_depend_on_whether_the_mel_ends_or_frames_that_are_not_there_follow() -> None:
    audio = AudioConfig()
    time = np.arange(audio.sample_rate // 4) / audio.sample_rate
    # Hardly a voice: its pitch is unsure, so that little decides on it.
    noise = np.random.default_rng(0).normal(0.0, 0.01, len(time))
    mel = log_mel((0.3 * np.sin(2 * np.pi * 110.0 * time) + noise).astype(np.float32), audio)
    phase = HarmonicPhase(audio, reach=9)
    np.testing.assert_allclose(find_pitch_hz(mel, phase, missing=9), find_pitch_hz(mel, phase), rtol=1e-12)
