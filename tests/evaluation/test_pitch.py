"""Pitch and voicing along a path."""

import numpy as np
import pytest

from xtts_pipeline.config.schema import AudioConfig
from xtts_pipeline.evaluation.pitch import (
    find_pitch,
    pitch_error_cents,
    pitch_range_ratio,
    voiced_share_difference,
    voicing_error,
)

AUDIO = AudioConfig(sample_rate=8_000, fft_size=256, window_samples=256, hop_samples=128, mel_bins=8, max_hz=4_000.0)
UNVOICED = np.nan


def straight(frames: int) -> np.ndarray:
    return np.stack([np.arange(frames)] * 2, axis=1)


def tone(hz: float, seconds: float = 0.6) -> np.ndarray:
    """Return a sum of harmonics, as a voice has them."""
    time = np.arange(round(seconds * AUDIO.sample_rate)) / AUDIO.sample_rate
    return (0.2 * sum(np.sin(2 * np.pi * hz * number * time) / number for number in (1, 2, 3))).astype(np.float32)


@pytest.mark.parametrize("hz", [110.0, 220.0])
def test_the_pitch_of_a_tone_is_found_at_every_frame_of_its_mel(hz: float):
    wave = tone(hz)

    pitch_hz = find_pitch(wave, AUDIO)

    assert len(pitch_hz) == 1 + len(wave) // AUDIO.hop_samples
    middle = pitch_hz[5:-5]
    assert np.isfinite(middle).all()
    assert middle == pytest.approx(hz, rel=0.01)


@pytest.mark.parametrize(("samples", "frames"), [(0, 1), (127, 1), (1_280, 11)])
def test_silence_is_unvoiced(samples: int, frames: int):
    pitch_hz = find_pitch(np.zeros(samples, np.float32), AUDIO)

    assert len(pitch_hz) == frames
    assert np.isnan(pitch_hz).all()


def test_the_pitch_error_is_the_value_worked_out_by_hand():
    true = np.array([100.0, 100.0, 200.0, UNVOICED])
    spoken = np.array([200.0, 100.0, 200.0, 150.0])

    # One octave, nothing, nothing; the last pair is voiced on one side only: sqrt(1200^2 / 3)
    assert pitch_error_cents(true, spoken, straight(4)) == pytest.approx(692.82, abs=0.01)


def test_the_pitch_error_is_the_same_for_a_low_voice_and_a_high_one():
    low, bent = np.array([80.0, 100.0, 90.0]), np.array([85.0, 95.0, 91.0])

    assert pitch_error_cents(3 * low, 3 * bent, straight(3)) == pytest.approx(pitch_error_cents(low, bent, straight(3)))


def test_without_a_pair_of_voiced_frames_there_is_no_pitch_error():
    assert pitch_error_cents(np.array([100.0, UNVOICED]), np.array([UNVOICED, 100.0]), straight(2)) is None


def test_the_voicing_error_is_the_share_of_pairs_that_disagree():
    true = np.array([100.0, UNVOICED, 100.0, UNVOICED])
    spoken = np.array([90.0, UNVOICED, UNVOICED, UNVOICED])

    assert voicing_error(true, spoken, straight(4)) == 0.25
    assert voicing_error(spoken, true, straight(4)) == 0.25
    assert voicing_error(true, true, straight(4)) == 0.0


def test_figures_are_taken_along_the_path_not_frame_by_frame():
    true = np.array([100.0, 200.0])
    spoken = np.array([100.0, 100.0, 200.0])
    path = np.array([[0, 0], [0, 1], [1, 2]])

    assert pitch_error_cents(true, spoken, path) == 0.0
    assert voicing_error(true, spoken, path) == 0.0


def test_a_wave_shorter_than_its_mel_keeps_its_last_value():
    assert voicing_error(np.array([100.0, 100.0]), np.array([100.0]), straight(2)) == 0.0


def test_monotonous_speech_has_a_smaller_range_of_pitch_than_the_truth() -> None:
    octave = 100.0 * 2 ** np.linspace(0.0, 1.0, 101)
    half, higher = 100.0 * 2 ** np.linspace(0.0, 0.5, 101), 2 * octave
    with_gaps = np.insert(octave, 50, [np.nan] * 20)
    assert pitch_range_ratio(octave, half) == pytest.approx(0.5)
    assert pitch_range_ratio(half, octave) == pytest.approx(2.0)
    assert pitch_range_ratio(with_gaps, higher) == pytest.approx(1.0)


def test_a_few_octave_errors_do_not_change_the_range_of_pitch() -> None:
    true = 100.0 * 2 ** np.linspace(0.0, 0.5, 101)
    wrong = np.append(true, [400.0, 50.0])
    assert pitch_range_ratio(true, wrong) == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize(
    ("true", "spoken", "ratio"),
    [
        ([UNVOICED], [100.0], None),
        ([100.0, 200.0], [UNVOICED], None),
        ([100.0], [100.0], None),
        ([100.0, 200.0], [100.0], 0.0),
    ],
    ids=["silent truth", "silent speech", "level truth", "level speech"],
)
def test_without_a_range_of_the_truth_there_is_no_ratio(
    true: list[float], spoken: list[float], ratio: float | None
) -> None:
    assert pitch_range_ratio(np.array(true), np.array(spoken)) == ratio


def test_hoarse_speech_has_fewer_voiced_frames_than_the_truth() -> None:
    true, hoarse = np.full(4, 100.0), np.array([100.0, np.nan, np.nan, 100.0, np.nan])
    assert voiced_share_difference(true, hoarse) == pytest.approx(-0.6)
    assert voiced_share_difference(hoarse, true) == pytest.approx(0.6)
