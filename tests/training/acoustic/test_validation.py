import math

import tensorflow as tf

from tests.model.conftest import SPEC, random_batch
from xtts_pipeline.model.batch import Batch
from xtts_pipeline.training.acoustic.validation import finite_mean, mean_losses


def losses_of(*results: tuple[float, float]) -> dict[str, float]:
    """Return the mean of batches with these losses and weights."""
    coming = iter(results)

    class Step:
        METRICS = ("loss", "mel_l1", "weight")

        def __call__(self, _: Batch) -> tf.Tensor:
            loss, weight = next(coming)
            return tf.constant([loss, loss, weight])

    return mean_losses(Step(), [random_batch(SPEC, (4,), (7,))] * len(results))  # type: ignore[arg-type]


def test_a_batch_weighs_as_many_decoder_steps_as_it_holds() -> None:
    losses = losses_of((1.0, 30.0), (4.0, 10.0))
    assert losses.pop("skipped_batches") == 0.0
    assert set(losses.values()) == {1.75}
    assert "weight" not in losses


def test_a_batch_that_is_not_finite_is_left_out_and_counted() -> None:
    losses = losses_of((1.0, 30.0), (math.nan, 20.0), (4.0, 10.0))
    assert losses.pop("skipped_batches") == 1.0
    assert set(losses.values()) == {1.75}
    assert math.isnan(losses_of((math.inf, 3.0))["loss"])


def test_clips_that_cannot_be_aligned_have_no_loss() -> None:
    assert losses_of((0.0, 0.0), (2.0, 10.0))["loss"] == 2.0
    assert math.isnan(losses_of((0.0, 0.0))["loss"])


def test_one_bad_clip_does_not_hide_the_distortion_of_the_others() -> None:
    assert float(finite_mean(tf.constant([2.0, math.nan, 4.0]))) == 3.0
    assert math.isnan(float(finite_mean(tf.constant([math.nan, math.inf]))))
