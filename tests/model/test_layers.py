from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from xtts_pipeline.model.layers import (
    Attention,
    Convolution,
    Dropout,
    Initializer,
    LayerNorm,
    add_positions,
    embed,
    length_mask,
    sinusoid_positions,
)


def key(number: int) -> tf.Tensor:
    return tf.constant(number, tf.uint32)


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_dropout_drops_its_share_and_keeps_the_mean(rate: float) -> None:
    dropped = Dropout(key(3), is_training=True).apply(tf.ones([8, 64, 128]), rate, salt=5).numpy()
    assert np.mean(dropped == 0.0) == pytest.approx(rate, abs=0.005)
    assert dropped.mean() == pytest.approx(1.0, abs=0.01)


def test_dropout_masks_are_uncorrelated_between_steps_layers_and_positions() -> None:
    ones = tf.ones([4, 64, 64])
    masks = [
        Dropout(key(3), True).apply(ones, 0.5, salt=5).numpy().ravel(),
        Dropout(key(4), True).apply(ones, 0.5, salt=5).numpy().ravel(),
        Dropout(key(3), True).apply(ones, 0.5, salt=6).numpy().ravel(),
    ]
    masks += [np.roll(masks[0], 1), np.roll(masks[0], 64), np.roll(masks[0], 64 * 64)]
    correlation = np.corrcoef(masks) - np.eye(len(masks))
    assert np.abs(correlation).max() < 0.04


def test_dropout_is_off_when_not_training() -> None:
    x = tf.ones([1, 4, 64])
    np.testing.assert_array_equal(Dropout(key(9), is_training=False).apply(x, 0.5, salt=1), x)


def test_normal_numbers_have_the_moments_of_a_normal_distribution() -> None:
    drawn = Dropout(key(3), is_training=True).draw_normal(5, 4, 200, 80).numpy()
    moments = [drawn.mean(), drawn.std(), (drawn**3).mean(), (drawn**4).mean()]
    assert moments == pytest.approx([0.0, 1.0, 0.0, 3.0], abs=0.15)
    neighbours = [np.roll(drawn, 1, axis).ravel() for axis in range(3)]
    assert np.abs(np.corrcoef([drawn.ravel(), *neighbours]) - np.eye(4)).max() < 0.02


def test_normal_numbers_of_one_position_equal_those_of_the_whole_sequence() -> None:
    dropout = Dropout.fixed(9)
    whole = dropout.draw_normal(1, 2, 6, 8)
    for position in range(6):
        one = dropout.draw_normal(1, 2, 1, 8, tf.constant(position))
        np.testing.assert_array_equal(one, whole[:, position : position + 1])


@pytest.mark.parametrize("rows", [1, 5, 8, 13, 64])
def test_numbers_drawn_evenly_are_uniform_for_each_row_and_spread_over_a_batch(rows: int) -> None:
    drawn = np.array([Dropout.for_step(0, tf.constant(step)).draw_evenly(5, rows) for step in range(300)])
    assert drawn.min() >= 0.0
    assert drawn.max() < 1.0
    for row in drawn.T:
        assert np.histogram(row, 4, (0.0, 1.0))[0] == pytest.approx(75, abs=35)
    # On a circle, the widest gap between n evenly spaced numbers is 1 / n; by the golden ratio it is under 2 / n.
    circle = np.sort(drawn, axis=1)
    gaps = np.diff(circle, axis=1, append=circle[:, :1] + 1.0)
    assert gaps.max() * rows < 2.0


def test_devices_draw_the_numbers_of_the_whole_batch_evenly() -> None:
    whole = Dropout.for_step(0, tf.constant(3)).draw_evenly(5, 8)
    parts = [Dropout.for_step(0, tf.constant(3), first).draw_evenly(5, 4) for first in (0, tf.constant(4))]
    np.testing.assert_allclose(tf.concat(parts, axis=0), whole, atol=1e-6)


def test_length_mask_is_true_for_real_positions() -> None:
    expected = [[True, True, False], [False, False, False], [True, True, True]]
    np.testing.assert_array_equal(length_mask(tf.constant([2, 0, 3]), 3), expected)


