import math

import pytest
import tensorflow as tf

from tests.model.conftest import SPEC, random_batch
from xtts_pipeline.model.network import Batch
from xtts_pipeline.training.step import EvaluateStep
from xtts_pipeline.training.validation import BestLoss, mean_losses


def test_the_lowest_finite_loss_is_the_best() -> None:
    best = BestLoss(patience=None)
    assert [best.update(step, loss) for step, loss in [(1, math.nan), (2, 3.0), (3, 3.0), (4, math.inf), (5, 2.9)]] == [
        False,
        True,
        False,
        False,
        True,
    ]
    assert (best.step, best.loss) == (5, 2.9)
    assert not best.is_patience_over


@pytest.mark.parametrize(
    ("losses", "expected"), [([1.0, 2.0], False), ([1.0, 2.0, 2.0], True), ([1.0, 2.0, 0.5, 2.0], False)]
)
def test_patience_counts_evaluations_in_a_row(losses: list[float], expected: bool) -> None:
    best = BestLoss(patience=2)
    for step, loss in enumerate(losses):
        best.update(step, loss)
    assert best.is_patience_over is expected


def losses_of(*results: tuple[float, float]) -> dict[str, float]:
    """Return the mean of batches with these losses and weights."""
    coming = iter(results)

    def step(_: Batch) -> tf.Tensor:
        loss, weight = next(coming)
        return tf.constant([*[loss] * (len(EvaluateStep.METRICS) - 1), weight])

    return mean_losses(step, [random_batch(SPEC, (4,), (7,))] * len(results))  # type: ignore[arg-type]


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
