"""The trained vocoder: its generator, and whole and streamed waves."""

import numpy as np
import pytest
import tensorflow as tf

from xtts_pipeline.audio.filterbank import mel_filterbank
from xtts_pipeline.audio.mel import hann_window, log_mel
from xtts_pipeline.config.schema import AudioConfig
from xtts_pipeline.errors import AudioError
from xtts_pipeline.vocoder.generator import Generator
from xtts_pipeline.vocoder.neural import FIRST_FRAMES, STREAM_BLOCK_FRAMES, WHOLE_BLOCK_FRAMES, NeuralVocoder

AUDIO = AudioConfig(sample_rate=8_000, fft_size=256, window_samples=256, hop_samples=64, mel_bins=20, max_hz=4_000.0)


@pytest.fixture(scope="module")
def vocoder() -> NeuralVocoder:
    """A vocoder of random weights."""
    return NeuralVocoder(Generator(AUDIO, width=32, blocks=2, seed=1))


def mels(frames: int, audio: AudioConfig = AUDIO) -> np.ndarray:
    return np.random.default_rng(0).uniform(-8.0, 0.0, (frames, audio.mel_bins)).astype(np.float32)


@pytest.mark.parametrize("frames", [0, 1, 2, 7, STREAM_BLOCK_FRAMES, WHOLE_BLOCK_FRAMES + 5])
@pytest.mark.parametrize("piece", [1, 20, 1_000])
def test_the_streamed_wave_is_the_whole_wave(vocoder: NeuralVocoder, frames: int, piece: int) -> None:
    mel, stream = mels(frames), vocoder.stream()

    pieces = [stream.push(mel[start : start + piece]) for start in range(0, frames, piece)]
    streamed = np.concatenate([*pieces, stream.finish()])

    whole = vocoder(mel)
    assert whole.shape == (max(0, frames - 1) * AUDIO.hop_samples,)
    np.testing.assert_allclose(streamed, whole, atol=1e-5)


def test_silence_in_a_stream_does_not_change_the_phases_after_it() -> None:
    """The default settings have phases of harmonics, and all bins of a silent frame are equal but for rounding."""
    audio = AudioConfig()
    vocoder = NeuralVocoder(Generator(audio, width=32, blocks=2, seed=1))
    mel = mels(2 * STREAM_BLOCK_FRAMES, audio) - 3.0
    mel[20:60] = mel[100:103] = np.log(audio.floor)
    assert len(vocoder.generator.harmonic_phase.harmonic_hz) > 0
    stream = vocoder.stream()
    pieces = [stream.push(mel[start : start + 7]) for start in range(0, len(mel), 7)]
    streamed, whole = np.concatenate([*pieces, stream.finish()]), vocoder(mel)
    np.testing.assert_allclose(streamed, whole, atol=1e-5)
    np.testing.assert_allclose(vocoder.generator(tf.constant(mel[None]))[0], whole, atol=1e-5)


def test_blocks_give_the_wave_of_the_network_on_the_whole_mel(vocoder: NeuralVocoder) -> None:
    mel = mels(100)
    whole = vocoder.generator(tf.constant(mel[None]))[0].numpy()
    np.testing.assert_allclose(vocoder(mel), whole, atol=1e-5)


def test_a_masked_row_is_the_wave_of_its_frames_alone_then_zero(vocoder: NeuralVocoder) -> None:
    mel, lengths = mels(60), [60, 40, 2, 1, 0]
    mask = np.arange(60) < np.array(lengths)[:, None]
    waves = vocoder.generator(tf.constant(np.stack([mel] * len(lengths))), tf.constant(mask)).numpy()
    for wave, length in zip(waves, lengths, strict=True):
        expected = vocoder(mel[:length])
        np.testing.assert_allclose(wave[: len(expected)], expected, atol=1e-5)
        assert not wave[len(expected) :].any()


def test_a_stream_starts_with_few_frames_and_doubles_up_to_a_block(vocoder: NeuralVocoder) -> None:
    stream, reach = vocoder.stream(), vocoder.generator.reach
    assert len(stream.push(mels(FIRST_FRAMES + reach - 1))) == 0
    pushed = [len(stream.push(mels(1))) // AUDIO.hop_samples for _ in range(2 * STREAM_BLOCK_FRAMES)]
    # Half a window is before the centre of frame 0.
    half = AUDIO.fft_size // 2 // AUDIO.hop_samples
    assert [frames for frames in pushed if frames] == [FIRST_FRAMES - half, 4, 8, 16, 32, 64, 128]


def test_an_untrained_generator_has_the_magnitudes_of_the_mel() -> None:
    """The blocks add to the mel's pseudo-inverse, so speech has its spectrum before any training."""
    time = np.arange(8_000) / AUDIO.sample_rate
    tone = (0.3 * np.sin(2 * np.pi * 1_000 * time)).astype(np.float32)
    generator = Generator(AUDIO, width=32, blocks=2)
    magnitude = np.exp(generator.mel_magnitude(tf.constant(log_mel(tone, AUDIO)[None]))[0].numpy())
    assert magnitude.mean(axis=0).argmax() * AUDIO.sample_rate / AUDIO.fft_size == pytest.approx(1_000, abs=100)


def test_mel_filters_that_are_nearly_equal_have_a_small_inverse() -> None:
    narrow = AudioConfig(sample_rate=24_000, mel_bins=128, max_hz=7_600.0)
    assert np.abs(Generator(narrow, width=8, blocks=1).inverse_filters).max() < 100.0
    whole = np.linalg.pinv(mel_filterbank(AudioConfig())).T
    np.testing.assert_array_equal(Generator(AudioConfig(), width=8, blocks=1).inverse_filters, whole)


@pytest.mark.parametrize("samples", [1_024, 2_048, 4_096])
def test_no_window_cuts_a_sine_at_full_scale(samples: int) -> None:
    audio = AudioConfig(fft_size=samples, window_samples=samples)
    generator = Generator(audio, width=8, blocks=1)
    generator.to_spectrum.bias.assign(tf.fill([2 * generator.bins], 30.0))
    greatest = np.abs(generator.spectrum(tf.constant(mels(2, audio)[None])).bins.numpy()).max()
    frame = np.sin(np.pi / 2 * np.arange(samples)) * hann_window(audio)
    assert 1.5 < greatest / np.abs(np.fft.rfft(frame)).max() < 1.6


@pytest.mark.parametrize("bad", [np.nan, 90.0])
def test_frames_that_are_no_log_mel_are_refused(vocoder: NeuralVocoder, bad: float) -> None:
    with pytest.raises(AudioError, match="not finite"):
        vocoder(np.full((3, AUDIO.mel_bins), bad, np.float32))
