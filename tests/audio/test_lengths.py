"""Lengths counted from a header are those of the decoded, resampled and analysed clip."""

import io

import numpy as np
import pytest
import soundfile
import soxr
from hypothesis import example, given, settings
from hypothesis import strategies as st

from xtts_pipeline.audio.lengths import mel_frame_count, resampled_length
from xtts_pipeline.audio.load import RESAMPLING_QUALITY, decode_wave
from xtts_pipeline.audio.mel import log_mel
from xtts_pipeline.config.schema import AudioConfig, LimitsConfig

RATES = st.sampled_from([4_000, 8_000, 11_025, 16_000, 22_050, 22_051, 24_000, 44_100, 47_999, 48_000, 192_000])
# Transforms that take no time: the count of frames depends on the hop alone.
HOPS = st.sampled_from([1, 7, 64, 255, 256])
# Both the shortest clips and the samples around a frame's edge.
SAMPLES = st.one_of(
    st.integers(1, 3_000),
    st.builds(lambda frames, off: max(1, 512 * frames + off), st.integers(1, 20), st.integers(-3, 3)),
)


def small_audio(sample_rate: int, hop: int) -> AudioConfig:
    return AudioConfig(
        sample_rate=sample_rate, fft_size=256, window_samples=256, hop_samples=hop, mel_bins=4, max_hz=sample_rate / 2
    )


@settings(max_examples=300)
@example(samples=3_000, sample_rate=24_000, to_rate=44_100, hop=1)  # 5,512.5 samples, of which soxr makes 5,512
@example(samples=480, sample_rate=24_000, to_rate=11_025, hop=1)
@given(samples=SAMPLES, sample_rate=RATES, to_rate=RATES, hop=HOPS)
def test_frames_counted_from_a_header_are_those_of_the_mel(
    samples: int, sample_rate: int, to_rate: int, hop: int
) -> None:
    audio = small_audio(to_rate, hop)
    wave = np.full(samples, 0.5, np.float32)
    resampled = soxr.resample(wave, sample_rate, to_rate, quality=RESAMPLING_QUALITY)
    assert len(resampled) == resampled_length(samples, sample_rate, to_rate)
    if len(resampled):
        assert len(log_mel(resampled, audio)) == mel_frame_count(samples, sample_rate, audio)


@pytest.mark.parametrize("samples", [1_023, 1_024, 1_025, 2_046, 2_047, 2_048, 2_049])
@pytest.mark.parametrize("sample_rate", [11_025, 22_050, 44_100])
def test_a_file_at_the_edge_of_a_frame_has_the_frames_of_its_header(samples: int, sample_rate: int) -> None:
    audio = small_audio(22_050, 256)
    file = io.BytesIO()
    soundfile.write(file, np.linspace(-0.5, 0.5, samples), sample_rate, format="WAV", subtype="PCM_16")
    header = soundfile.info(io.BytesIO(file.getvalue()))
    wave = decode_wave(file.getvalue(), audio, LimitsConfig(min_seconds=0.001), "clip.wav")
    assert len(log_mel(wave, audio)) == mel_frame_count(header.frames, header.samplerate, audio)


@given(frames=st.integers(1, 2_000), hop=HOPS)
def test_the_longest_wave_of_a_count_of_frames_ends_one_sample_before_the_next_frame(frames: int, hop: int) -> None:
    audio = small_audio(22_050, hop)
    longest = frames * hop - 1
    assert mel_frame_count(longest, 22_050, audio) == frames
    assert mel_frame_count(longest + 1, 22_050, audio) == frames + 1
