"""A streamed wave loses and repeats no sample, has no clicks, and matches its frames."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.vocoder.voice import AUDIO, LAYOUTS, voice
from xtts_pipeline.audio.mel import log_mel
from xtts_pipeline.config.schema import AudioConfig
from xtts_pipeline.errors import AudioError
from xtts_pipeline.vocoder.griffin_lim import STREAM_BLOCK_FRAMES, GriffinLim
from xtts_pipeline.vocoder.streaming import BufferedStream, WaveStream, open_stream


def push_all(stream: WaveStream, mel: np.ndarray, sizes: list[int]) -> list[np.ndarray]:
    """Push the frames in pieces of the sizes, again and again, and return what came out, `finish` last."""
    pieces, start, turn = [], 0, 0
    while start < len(mel):
        size = sizes[turn % len(sizes)]
        pieces.append(stream.push(mel[start : start + size]))
        start, turn = start + size, turn + 1
    return [*pieces, stream.finish()]


# With hops of 32 samples 32 frames overlap, so the look-ahead is longer than a block.
@pytest.mark.parametrize("audio", [*LAYOUTS, AudioConfig(hop_samples=32)])
@pytest.mark.parametrize("frames", [0, 1, 2, 31, 32, 33, 64, 150])
def test_the_pieces_have_a_hop_for_each_frame_but_one(audio, frames):
    mel = log_mel(voice(2.0, audio), audio)[:frames]
    wave = np.concatenate(push_all(GriffinLim(audio, 2, 0.99).stream(), mel, [4]))
    assert wave.dtype == np.float32
    assert wave.shape == (max(0, frames - 1) * audio.hop_samples,)
    assert np.isfinite(wave).all()


@settings(max_examples=10, deadline=None)
@given(st.lists(st.integers(1, 70), min_size=1, max_size=5))
def test_the_wave_does_not_depend_on_how_the_frames_are_pushed(sizes):
    mel = log_mel(voice(1.5), AUDIO)
    vocoder = GriffinLim(AUDIO, 2, 0.99)
    pushed_at_once = np.concatenate(push_all(vocoder.stream(), mel, [len(mel)]))
    np.testing.assert_array_equal(np.concatenate(push_all(vocoder.stream(), mel, sizes)), pushed_at_once)


def test_the_first_sound_comes_with_the_first_block():
    mel = log_mel(voice(1.0), AUDIO)
    stream = GriffinLim(AUDIO, 2, 0.99).stream()
    assert stream.push(mel[: STREAM_BLOCK_FRAMES - 1]).size == 0
    first = stream.push(mel[STREAM_BLOCK_FRAMES - 1 : STREAM_BLOCK_FRAMES])
    assert first.size > 0.2 * AUDIO.sample_rate


def test_returned_samples_do_not_depend_on_later_frames():
    mel = log_mel(voice(2.0), AUDIO)
    vocoder = GriffinLim(AUDIO, 4, 0.99)
    first = vocoder.stream().push(mel[:64])
    other = np.concatenate([mel[:64], np.zeros((40, AUDIO.mel_bins), np.float32)])
    np.testing.assert_array_equal(np.concatenate(push_all(vocoder.stream(), other, [8]))[: first.size], first)


def test_the_streamed_mel_is_as_near_as_the_whole_one():
    mel = log_mel(voice(3.0), AUDIO)
    vocoder = GriffinLim(AUDIO, 30, 0.99)
    whole = np.abs(log_mel(vocoder(mel), AUDIO) - mel).mean()
    streamed = np.abs(log_mel(np.concatenate(push_all(vocoder.stream(), mel, [4])), AUDIO) - mel).mean()
    assert streamed < 1.1 * whole


def test_a_short_stream_equals_the_whole_wave():
    # All frames are searched at once, from the same phases.
    mel = log_mel(voice(1.0), AUDIO)[: STREAM_BLOCK_FRAMES - 1]
    vocoder = GriffinLim(AUDIO, 5, 0.99)
    np.testing.assert_array_equal(np.concatenate(push_all(vocoder.stream(), mel, [4])), vocoder(mel))


def bend_at_seams(pieces: list[np.ndarray]) -> float:
    """Return how sharply the wave bends where the pieces meet, the sharpest relative to the sharpest elsewhere."""
    wave = np.concatenate(pieces)
    bends = np.abs(np.diff(wave, n=3))
    seams = np.unique(np.cumsum([piece.size for piece in pieces])[:-1])
    seams = seams[(seams > 0) & (seams < len(wave))]
    assert len(seams) >= 10
    touched = (seams[:, None] + np.arange(-3, 0)).reshape(-1)
    return float(bends[touched].max() / np.delete(bends, touched).max())


def test_nothing_clicks_where_the_pieces_meet():
    time = np.arange(5 * AUDIO.sample_rate) / AUDIO.sample_rate
    # No pulses and no noise: a click would be the sharpest place of all.
    wave = sum(np.sin(2 * np.pi * hertz * time) for hertz in (220, 445, 930)) * (0.1 + 0.05 * np.sin(2 * np.pi * time))
    mel = log_mel(wave.astype(np.float32), AUDIO)
    vocoder = GriffinLim(AUDIO, 30, 0.99)
    glued = [vocoder(mel[start : start + 33]) for start in range(0, len(mel) - 33, 32)]
    assert bend_at_seams(glued) > 2  # so the measure hears a click
    assert bend_at_seams(push_all(vocoder.stream(), mel, [4])) < 1


def test_the_mel_is_as_near_at_the_seams_as_elsewhere():
    mel = log_mel(voice(5.0), AUDIO)
    pieces = push_all(GriffinLim(AUDIO, 30, 0.99).stream(), mel, [4])
    error = np.abs(log_mel(np.concatenate(pieces), AUDIO) - mel).mean(axis=1)
    seams = np.unique(np.cumsum([piece.size for piece in pieces])[:-1]) // AUDIO.hop_samples
    assert error[seams[seams > 0]].mean() < 1.2 * error.mean()


@pytest.mark.parametrize("bad", [np.nan, 1e4])
def test_frames_that_are_no_log_mel_are_an_error(bad):
    mel = np.zeros((40, 80), np.float32)
    mel[2, 3] = bad
    with pytest.raises(AudioError, match="not finite"):
        GriffinLim(AUDIO, 2, 0.99).stream().push(mel)


def test_a_streaming_vocoder_streams():
    mel = log_mel(voice(1.0), AUDIO)
    assert open_stream(GriffinLim(AUDIO, 2, 0.99)).push(mel).size > 0


def test_a_vocoder_without_streaming_is_buffered_to_the_end():
    def hum(log_mel: np.ndarray) -> np.ndarray:
        return np.repeat(log_mel[1:, 0], 256).astype(np.float32)

    mel = np.random.default_rng(0).normal(size=(50, 80)).astype(np.float32)
    stream = open_stream(hum)
    assert isinstance(stream, BufferedStream)
    pieces = push_all(stream, mel, [7])
    assert all(piece.size == 0 for piece in pieces[:-1])
    np.testing.assert_array_equal(pieces[-1], hum(mel))
    assert open_stream(hum).finish().size == 0
