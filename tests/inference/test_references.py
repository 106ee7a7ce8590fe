import numpy as np
import pytest
import tensorflow as tf

from xtts_pipeline.inference.references import MAX_WINDOWS, PAUSE_DEPTH, cut_windows


def cut(mel: np.ndarray, window_frames: int) -> tuple[np.ndarray, np.ndarray]:
    windows, lengths = cut_windows(tf.constant(mel[None]), tf.constant([len(mel)]), window_frames)
    return windows[0].numpy(), lengths[0].numpy()


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
    windows, lengths = cut(numbered_mel(frames), 10)
    assert windows.shape == (MAX_WINDOWS, 10, 3)
    assert starts_of(windows, lengths) == starts
    assert set(lengths[lengths > 0]) == {min(frames, 10)}


def test_windows_that_are_pauses_are_left_out() -> None:
    mel = numbered_mel(80)
    mel[20:40] -= PAUSE_DEPTH + 1
    assert starts_of(*cut(mel, 10)) == [0, 10, 40, 50, 60, 70]


def test_where_every_window_is_a_pause_the_loudest_place_is_heard() -> None:
    mel = numbered_mel(1_000)
    mel -= PAUSE_DEPTH + 1
    mel[75] += PAUSE_DEPTH + 1
    windows, lengths = cut(mel, 10)
    assert lengths.tolist() == [10] + [0] * (MAX_WINDOWS - 1)
    assert windows[0, 5, 1] == 0.0


def test_a_row_is_cut_alike_alone_and_in_a_batch() -> None:
    random = np.random.default_rng(5)
    lengths = [1, 7, 8, 9, 40, 61, 64, 65, 200, 333]
    mel = random.normal(-4, 0.2, (len(lengths), max(lengths), 3)).astype(np.float32)
    mel[8, ::3] = -9  # pauses
    mel[9] = -11
    mel[9, 131] = 0  # one click, which all windows may miss
    mel[6, 32:] = -11
    windows, found = (value.numpy() for value in cut_windows(tf.constant(mel), tf.constant(lengths), 8))
    for row, frames in enumerate(lengths):
        alone, expected = cut(mel[row, :frames], 8)
        np.testing.assert_array_equal(found[row], expected)
        heard = expected > 0
        np.testing.assert_array_equal(windows[row, heard, : min(frames, 8)], alone[heard, : min(frames, 8)])
