"""Recomputed activations give the same loss and gradients."""

import numpy as np
import pytest
import tensorflow as tf

from tests.model.conftest import losses_of, make_network
from xtts_pipeline.model.batch import Batch, Crop
from xtts_pipeline.model.layers import Dropout


def gradients(*, is_recomputed: bool, batch: Batch, crop: Crop, is_compiled: bool) -> tuple[float, list[np.ndarray]]:
    network = make_network(remat=is_recomputed, dropout=0.1)
    dropout = Dropout.for_step(0, tf.constant(3, tf.int64))

    def step() -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape() as tape:
            loss = losses_of(network, batch, crop, dropout)["objective"]
        found = tape.gradient(loss, network.trainable_variables, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        return loss, [tf.convert_to_tensor(gradient) for gradient in found]

    loss, found = tf.function(step, jit_compile=is_compiled, autograph=False)()
    return float(loss), [gradient.numpy() for gradient in found]


@pytest.mark.parametrize("is_compiled", [False, True])
def test_recomputation_does_not_change_loss_and_gradients(batch: Batch, crop: Crop, is_compiled: bool) -> None:
    loss, kept = gradients(is_recomputed=False, batch=batch, crop=crop, is_compiled=is_compiled)
    again_loss, again = gradients(is_recomputed=True, batch=batch, crop=crop, is_compiled=is_compiled)
    assert again_loss == pytest.approx(loss, rel=1e-6)
    for ours, theirs in zip(again, kept, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    assert sum(np.abs(gradient).sum() > 0 for gradient in again) > len(again) / 2
