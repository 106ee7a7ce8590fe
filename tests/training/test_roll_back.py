"""Skipped updates, and the roll-back of a run with too many in a row. The step is one number here."""

import re
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from tests.model.conftest import SPEC, random_batch
from tests.training.tiny_run import (
    AskedAtCheck,
    Killed,
    TinySource,
    TinyStep,
    config_with,
    read_metrics,
    read_skipped,
    resume_and_train,
)
from xtts_pipeline.data.schedule import StreamPosition
from xtts_pipeline.errors import CheckpointError, InterruptedRunError, TrainingError
from xtts_pipeline.model.batch import Batch
from xtts_pipeline.training import loop
from xtts_pipeline.training.checkpoints import saver
from xtts_pipeline.training.checkpoints.files import load_checkpoint
from xtts_pipeline.training.optimizer import LossScale

pytestmark = pytest.mark.usefixtures("tiny_training")


def make_folder(path: Path) -> Path:
    path.mkdir(exist_ok=True)
    return path


def lost(*steps: int) -> TinySource:
    """Return batches that are not finite at the given steps, counted without roll-back."""
    return TinySource(bad=tuple(StreamPosition(*divmod(step - 1, 3)) for step in steps))


def test_a_step_that_is_not_finite_is_skipped_counted_and_named(tmp_path: Path) -> None:
    bad = (StreamPosition(1, 1),)  # step 5
    summary = resume_and_train(tmp_path, TinySource(bad=bad))
    (line,) = read_skipped(tmp_path)
    assert line == {
        "step": 5,
        "epoch": 1,
        "batch": 1,
        "loss": None,
        "gradient_norm": None,
        "not_finite": ["bad-1"],
        "ids": ["sound-1", "bad-1"],
    }
    assert (summary["skipped_updates"], summary["rolled_back_at_step"]) == (1, None)
    found = "step 5: the update was not finite and is left out (not finite in the cache: bad-1)"
    assert summary["warnings"][0] == f"{found}; skipped.jsonl has each such step"
    reports = {line["step"]: line for line in read_metrics(tmp_path) if line["split"] == "train"}
    assert {step: report["skipped_updates"] for step, report in reports.items()} == {
        1: 0,
        3: 0,
        5: 1,
        6: 0,
        9: 0,
        10: 0,
        12: 0,
    }
    assert all(report["loss"] is not None for report in reports.values())


def test_in_float16_a_bad_clip_is_named_after_a_step_that_the_loss_scale_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, take_step = TinyStep.__init__, TinyStep.__call__

    def begin_in_float16(self: TinyStep, *arguments: object) -> None:
        begin(self, *arguments)
        self.loss_scale = LossScale()  # type: ignore[assignment]

    def skip_second(self: TinyStep, batch: Batch) -> tf.Tensor:
        metrics = take_step(self, batch)
        return tf.concat([metrics[:-1], [1.0]], axis=0) if self.step == 2 else metrics

    monkeypatch.setattr(TinyStep, "__init__", begin_in_float16)
    monkeypatch.setattr(TinyStep, "__call__", skip_second)
    summary = resume_and_train(tmp_path, lost(5))
    assert summary["skipped_updates"] == 2
    assert [line["step"] for line in read_skipped(tmp_path)] == [5]
    assert summary["warnings"][0].startswith("step 5: the update was not finite and is left out")


def test_a_killed_run_records_each_skipped_step_once(tmp_path: Path) -> None:
    bad = (StreamPosition(1, 1), StreamPosition(2, 0))
    expected = resume_and_train(make_folder(tmp_path / "whole"), TinySource(bad=bad))
    for batches in (6, 3):
        with pytest.raises(Killed):
            resume_and_train(make_folder(tmp_path / "killed"), TinySource(kill_after=batches, bad=bad))
    found = resume_and_train(tmp_path / "killed", TinySource(bad=bad))
    assert read_skipped(tmp_path / "killed") == read_skipped(tmp_path / "whole")
    assert (found["skipped_updates"], found["weights_sha256"]) == (2, expected["weights_sha256"])


