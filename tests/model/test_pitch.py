import numpy as np
import pytest
import tensorflow as tf

from xtts_pipeline.audio.mel import log_mel
from xtts_pipeline.config.schema import AudioConfig
from xtts_pipeline.model.batch import to_network_scale
from xtts_pipeline.model.network import Network
from xtts_pipeline.model.pitch import REFERENCE_HZ, PitchFinder

AUDIO = AudioConfig()
FRAMES_PER_TOKEN = 10


def find(wave: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return voicing and pitch in Hz of tokens of ten frames each, without those at both ends."""
    mel = log_mel(wave.astype(np.float32), AUDIO)
    mel = mel[: len(mel) // FRAMES_PER_TOKEN * FRAMES_PER_TOKEN]
    posterior = np.repeat(np.eye(len(mel) // FRAMES_PER_TOKEN, dtype=np.float32), FRAMES_PER_TOKEN, axis=0)
    pitch = PitchFinder(AUDIO)(to_network_scale(tf.constant(mel[None])), tf.constant(posterior[None]))
    voicing, octaves = pitch.voicing.numpy()[0, 1:-1], pitch.octaves.numpy()[0, 1:-1]
    return voicing, REFERENCE_HZ * 2.0 ** (octaves / voicing)


def buzz(hz: float, seconds: float = 1.0) -> np.ndarray:
    """Return a tone of harmonics that fall by 6 dB an octave."""
    time = np.arange(int(seconds * AUDIO.sample_rate)) / AUDIO.sample_rate
    harmonics = np.arange(1, int(8_000 / hz))
    return 0.1 * (np.sin(2 * np.pi * hz * harmonics[:, None] * time) / harmonics[:, None]).sum(axis=0)


@pytest.mark.parametrize("hz", [90.0, 120.0, 173.0, 240.0, 390.0])
def test_the_pitch_of_harmonics_is_found_within_three_percent(hz: float) -> None:
    voicing, found_hz = find(buzz(hz))
    assert voicing.min() > 0.9
    assert found_hz == pytest.approx(np.full(len(found_hz), hz), rel=0.03)


def test_noise_is_not_voiced() -> None:
    voicing, _ = find(0.1 * np.random.default_rng(1).standard_normal(AUDIO.sample_rate))
    assert voicing.max() < 0.5
    assert np.median(voicing) < 0.2


def test_a_token_without_frames_has_a_pitch_that_is_a_number(network: Network) -> None:
    bins = network.mel_bins
    pitch = network.pitch_finder(tf.zeros([1, 4, bins]), tf.zeros([1, 4, 2]))
    assert np.isfinite(pitch.voicing).all()
    assert np.isfinite(pitch.octaves).all()
