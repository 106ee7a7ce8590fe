"""Clips with changed voices, in training with references."""

import numpy as np
import tensorflow as tf

from tests.model.conftest import AUDIO as TINY_AUDIO
from tests.model.conftest import SPEC, random_batch
from xtts_pipeline.audio.mel import wave_to_mel
from xtts_pipeline.config.schema import AudioConfig
from xtts_pipeline.model.batch import References
from xtts_pipeline.model.layers import Dropout
from xtts_pipeline.training.acoustic.voice_change import FACTORS, VoiceChange

AUDIO = AudioConfig(mel_bins=128, fft_size=2048)


def vowel(pitch_hz: float, formant_hz: float) -> np.ndarray:
    """Return the mel of one second of harmonics around a formant, [T, M]."""
    time = np.arange(AUDIO.sample_rate) / AUDIO.sample_rate
    hz = np.arange(pitch_hz, AUDIO.max_hz, pitch_hz)
    level = 0.1 * np.exp(-(((hz - formant_hz) / (0.5 * formant_hz)) ** 2)) + 0.001
    wave = (level[:, None] * np.sin(2 * np.pi * hz[:, None] * time)).sum(axis=0)
    return wave_to_mel(wave.astype(np.float32), AUDIO)


def test_pitch_and_formants_move_by_the_factor() -> None:
    change = VoiceChange(AUDIO, largest=0.16)
    mel = vowel(200.0, 1_000.0)
    frames = slice(10, 60)
    for number, factor in ((0, 1 / 1.16), (FACTORS - 1, 1.16)):
        changed = change.change(tf.constant(mel[None]), tf.constant([number]))[0].numpy()[frames]
        expected = vowel(200.0 * factor, 1_000.0 * factor)[frames]
        assert np.abs(changed - expected).mean() < 0.5 * np.abs(mel[frames] - expected).mean()


def test_the_middle_factor_changes_nothing() -> None:
    mel = tf.constant(vowel(150.0, 800.0)[None].astype(np.float16))
    np.testing.assert_array_equal(VoiceChange(AUDIO, largest=0.16).change(mel, tf.constant([FACTORS // 2])), mel)


def test_a_clip_and_its_reference_change_alike_and_a_row_without_reference_does_not() -> None:
    batch = random_batch(SPEC, (9, 4, 6), (8, 8, 8))
    reference = References(batch.mel[:, :8], tf.constant([8, 0, 8]))
    changed, heard = VoiceChange(TINY_AUDIO, 0.16)(batch, reference, Dropout.for_step(0, tf.constant(3)))
    np.testing.assert_array_equal(changed.mel[:, :8], heard.mel)
    np.testing.assert_array_equal(heard.length, reference.length)
    is_changed = (changed.mel != batch.mel).numpy().any(axis=(1, 2))
    np.testing.assert_array_equal(is_changed, [True, False, True])
    # Silence after a clip stays silent.
    np.testing.assert_array_equal(changed.mel[:, 8:], batch.mel[:, 8:])


def test_each_step_draws_other_factors_and_the_same_step_the_same() -> None:
    batch = random_batch(SPEC, (9, 4, 6), (8, 8, 8))
    reference = References(batch.mel[:, :8], tf.constant([8, 8, 8]))

    def mel_of(step: int) -> np.ndarray:
        changed, _ = VoiceChange(TINY_AUDIO, 0.16)(batch, reference, Dropout.for_step(0, tf.constant(step)))
        mel: np.ndarray = changed.mel.numpy()
        return mel

    np.testing.assert_array_equal(mel_of(3), mel_of(3))
    assert (mel_of(3) != mel_of(4)).any()
