import math

import pytest
import tensorflow as tf

from xtts_pipeline.config import TrainingConfig
from xtts_pipeline.training.schedule import learning_rate

CONFIG = TrainingConfig(steps=1_100, learning_rate=2e-3, warmup_steps=100, final_rate_share=0.1)


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (0, 2e-5),  # a hundredth of the peak
        (49, 1e-3),  # half way up
        (99, 2e-3),  # the peak
        (100, 2e-3),
        (600, 2e-3 * (0.1 + 0.9 * 0.5)),  # half way down
        (1_100, 2e-4),  # the end
        (9_999, 2e-4),  # and after
    ],
)
def test_rate_at_given_steps(step: int, expected: float) -> None:
    assert float(learning_rate(tf.constant(step), CONFIG)) == pytest.approx(expected, rel=1e-5)


def test_no_warmup_starts_at_the_peak() -> None:
    assert float(learning_rate(tf.constant(0), TrainingConfig(warmup_steps=0))) == pytest.approx(TrainingConfig().learning_rate)


def test_rate_is_never_negative_or_infinite() -> None:
    short = TrainingConfig(steps=5, warmup_steps=200)
    assert all(0.0 < float(learning_rate(tf.constant(step), short)) < math.inf for step in range(10))
