import numpy as np
import pytest
import tensorflow as tf

from xtts_pipeline.model.attention_metrics import attention_coverage, attention_focus, diagonal_share, stop_error

FOUR, NONE = tf.constant([4]), tf.constant([0])
DIAGONAL = tf.eye(4)[None, None]
BLURRED = tf.fill([1, 1, 4, 4], 0.25)


def test_focus_takes_the_sharpest_head() -> None:
    both = tf.concat([BLURRED, DIAGONAL], axis=1)
    assert float(attention_focus(both, FOUR)) == 4.0  # the sum over four steps
    assert float(attention_focus(BLURRED, FOUR)) == 1.0


def test_mean_focus_is_the_largest_weight_of_a_step():
    blunt = np.full((1, 1, 2, 4), 0.25 / 3)
    blunt[..., [0, 1], [1, 2]] = 0.75
    assert float(attention_focus(blunt, tf.constant([2]))) / 2 == 0.75
    assert float(attention_focus(np.full((1, 1, 5, 8), 1 / 8), tf.constant([5]))) / 5 == 1 / 8


def test_diagonal_share_by_hand() -> None:
    # Within 0.15 of the line, steps and tokens of a quarter each: the token of the same number alone.
    assert float(diagonal_share(DIAGONAL, FOUR, FOUR)) == 4.0
    assert float(diagonal_share(BLURRED, FOUR, FOUR)) == 1.0
    assert float(diagonal_share(tf.reverse(DIAGONAL, [2]), FOUR, FOUR)) == 0.0
    assert float(diagonal_share(tf.concat([BLURRED, DIAGONAL], axis=1), FOUR, FOUR)) == 2.5  # the mean of the heads


def test_coverage_counts_tokens_that_are_looked_at() -> None:
    stuck = tf.one_hot([0, 0, 1, 1], 4)[None, None]
    assert float(attention_coverage(DIAGONAL, FOUR, FOUR)) == 4.0
    assert float(attention_coverage(stuck, FOUR, FOUR)) == 2.0
    assert float(attention_coverage(DIAGONAL, FOUR, tf.constant([2]))) == 2.0  # steps after the end say nothing
    assert float(attention_coverage(DIAGONAL, tf.constant([3]), FOUR)) == 3.0  # nor do tokens


@pytest.mark.parametrize(
    ("logits", "error"),
    [
        ([-1.0, -1.0, 1.0, 1.0], 0.0),  # stops at the last of three steps
        ([1.0, -1.0, 1.0, 1.0], 2.0),  # two too early
        ([-1.0, -1.0, -1.0, 1.0], 3.0),  # in the padding only
        ([-1.0, -1.0, -1.0, -1.0], 3.0),  # never
    ],
)
def test_stop_error_by_hand(logits: list[float], error: float) -> None:
    assert float(stop_error(tf.constant([logits]), tf.constant([3]))) == error


def test_rows_of_length_zero_weigh_nothing() -> None:
    rubbish = tf.constant(np.random.default_rng(0).random((1, 2, 4, 4)), tf.float32)
    assert float(attention_focus(rubbish, NONE)) == 0.0
    assert float(diagonal_share(rubbish, NONE, NONE)) == 0.0
    assert float(attention_coverage(rubbish, NONE, NONE)) == 0.0
    assert float(stop_error(tf.constant([[5.0, 5.0]]), NONE)) == 0.0
