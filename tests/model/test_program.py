"""The compiled program of the losses and their gradients, as XLA runs it."""

import re

import numpy as np
import pytest
import tensorflow as tf

from tests.model.conftest import SPEC, losses_of, random_batch
from xtts_pipeline.model.aligner import FRAMES_PER_GPU_ITERATION, alignment_posterior
from xtts_pipeline.model.batch import Batch, Crop
from xtts_pipeline.model.layers import Dropout
from xtts_pipeline.model.network import Network


@pytest.fixture
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda _: ["GPU:0"])


@pytest.mark.usefixtures("as_on_a_gpu")
def test_the_step_has_no_branch_no_scatter_no_convolution_and_one_short_loop(network: Network, crop: Crop) -> None:
    @tf.function(jit_compile=True)
    def gradients(*tensors: tf.Tensor) -> list[tf.Tensor]:
        dropout = Dropout(tf.constant(7, tf.uint32), is_training=True)
        with tf.GradientTape() as tape:
            losses = losses_of(network, Batch(*tensors), crop, dropout)
        found: list[tf.Tensor] = tape.gradient(losses["objective"], network.trainable_variables)
        return found

    batch = random_batch(SPEC, (9, 4, 6), (20, 7, 12))
    tensors = [tensor for tensor in batch if tensor is not None]
    program = gradients.experimental_get_compiler_ir(*tensors)(stage="optimized_hlo")
    assert "conditional(" not in program
    # A GPU adds to one address in any order, so a rerun would not be equal.
    assert "scatter(" not in program
    # cuDNN may ask for more memory than the rest of the step.
    assert "convolution(" not in program
    iterations = [int(count) for count in re.findall(r'"known_trip_count":\{"n":"(\d+)"', program)]
    assert len(iterations) == len(re.findall(r" while\(", program))
    assert max(iterations) == -(-SPEC.max_mel_frames // FRAMES_PER_GPU_ITERATION)


def test_blocks_of_frames_have_the_same_posterior(monkeypatch: pytest.MonkeyPatch) -> None:
    likelihood = np.random.default_rng(0).normal(size=(3, 21, 6)).astype(np.float32)
    arguments = likelihood, np.array([3, 6, 4], np.int32), np.array([5, 21, 4], np.int32)
    one_by_one = alignment_posterior(*arguments).numpy()
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda _: ["GPU:0"])
    np.testing.assert_array_equal(alignment_posterior(*arguments), one_by_one)
