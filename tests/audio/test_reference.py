from pathlib import Path

import numpy as np
import pytest

from xtts_pipeline.audio.reference import MAX_WINDOWS, PAUSE_DEPTH, cut_windows, load_reference
from xtts_pipeline.config.schema import AudioConfig
from xtts_pipeline.errors import AudioError


def numbered_mel(frames: int) -> np.ndarray:
    """Return a mel whose frames are all as loud and say which they are."""
    mel = np.zeros((frames, 3), np.float32)
    mel[:, 0] = 1e-6 * np.arange(frames)
    return mel


def starts_of(windows: np.ndarray, lengths: np.ndarray) -> list[int]:
    return [round(float(window[0, 0]) * 1e6) for window, length in zip(windows, lengths, strict=True) if length]


@pytest.mark.parametrize(
    ("frames", "starts"),
    [
        (4, [0]),
        (10, [0]),
        (11, [0, 1]),
        (25, [0, 8, 15]),
        (80, [0, 10, 20, 30, 40, 50, 60, 70]),
        (710, list(range(0, 701, 100))),
    ],
)
def test_windows_are_spread_evenly_from_end_to_end(frames: int, starts: list[int]) -> None:
    windows, lengths = cut_windows(numbered_mel(frames), 10)
    assert windows.shape == (MAX_WINDOWS, 10, 3)
    assert starts_of(windows, lengths) == starts
    assert set(lengths[lengths > 0]) == {min(frames, 10)}


def test_windows_that_are_pauses_are_left_out() -> None:
    mel = numbered_mel(80)
    mel[20:40] -= PAUSE_DEPTH + 1
    assert starts_of(*cut_windows(mel, 10)) == [0, 10, 40, 50, 60, 70]


def test_where_every_window_is_a_pause_the_loudest_place_is_heard() -> None:
    mel = numbered_mel(1_000)
    mel -= PAUSE_DEPTH + 1
    mel[75] += PAUSE_DEPTH + 1
    windows, lengths = cut_windows(mel, 10)
    assert lengths.tolist() == [10] + [0] * (MAX_WINDOWS - 1)
    assert windows[0, 5, 1] == 0.0


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(AudioError, match=r"reference .*nowhere.wav: no such file"):
        load_reference(tmp_path / "nowhere.wav", AudioConfig())