def test_a_diverged_run_rolls_back_once_with_half_the_rate_and_continues_with_the_data(tmp_path: Path) -> None:
    config = config_with(max_consecutive_skips=3)
    summary = resume_and_train(tmp_path, lost(6, 7, 8, 9), config)
    assert (summary["steps"], summary["rolled_back_at_step"], summary["skipped_updates"]) == (12, 9, 4)
    assert (
        "4 updates in a row were not finite (training.max_consecutive_skips=3); rolled back to step 5"
        in summary["warnings"][1]
    )
    checkpoint = load_checkpoint(tmp_path)
    assert checkpoint.arrays["rate_factor"] == 0.5
    assert checkpoint.state is not None
    assert checkpoint.state.position == StreamPosition(5, 1)  # 9 batches, and 7 more from step 5 to 12
    assert [line["not_finite"] for line in read_skipped(tmp_path)] == [
        [f"bad-{(step - 1) % 3}"] for step in (6, 7, 8, 9)
    ]
    # The roll-back removed the lines of steps 6 to 9, and they were written again.
    assert [line["step"] for line in read_metrics(tmp_path) if line["split"] == "train"] == [1, 3, 5, 6, 9, 10, 12]
    assert [len(line["ids"]) for line in read_skipped(tmp_path)] == [2, 2, 2, 2]


def test_a_run_interrupted_where_it_diverges_rolls_back_like_an_undisturbed_one(tmp_path: Path) -> None:
    config = config_with(max_consecutive_skips=3)
    expected = resume_and_train(make_folder(tmp_path / "whole"), lost(6, 7, 8, 9), config)
    with pytest.raises(InterruptedRunError, match="after step 9"):
        resume_and_train(make_folder(tmp_path / "stopped"), lost(6, 7, 8, 9), config, AskedAtCheck(9))
    found = resume_and_train(tmp_path / "stopped", lost(6, 7, 8, 9), config)
    assert (found["rolled_back_at_step"], found["warnings"]) == (9, expected["warnings"])
    assert found["weights_sha256"] == expected["weights_sha256"]
    assert read_metrics(tmp_path / "stopped") == read_metrics(tmp_path / "whole")


def test_a_resumed_run_that_rolls_back_keeps_its_own_clips_and_batches_and_best_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resume_and_train(tmp_path, TinySource(), config_with(max_consecutive_skips=3, steps=5))
    monkeypatch.setattr(TinySource, "records_digest", lambda _: "other clips")
    # The resumed run begins with epoch 2, and is rolled back to step 5 before its first checkpoint.
    bad = tuple(StreamPosition(*divmod(batch, 3)) for batch in range(6, 10))
    config = config_with(max_consecutive_skips=3, steps=12, batch_size=4, evaluate_every=100)
    changed = ("cache", "training.batch_size", "training.evaluate_every", "training.steps")
    summary = resume_and_train(tmp_path, TinySource(bad=bad), config, allowed=changed)
    assert summary["rolled_back_at_step"] == 9
    checkpoint = load_checkpoint(tmp_path)
    assert checkpoint.state is not None
    assert (checkpoint.state.records, checkpoint.state.batch_rows) == ("other clips", (4,))
    # That of step 5 was lower, on other clips.
    assert summary["best"] == {"step": 12, "metric": "loss", "value": 5.0}


@pytest.mark.parametrize("keep", [1, 2])
def test_the_last_sound_checkpoint_does_not_give_way_to_a_best_one_after_a_skipped_update(
    tmp_path: Path, keep: int
) -> None:
    # Step 4 is saved. Step 5 is evaluated, the best so far, though its update was skipped.
    config = config_with(max_consecutive_skips=3, keep_checkpoints=keep, log_every=1)
    summary = resume_and_train(tmp_path, lost(5, 6, 7), config)
    assert "rolled back to step 4" in summary["warnings"][1]


def test_a_step_skipped_before_the_roll_back_checkpoint_is_counted_once(tmp_path: Path) -> None:
    """Step 12 is saved between two reports, with step 11 in its open window."""
    config = config_with(max_consecutive_skips=3, log_every=5, evaluate_every=100, steps=20)
    summary = resume_and_train(tmp_path, lost(11, 13, 14, 15), config)
    assert (summary["rolled_back_at_step"], summary["skipped_updates"]) == (15, 4)
    assert [line["step"] for line in read_skipped(tmp_path)] == [11, 13, 14, 15]


