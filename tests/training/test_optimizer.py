import numpy as np
import tensorflow as tf

from xtts_pipeline.training.optimizer import EPSILON, AdamW, Betas, LossScale

BETAS = Betas()


def test_updates_are_those_of_the_paper() -> None:
    random = np.random.default_rng(0)
    matrix, vector = random.normal(size=(3, 2)).astype(np.float32), random.normal(size=3).astype(np.float32)
    variables = {"matrix": tf.Variable(matrix), "vector": tf.Variable(vector)}
    optimizer = AdamW(variables, 0.1, BETAS)
    expected = [matrix.astype(np.float64), vector.astype(np.float64)]
    moments = [(np.zeros_like(value), np.zeros_like(value)) for value in expected]
    for step in range(4):
        gradients = [random.normal(size=value.shape).astype(np.float32) for value in expected]
        optimizer.apply(
            [tf.constant(gradient) for gradient in gradients], tf.constant(0.01), tf.constant(step), tf.constant(True)
        )
        for index, gradient in enumerate(gradients):
            first = BETAS.first * moments[index][0] + (1 - BETAS.first) * gradient
            second = BETAS.second * moments[index][1] + (1 - BETAS.second) * gradient**2
            moments[index] = (first, second)
            update = (
                first / (1 - BETAS.first ** (step + 1)) / (np.sqrt(second / (1 - BETAS.second ** (step + 1))) + EPSILON)
            )
            decay = 0.1 if expected[index].ndim >= 2 else 0.0
            expected[index] = expected[index] - 0.01 * (update + decay * expected[index])
    for variable, value in zip(variables.values(), expected, strict=True):
        np.testing.assert_allclose(variable, value, atol=1e-5)


def test_moments_are_named_after_their_variables() -> None:
    optimizer = AdamW({"layer.weight": tf.Variable([[1.0]])}, 0.0, BETAS)
    assert set(optimizer.first_moment) == set(optimizer.second_moment) == {"layer.weight"}


def test_an_update_that_is_not_applied_changes_nothing() -> None:
    variable = tf.Variable([[1.0]])
    optimizer = AdamW({"weight": variable}, 0.1, BETAS)
    for is_applied in (False, True):
        optimizer.apply([tf.constant([[2.0]])], tf.constant(0.01), tf.constant(0), tf.constant(is_applied))
        assert (variable.numpy().item() != 1.0) == is_applied
        assert (optimizer.first_moment["weight"].numpy().item() != 0.0) == is_applied


def test_the_loss_scale_halves_at_once_and_doubles_with_patience() -> None:
    loss_scale = LossScale()
    loss_scale.update(tf.constant(False))
    assert float(loss_scale.scale) == LossScale.FIRST / 2
    for _ in range(LossScale.GROWTH_STEPS - 1):
        loss_scale.update(tf.constant(True))
    assert float(loss_scale.scale) == LossScale.FIRST / 2
    loss_scale.update(tf.constant(True))
    assert float(loss_scale.scale) == LossScale.FIRST
    loss_scale.update(tf.constant(True))
    assert float(loss_scale.finite_steps) == 1.0


def test_a_variable_that_begins_later_is_updated_as_one_that_begins_at_step_0() -> None:
    early, late = tf.Variable([1.0, 2.0]), tf.Variable([1.0, 2.0])
    first = AdamW({"x": early}, 0.0, BETAS)
    later = AdamW({"x": late}, 0.0, BETAS, {"x": 5})
    gradients = np.random.default_rng(0).normal(size=(9, 2)).astype(np.float32)
    for step in range(5):
        later.apply([tf.constant([9.0, 9.0])], tf.constant(0.01), tf.constant(step), tf.constant(True))
    np.testing.assert_array_equal(late, [1.0, 2.0])
    for step, gradient in enumerate(gradients):
        first.apply([tf.constant(gradient)], tf.constant(0.01), tf.constant(step), tf.constant(True))
        later.apply([tf.constant(gradient)], tf.constant(0.01), tf.constant(5 + step), tf.constant(True))
        np.testing.assert_allclose(late, early, atol=1e-6)


def test_after_a_doubling_the_count_of_finite_steps_begins_anew() -> None:
    loss_scale = LossScale()
    loss_scale.finite_steps.assign(LossScale.GROWTH_STEPS - 1)
    for _ in range(3):
        loss_scale.update(tf.constant(True))
    assert float(loss_scale.scale) == 2 * LossScale.FIRST
    assert float(loss_scale.finite_steps) == 2
