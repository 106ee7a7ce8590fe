import math

import pytest
import tensorflow as tf

from xtts_pipeline.config.schema import TrainingConfig
from xtts_pipeline.training.schedule import LearningRate

CONFIG = TrainingConfig(steps=1_100, learning_rate=2e-3, warmup_steps=100, final_lr_fraction=0.1)


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
    assert float(LearningRate(CONFIG)(tf.constant(step))) == pytest.approx(expected, rel=1e-5)


def test_an_exponential_schedule_to_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="give a share over 0"):
        TrainingConfig(schedule="exponential", final_lr_fraction=0.0)


@pytest.mark.parametrize(
    ("schedule", "step", "expected"),
    [
        ("exponential", 49, 1e-3),
        ("exponential", 100, 2e-3),
        ("exponential", 600, 2e-3 * math.sqrt(0.1)),
        ("exponential", 1_100, 2e-4),
        ("noam", 49, 1e-3),
        ("noam", 99, 2e-3),
        ("noam", 399, 1e-3),  # the root of a quarter
        ("noam", 9_999, 2e-4),  # the root of a hundredth, run or not
        ("constant", 49, 1e-3),
        ("constant", 99, 2e-3),
        ("constant", 9_999, 2e-3),
    ],
)
def test_other_schedules_at_given_steps(schedule: str, step: int, expected: float) -> None:
    config = CONFIG.model_copy(update={"schedule": schedule})
    assert float(LearningRate(config)(tf.constant(step))) == pytest.approx(expected, rel=1e-5)


def test_no_warmup_starts_at_the_peak() -> None:
    assert float(LearningRate(TrainingConfig(warmup_steps=0))(tf.constant(0))) == pytest.approx(
        TrainingConfig().learning_rate
    )


def test_rate_is_never_negative_or_infinite() -> None:
    short = TrainingConfig(steps=5, warmup_steps=200)
    rate = LearningRate(short)
    assert all(0.0 < float(rate(tf.constant(step))) < math.inf for step in range(10))


def test_the_program_is_the_same_for_other_numbers() -> None:
    def program(config: TrainingConfig) -> bytes:
        traced = tf.function(LearningRate(config).__call__, autograph=False)
        graph = traced.get_concrete_function(tf.TensorSpec([], tf.int64)).graph.as_graph_def()
        return bytes(graph.SerializeToString(deterministic=True))

    numbers = {"steps": 7, "learning_rate": 1e-4, "warmup_steps": 5, "final_lr_fraction": 0.2}
    assert program(CONFIG) == program(CONFIG.model_copy(update=numbers))
    assert program(CONFIG) != program(CONFIG.model_copy(update={"schedule": "noam"}))