def test_sound_checkpoints_between_two_reports_stay_while_updates_are_skipped(tmp_path: Path) -> None:
    config = config_with(max_consecutive_skips=3, log_every=12, evaluate_every=100, save_every=1, steps=24)
    summary = resume_and_train(tmp_path, lost(7, 8, 9, 10, 11, 12), config)
    assert (summary["rolled_back_at_step"], summary["skipped_updates"]) == (12, 6)
    # Step 6 is not saved if the thread still writes the one before.
    assert re.search(r"rolled back to step [1-6], ", summary["warnings"][1])


def test_a_roll_back_names_a_damaged_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load_newest_finite, damaged = loop.load_newest_finite, tmp_path / "checkpoints" / "step-00000005"

    def damage_and_look(*arguments: Any) -> Any:
        (damaged / "state.json").write_bytes(b"{}")
        return load_newest_finite(*arguments)

    monkeypatch.setattr(loop, "load_newest_finite", damage_and_look)
    summary = resume_and_train(tmp_path, lost(6, 7, 8, 9), config_with(max_consecutive_skips=3))
    assert str(damaged) in summary["warnings"][1]
    assert summary["warnings"][1].endswith("one before it will do")
    assert "rolled back to step 4" in summary["warnings"][2]


def test_a_run_is_not_rolled_back_to_a_step_whose_evaluation_the_disk_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_with(max_consecutive_skips=3)
    with pytest.raises(InterruptedRunError, match="after step 5"):  # in the middle of its evaluation
        resume_and_train(tmp_path, TinySource(), config, AskedAtCheck(5))

    def refuse(*_: object) -> None:
        raise CheckpointError("no space left")

    monkeypatch.setattr(saver, "replace_state", refuse)
    summary = resume_and_train(tmp_path, lost(6, 7, 8, 9), config)
    assert summary["warnings"][0] == "checkpoint not saved: no space left"
    assert "rolled back to step 4" in summary["warnings"][2]


@pytest.mark.parametrize("steps", [9, 12])
def test_a_second_divergence_ends_the_run_without_a_checkpoint(tmp_path: Path, steps: int) -> None:
    config = config_with(max_consecutive_skips=3, steps=steps)
    with pytest.raises(
        TrainingError, match=r"step 9: 4 updates in a row .* after it had been rolled back at step 9; lower training"
    ):
        resume_and_train(tmp_path, lost(6, 7, 8, 9, 10, 11, 12, 13), config)
    assert load_checkpoint(tmp_path).step == 5


def test_a_run_interrupted_at_its_second_divergence_can_be_resumed_with_other_settings(tmp_path: Path) -> None:
    config, lost_steps = config_with(max_consecutive_skips=3), (6, 7, 8, 9, 10, 11, 12, 13)
    with pytest.raises(InterruptedRunError, match="after step 9"):
        resume_and_train(tmp_path, lost(*lost_steps), config, AskedAtCheck(13))
    assert load_checkpoint(tmp_path).step == 9
    with pytest.raises(TrainingError, match="after it had been rolled back at step 9; lower training"):
        resume_and_train(tmp_path, lost(*lost_steps), config)
    assert load_checkpoint(tmp_path).step == 5
    lower = config_with(max_consecutive_skips=3, learning_rate=1e-5)
    assert resume_and_train(tmp_path, TinySource(), lower, allowed=("training",))["steps"] == 12


def test_a_lower_limit_counts_no_updates_of_an_earlier_report(tmp_path: Path) -> None:
    resume_and_train(tmp_path, lost(8, 9), config_with(steps=9, evaluate_every=100))
    config = config_with(max_consecutive_skips=2, evaluate_every=100)
    summary = resume_and_train(tmp_path, TinySource(), config, allowed=("training",))
    assert (summary["steps"], summary["rolled_back_at_step"]) == (12, None)


def test_a_divergence_before_the_first_checkpoint_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(
        TrainingError, match=r"step 3: 3 updates in a row .* and there is no checkpoint to go back to; lower"
    ):
        resume_and_train(tmp_path, lost(1, 2, 3), config_with(max_consecutive_skips=3))


def test_batches_of_the_tests_depend_on_the_position_only() -> None:
    first, second = (next(TinySource().training_batches(None, None, StreamPosition(1, batch))) for batch in (0, 1))
    assert (first.mel.numpy() != second.mel.numpy()).any()
    assert (first.mel.numpy() == random_batch(SPEC, (9, 4), (20, 7), seed=10).mel.numpy()).all()
