import errno
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest

from tests.training.checkpoints.test_files import CACHE, CONFIG
from xtts_pipeline.config.load import load_config
from xtts_pipeline.config.schema import TrainingConfig
from xtts_pipeline.errors import CheckpointError, ConfigError
from xtts_pipeline.training.checkpoints.files import load_checkpoint
from xtts_pipeline.training.checkpoints.run_folder import LAST_FOLDER, steps_in
from xtts_pipeline.training.checkpoints.saver import CheckpointSaver, NullCheckpointSaver, SaveClock, Snapshot
from xtts_pipeline.training.checkpoints.state import BestSoFar, RunState


def snapshot(step: int, *, loss: float | None = None) -> Snapshot:
    best = None if loss is None else BestSoFar(step, loss)
    return Snapshot(step, {"weight": np.full(3, float(step), np.float32)}, RunState("records"), best)


def saver(run: Path) -> CheckpointSaver:
    return CheckpointSaver(run, CONFIG, CACHE, sync=lambda: None)


def test_a_snapshot_is_written_while_the_run_goes_on(tmp_path: Path) -> None:
    may_go_on, saved = threading.Event(), snapshot(3, loss=1.0)
    with CheckpointSaver(tmp_path, CONFIG, CACHE, sync=may_go_on.wait) as writing:  # type: ignore[arg-type]
        writing.begin(saved)
        assert writing.is_busy
        assert not (tmp_path / LAST_FOLDER).exists()
        assert (writing.best, writing.on_disk) == (BestSoFar(3, 1.0), BestSoFar())
        may_go_on.set()
        writing.finish()
        assert writing.on_disk == BestSoFar(3, 1.0)
    assert load_checkpoint(tmp_path).arrays["weight"].tolist() == [3.0, 3.0, 3.0]
    assert load_checkpoint(tmp_path / "best").state == saved.state


def test_best_is_what_lies_there_or_nothing(tmp_path: Path) -> None:
    with saver(tmp_path) as writing:
        for number, loss in ((1, 3.0), (2, 2.0)):
            writing.begin(snapshot(number, loss=loss))
            writing.finish()
        # As a run that goes back to a time when step 1 was the best.
        writing.on_disk = BestSoFar(1, 3.0)
        shutil.rmtree(tmp_path / "best")
        writing.find_best()
        assert (writing.on_disk, load_checkpoint(tmp_path / "best").step) == (BestSoFar(1, 3.0), 1)
        shutil.rmtree(tmp_path / "best")
        shutil.rmtree(tmp_path / LAST_FOLDER / "step-00000001")
        writing.find_best()
        assert writing.on_disk == BestSoFar()


def test_a_best_one_waits_for_the_writer_and_the_run_does_not(tmp_path: Path) -> None:
    may_go_on = threading.Event()
    with CheckpointSaver(tmp_path, CONFIG, CACHE, sync=may_go_on.wait) as writing:  # type: ignore[arg-type]
        writing.begin(snapshot(1))
        # None of these waits; the last is better than the one before it, which nobody will ask for.
        writing.begin_when_free(snapshot(2, loss=3.0))
        writing.begin_when_free(snapshot(3, loss=2.0))
        assert (writing.saved_step, writing.best.step, writing.is_busy) == (3, 3, True)
        assert writing.poll() is None
        may_go_on.set()
        assert writing.settle() == [None, None]
        assert (writing.on_disk, writing.is_busy) == (BestSoFar(3, 2.0), False)
        writing.begin_when_free(snapshot(4, loss=1.0))
        assert writing.settle() == [None]
    assert [path.name for path in steps_in(tmp_path / LAST_FOLDER)] == [
        "step-00000001",
        "step-00000003",
        "step-00000004",
    ]
    assert load_checkpoint(tmp_path / "best").step == 4


def test_a_worker_that_writes_nothing_knows_what_the_chief_has_saved() -> None:
    with NullCheckpointSaver(saved_step=2) as unwritten:
        unwritten.begin_when_free(snapshot(3, loss=1.0))
        unwritten.begin(snapshot(4))
        assert (unwritten.saved_step, unwritten.best, unwritten.is_busy) == (4, BestSoFar(3, 1.0), False)
        assert (unwritten.poll(), unwritten.settle()) == (None, [])
        unwritten.finish()


def test_a_full_disk_costs_a_complaint_and_the_next_one_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, content: bytes) -> None:
        with path.open("wb") as file:
            file.write(content[:10])
        raise OSError(errno.ENOSPC, "No space left on device")

    with saver(tmp_path) as writing:
        writing.begin(snapshot(1))
        writing.finish()
        with monkeypatch.context() as patch:
            patch.setattr(Path, "write_bytes", refuse)
            writing.begin(snapshot(2, loss=1.0))
            while writing.is_busy:
                pass
            complaint = writing.poll()
        assert complaint is not None
        assert (
            "step-00000002: cannot be written (No space left on device); earlier checkpoints are untouched" in complaint
        )
        assert (writing.poll(), writing.best) == (None, BestSoFar())
        assert [path.name for path in (tmp_path / LAST_FOLDER).iterdir()] == ["step-00000001"]
        writing.begin(snapshot(3))
        writing.finish()
    assert [path.name for path in steps_in(tmp_path / LAST_FOLDER)] == ["step-00000001", "step-00000003"]


def test_metrics_that_do_not_reach_the_disk_give_no_checkpoint(tmp_path: Path) -> None:
    def refuse() -> None:
        raise OSError(errno.EIO, "Input/output error")

    with CheckpointSaver(tmp_path, CONFIG, CACHE, sync=refuse) as writing:
        writing.begin(snapshot(1))
        with pytest.raises(CheckpointError, match="metrics cannot be written"):
            writing.finish()
    assert not (tmp_path / LAST_FOLDER).exists()


def test_saving_by_steps_stays_due_until_it_has_begun() -> None:
    clock = SaveClock(TrainingConfig(save_every=4))
    assert [clock.is_due(step) for step in (1, 3, 4, 5)] == [False, False, True, True]
    clock.restart()
    assert [clock.is_due(step) for step in (6, 7, 8)] == [False, False, True]


@pytest.mark.parametrize("text", ["2 minutes", "2min", "2 min"])
def test_saving_by_minutes_counts_from_the_last_beginning(text: str) -> None:
    now = [0.0]
    clock = SaveClock(TrainingConfig(save_every=text), clock=lambda: now[0])
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
