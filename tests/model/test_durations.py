import numpy as np
import pytest
import tensorflow as tf

from xtts_pipeline.model.durations import places, spoken_durations, timing_of, token_shares

# Three tokens of 1.5, 0.5 and 2 frames, and a padded one.
TIMING = timing_of(tf.constant([[1.5, 0.5, 2.0, 0.0]]))


def test_shares_are_the_overlap_of_frames_and_tokens() -> None:
    shares = token_shares(TIMING, tf.range(-1, 5))
    expected = [[0, 0, 0, 0], [1, 0, 0, 0], [0.5, 0.5, 0, 0], [0, 0, 1, 0], [0, 0, 1, 0], [0, 0, 0, 0]]
    np.testing.assert_allclose(shares[0], expected)


def test_places_by_hand() -> None:
    frame_T = tf.range(4)
    found = places(TIMING, frame_T, token_shares(TIMING, frame_T))[0]
    # The centre of frame 1 is at the end of token 0 and at the begin of token 1.
    np.testing.assert_allclose(found[:, 0], [0.5 / 1.5, 0.5 * 1.0, 0.25, 0.75], atol=1e-6)
    np.testing.assert_allclose(found[:, 0] + found[:, 1], 1.0, atol=1e-6)
    logs = np.log([1.5, 0.5, 2.0])
    np.testing.assert_allclose(found[:, 2], [logs[0], (logs[0] + logs[1]) / 2, logs[2], logs[2]], atol=1e-6)


@pytest.mark.parametrize("speed", [1.0, 0.8, 1.25])
def test_spoken_durations_are_whole_frames_in_all_and_follow_the_speed(speed: float) -> None:
    log_duration = tf.math.log([[4.0, 7.3, 20.0, 50.0], [3.3, 0.2, 50.0, 50.0]])
    mask = tf.constant([[True, True, True, False], [True, True, False, False]])
    duration = spoken_durations(log_duration, mask, speed).numpy()
    # 31.3 frames, and 4.3 with the second token at its minimum of one frame.
    np.testing.assert_allclose(duration.sum(axis=1), np.round([31.3 / speed, 4.3 / speed]), rtol=1e-6)
    np.testing.assert_allclose(duration[0, :3] / duration[0, 0], [1.0, 7.3 / 4.0, 5.0], rtol=1e-5)
    np.testing.assert_allclose(duration[1] / duration[1, 1], [3.3, 1.0, 0.0, 0.0], rtol=1e-5)
