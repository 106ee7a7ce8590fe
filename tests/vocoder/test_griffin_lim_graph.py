"""Griffin-Lim in TensorFlow operations makes the wave of `GriffinLim`, row by row."""

import numpy as np
import pytest
import tensorflow as tf

from tests.vocoder.voice import LAYOUTS, voice
from xtts_pipeline.audio.mel import log_mel
from xtts_pipeline.config.schema import AudioConfig
from xtts_pipeline.vocoder.griffin_lim import GriffinLim
from xtts_pipeline.vocoder.griffin_lim_graph import griffin_lim_wave

FRAMES = 70


def waves_of(mel: np.ndarray, lengths: list[int], vocoder: GriffinLim) -> np.ndarray:
    mask = np.arange(FRAMES) < np.array(lengths)[:, None]
    return griffin_lim_wave(tf.constant(mel), tf.constant(mask), vocoder).numpy()


@pytest.mark.parametrize("audio", LAYOUTS)
def test_each_row_is_the_wave_of_its_frames_alone_then_zero(audio: AudioConfig) -> None:
    """The frames after a row's last one are loud: nothing of them is heard."""
    mel, lengths, vocoder = (
        log_mel(voice(1.5, audio), audio)[:FRAMES],
        [FRAMES, 33, 2, 1, 0],
        # Each iteration amplifies differences of rounding; five reach the tolerance on some processors.
        GriffinLim(audio, 2, 0.99),
    )
    waves = waves_of(np.stack([mel] * len(lengths)), lengths, vocoder)

    assert waves.shape == (len(lengths), (FRAMES - 1) * audio.hop_samples)
    for wave, length in zip(waves, lengths, strict=True):
        expected = vocoder(mel[:length])
        np.testing.assert_allclose(wave[: len(expected)], expected, atol=1e-4)
        assert not wave[len(expected) :].any()


def test_twenty_iterations_stay_near() -> None:
    """Griffin-Lim amplifies differences of rounding: after 20 iterations they are over those of a few."""
    audio = LAYOUTS[0]
    mel, vocoder = log_mel(voice(), audio)[:FRAMES], GriffinLim(audio, 20, 0.99)
    expected = vocoder(mel)
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(waves_of(mel[None], [FRAMES], vocoder)[0], expected, atol=1e-3)
