import pytest

from xtts_pipeline.config.schema import TrainingConfig
from xtts_pipeline.training.monitoring.alignment import AlignmentWatch, is_aligned

ALIGNED = {"attention_focus": 0.7, "attention_diagonal": 0.9}
FLAT = {"attention_focus": 0.1, "attention_diagonal": 0.28}
SPREAD = {"attention_focus": 0.2, "attention_diagonal": 0.8}
STUCK = {"attention_focus": 0.95, "attention_diagonal": 0.3}


@pytest.mark.parametrize(("numbers", "expected"), [(ALIGNED, True), (FLAT, False), (SPREAD, False), (STUCK, False)])
def test_attention_must_be_sharp_and_in_the_right_place(numbers: dict[str, float], expected: bool) -> None:
    assert is_aligned(numbers) is expected


def test_attention_that_is_late_is_told_once_with_what_to_try() -> None:
    watch = AlignmentWatch(TrainingConfig(aligned_by_step=100))
    assert watch.look(99, SPREAD) == []
    (warning,) = watch.look(101, SPREAD)
    assert "focus 0.20, expected at least 0.5" in warning
    assert "training.aligned_by_step=100" in warning
    for remedy in (
        "more steps",
        "training.guided_attention_weight",
        "model.frames_per_step",
        "phonemes",
        "shorter clips",
        "audio.trim_db",
    ):
        assert remedy in warning
    assert watch.look(200, SPREAD) == []
    assert watch.aligned_at_step is None


def test_attention_that_has_aligned_is_not_told() -> None:
    watch = AlignmentWatch(TrainingConfig(aligned_by_step=100))
    assert [watch.look(step, ALIGNED) for step in (50, 100, 150)] == [[], [], []]
    assert watch.aligned_at_step == 50


def test_own_frames_before_attention_has_aligned_are_told_once() -> None:
    watch = AlignmentWatch(TrainingConfig(aligned_by_step=100, scheduled_sampling_start=40))
    assert watch.look(39, FLAT) == []
    (warning,) = watch.look(40, FLAT)
    assert "training.scheduled_sampling_start=40" in warning
    assert "start them later" in warning
    assert watch.look(41, FLAT) == []
    assert len(watch.look(100, FLAT)) == 1


def test_own_frames_after_attention_has_aligned_are_fine() -> None:
    watch = AlignmentWatch(TrainingConfig(scheduled_sampling_start=40))
    assert watch.look(40, ALIGNED) == []
