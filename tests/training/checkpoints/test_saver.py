import errno
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest

from tests.training.checkpoints.test_files import CACHE, CONFIG, write_until_full
from tests.waiting import wait_until
from xtts_pipeline.config.load import load_config
from xtts_pipeline.config.schema import TrainingConfig
from xtts_pipeline.errors import CheckpointError, ConfigError
from xtts_pipeline.training.checkpoints.files import load_checkpoint
from xtts_pipeline.training.checkpoints.run_folder import LAST_FOLDER, list_checkpoints
from xtts_pipeline.training.checkpoints.saver import CheckpointSaver, NullCheckpointSaver, SaveSchedule, Snapshot
from xtts_pipeline.training.checkpoints.state import BestEvaluation, RunState


def snapshot(step: int, *, loss: float | None = None) -> Snapshot:
    best = None if loss is None else BestEvaluation(step, "loss", loss)
    return Snapshot(step, {"weight": np.full(3, float(step), np.float32)}, RunState("records"), best)


def saver(run: Path) -> CheckpointSaver:
    return CheckpointSaver(run, CONFIG, CACHE, sync=lambda: None)


def test_a_snapshot_is_written_in_the_background(tmp_path: Path) -> None:
    may_go_on, saved = threading.Event(), snapshot(3, loss=1.0)
    with CheckpointSaver(tmp_path, CONFIG, CACHE, sync=may_go_on.wait) as writing:  # type: ignore[arg-type]
        writing.start(saved)
        assert writing.is_busy
        assert not (tmp_path / LAST_FOLDER).exists()
        assert (writing.best, writing.saved_best) == (BestEvaluation(3, "loss", 1.0), BestEvaluation())
        may_go_on.set()
        writing.finish()
        assert writing.saved_best == BestEvaluation(3, "loss", 1.0)
    assert load_checkpoint(tmp_path).arrays["weight"].tolist() == [3.0, 3.0, 3.0]
    assert load_checkpoint(tmp_path / "best").state == saved.state


def test_the_saved_best_is_restored_or_forgotten(tmp_path: Path) -> None:
    with saver(tmp_path) as writing:
        for number, loss in ((1, 3.0), (2, 2.0)):
            writing.start(snapshot(number, loss=loss))
            writing.finish()
        # As after a roll-back to a step when step 1 was the best.
        writing.saved_best = BestEvaluation(1, "loss", 3.0)
        shutil.rmtree(tmp_path / "best")
        writing.restore_best()
        assert (writing.saved_best, load_checkpoint(tmp_path / "best").step) == (BestEvaluation(1, "loss", 3.0), 1)
        shutil.rmtree(tmp_path / "best")
        shutil.rmtree(tmp_path / LAST_FOLDER / "step-00000001")
        writing.restore_best()
        assert writing.saved_best == BestEvaluation()


def test_a_best_snapshot_is_queued_without_waiting(tmp_path: Path) -> None:
    may_go_on = threading.Event()
    with CheckpointSaver(tmp_path, CONFIG, CACHE, sync=may_go_on.wait) as writing:  # type: ignore[arg-type]
        writing.start(snapshot(1))
        # Neither call waits. Step 3 is better and replaces step 2 in the queue.
        writing.enqueue(snapshot(2, loss=3.0))
        writing.enqueue(snapshot(3, loss=2.0))
        assert (writing.saved_step, writing.best.step, writing.is_busy) == (3, 3, True)
        assert writing.poll() is None
        may_go_on.set()
        assert writing.drain() == [None, None]
        assert (writing.saved_best, writing.is_busy) == (BestEvaluation(3, "loss", 2.0), False)
        writing.enqueue(snapshot(4, loss=1.0))
        assert writing.drain() == [None]
    assert [path.name for path in list_checkpoints(tmp_path / LAST_FOLDER)] == [
        "step-00000001",
        "step-00000003",
        "step-00000004",
    ]
    assert load_checkpoint(tmp_path / "best").step == 4


def test_the_null_saver_notes_steps_and_the_best_evaluation() -> None:
    with NullCheckpointSaver(saved_step=2) as unwritten:
        unwritten.enqueue(snapshot(3, loss=1.0))
        unwritten.start(snapshot(4))
        assert (unwritten.saved_step, unwritten.best, unwritten.is_busy) == (4, BestEvaluation(3, "loss", 1.0), False)
        assert (unwritten.poll(), unwritten.drain()) == (None, [])
        unwritten.finish()


def test_a_full_disk_is_reported_and_the_next_checkpoint_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with saver(tmp_path) as writing:
        writing.start(snapshot(1))
        writing.finish()
        with monkeypatch.context() as patch:
            patch.setattr(Path, "write_bytes", write_until_full)
            writing.start(snapshot(2, loss=1.0))
            wait_until(lambda: not writing.is_busy)
            error = writing.poll()
        assert error is not None
        assert "step-00000002: cannot be written (No space left on device); earlier checkpoints are untouched" in error
        assert (writing.poll(), writing.best) == (None, BestEvaluation())
        assert [path.name for path in (tmp_path / LAST_FOLDER).iterdir()] == ["step-00000001"]
        writing.start(snapshot(3))
        writing.finish()
    assert [path.name for path in list_checkpoints(tmp_path / LAST_FOLDER)] == ["step-00000001", "step-00000003"]


def test_no_checkpoint_is_written_if_metrics_cannot_be_synced(tmp_path: Path) -> None:
    def refuse() -> None:
        raise OSError(errno.EIO, "Input/output error")

    with CheckpointSaver(tmp_path, CONFIG, CACHE, sync=refuse) as writing:
        writing.start(snapshot(1))
        with pytest.raises(CheckpointError, match="metrics cannot be written"):
            writing.finish()
    assert not (tmp_path / LAST_FOLDER).exists()


def test_a_checkpoint_by_steps_stays_due_until_one_starts() -> None:
    clock = SaveSchedule(TrainingConfig(save_every=4))
    assert [clock.is_due(step) for step in (1, 3, 4, 5)] == [False, False, True, True]
    clock.restart()
    assert [clock.is_due(step) for step in (6, 7, 8)] == [False, False, True]


@pytest.mark.parametrize("text", ["2 minutes", "2min", "2 min"])
def test_a_checkpoint_by_minutes_counts_from_the_last_start(text: str) -> None:
    now = [0.0]
    clock = SaveSchedule(TrainingConfig(save_every=text), clock=lambda: now[0])
    due = []
    for now[0] in (10.0, 119.0, 120.0):
        due.append(clock.is_due(1))
    clock.restart()
    for now[0] in (239.0, 240.0):
        due.append(clock.is_due(500))
    assert due == [False, False, True, False, True]


@pytest.mark.parametrize("text", ["0", "soon", "0 minutes", "-1 min", "2 hours", "1.5 minutes"])
def test_other_intervals_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"training.save_every"):
        load_config(overrides=[f"training.save_every={text}"])
