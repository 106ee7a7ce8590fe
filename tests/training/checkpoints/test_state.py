import math

import pytest

from xtts_pipeline.training.checkpoints.state import BestEvaluation


def test_the_lowest_finite_loss_is_the_best() -> None:
    best, best_steps = BestEvaluation(), []
    for step, loss in [(1, math.nan), (2, 3.0), (3, 3.0), (4, math.inf), (5, 2.9)]:
        best = best.after(step, loss)
        best_steps.append(best.step)
    assert best_steps == [0, 2, 2, 2, 5]
    assert (best.loss, best.loss_to_beat, BestEvaluation().loss_to_beat) == (2.9, 2.9, math.inf)


@pytest.mark.parametrize(("losses", "expected"), [([1.0, 2.0], 1), ([1.0, 2.0, 2.0], 2), ([1.0, 2.0, 0.5, 2.0], 1)])
def test_evaluations_in_a_row_without_a_better_loss_are_counted(losses: list[float], expected: int) -> None:
    best = BestEvaluation()
    for step, loss in enumerate(losses):
        best = best.after(step, loss)
    assert best.evaluations_without == expected
