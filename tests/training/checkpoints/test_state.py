import math

import pytest

from xtts_pipeline.training.checkpoints.state import BestEvaluation


def test_the_lowest_finite_loss_is_the_best() -> None:
    best, best_steps = BestEvaluation(), []
    for step, loss in [(1, math.nan), (2, 3.0), (3, 3.0), (4, math.inf), (5, 2.9)]:
        best = best.after(step, "loss", loss)
        best_steps.append(best.step)
    assert best_steps == [0, 2, 2, 2, 5]
    assert best == BestEvaluation(5, "loss", 2.9)
    # The values of two metrics do not compare, so the first of another one is the best.
    assert best.after(6, "distortion_db", 4.0) == BestEvaluation(6, "distortion_db", 4.0)


@pytest.mark.parametrize(("losses", "expected"), [([1.0, 2.0], 1), ([1.0, 2.0, 2.0], 2), ([1.0, 2.0, 0.5, 2.0], 1)])
def test_evaluations_in_a_row_without_a_better_loss_are_counted(losses: list[float], expected: int) -> None:
    best = BestEvaluation()
    for step, loss in enumerate(losses):
        best = best.after(step, "loss", loss)
    assert best.evaluations_without == expected