def test_positions_are_sine_and_cosine_pairs() -> None:
    positions = sinusoid_positions(4, 6)
    np.testing.assert_allclose(positions[0], [0, 1, 0, 1, 0, 1])
    assert positions[3, 0] == pytest.approx(np.sin(3.0), abs=1e-6)
    assert positions[3, 3] == pytest.approx(np.cos(3.0 / 10_000 ** (2 / 6)), abs=1e-6)


@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16])
def test_adding_positions_has_the_gradients_of_the_plain_sum(dtype: tf.DType) -> None:
    positions, scale = sinusoid_positions(5, 8)[None], tf.Variable(0.5)
    x, weight = (tf.cast(tf.random.stateless_normal([3, 5, 8], [1, seed]), dtype) for seed in (2, 3))

    def loss_and_gradients(added: Callable[[], tf.Tensor]) -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(tf.cast(added() * weight, tf.float32))
        return loss, tape.gradient(loss, [x, scale])

    found, gradients = loss_and_gradients(lambda: add_positions(x, positions, scale))
    expected, plain = loss_and_gradients(lambda: x + tf.cast(scale * positions, dtype))
    assert found == expected
    np.testing.assert_array_equal(gradients[0], plain[0])
    np.testing.assert_allclose(gradients[1], plain[1], rtol=1e-5 if dtype == tf.float32 else 1e-2)


def test_layer_norm_has_mean_zero_and_variance_one() -> None:
    normal = LayerNorm(64, "norm")(tf.random.stateless_normal([2, 3, 64], [1, 2]) * 7.0 + 3.0).numpy()
    np.testing.assert_allclose(normal.mean(-1), 0.0, atol=1e-5)
    np.testing.assert_allclose(normal.std(-1), 1.0, atol=1e-3)


def test_a_convolution_reaches_only_the_positions_under_its_taps() -> None:
    convolution = Convolution(Initializer(0), 2, 3, 5, "convolution")
    x = np.zeros((1, 12, 2), np.float32)
    before = convolution(tf.constant(x)).numpy()
    x[0, 6] = 1.0
    changed = np.flatnonzero(np.abs(convolution(tf.constant(x)).numpy() - before).sum((0, 2)))
    assert changed.tolist() == list(range(4, 9))


def test_a_convolution_is_tensorflows() -> None:
    convolution = Convolution(Initializer(0), 4, 6, 3, "convolution")
    convolution.bias.assign(tf.range(6.0))
    x = tf.random.stateless_normal([2, 9, 4], [1, 2])
    expected = tf.nn.conv1d(x, convolution.weight, stride=1, padding="SAME") + convolution.bias
    np.testing.assert_allclose(convolution(x), expected, atol=1e-5)


def test_attention_sees_all_of_its_mask_and_nothing_else() -> None:
    attention = Attention(Initializer(0), 8, 2, "attention")
    x = tf.random.stateless_normal([2, 3, 8], [1, 2])
    memory = tf.random.stateless_normal([2, 5, 8], [3, 4]).numpy()
    mask = length_mask(tf.constant([2, 5]), 5)[:, None, None, :]
    before = attention(x, tf.constant(memory), mask)
    changes = []
    for position in range(5):
        changed = memory.copy()
        changed[:, position] += 1.0
        after = attention(x, tf.constant(changed), mask)
        changes.append(np.abs(after - before).max(axis=(1, 2)) > 1e-5)
    assert np.array(changes).T.astype(int).tolist() == [[1, 1, 0, 0, 0], [1, 1, 1, 1, 1]]


def test_initial_weights_depend_on_the_seed_alone() -> None:
    np.testing.assert_array_equal(Initializer(4).glorot((3, 5), "a"), Initializer(4).glorot((3, 5), "b"))
    assert np.any(Initializer(4).glorot((3, 5), "a").numpy() != Initializer(5).glorot((3, 5), "a").numpy())


def test_an_embedding_has_the_rows_of_the_table_and_the_gradient_of_a_gather() -> None:
    table, ids = tf.Variable(tf.random.stateless_normal([5, 3], [1, 2])), tf.constant([[4, 0, 4], [1, 1, 4]])
    above = tf.random.stateless_normal([2, 3, 3], [3, 4])
    found = []
    for look_up in (embed, tf.gather):
        with tf.GradientTape() as tape:
            rows = look_up(table, ids)
        found.append((rows.numpy(), tf.convert_to_tensor(tape.gradient(rows, table, above)).numpy()))
    np.testing.assert_array_equal(found[0][0], found[1][0])
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-6)
