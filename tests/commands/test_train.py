"""What `xtts train` checks before it begins and says while it runs; the training itself is tested in tests/training."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from xtts_pipeline.commands.train import _Progress, check_enough_records, summary_text
from xtts_pipeline.config import Config, TrainingConfig
from xtts_pipeline.errors import CacheError

SUMMARY: dict[str, Any] = {
    "steps": 7,
    "stopped_early": True,
    "first_step_seconds": 1.5,
    "parameters": 2_000_000,
    "loss": {"first": 3.0, "last": 1.0},
    "best": {"step": 5, "val_loss": 1.25},
    "traces": 1,
    "compilations": 1,
    "by_function": {"train_step": {"traces": 1, "compilations": 1}},
    "step_ms": None,
}


def check(train: int, val: int, **settings: object) -> None:
    records = {"train": train, "val": val}
    manifest = SimpleNamespace(split_records=records.__getitem__)
    check_enough_records(Path("cache"), manifest, Config(training=TrainingConfig(**settings)))  # type: ignore[arg-type]


def test_a_cache_must_fill_a_batch() -> None:
    check(train=4, val=0, batch_size=4)
    with pytest.raises(CacheError, match=r"3 training records, but training.batch_size=4; set training.batch_size=3 or less"):
        check(train=3, val=0, batch_size=4)


def test_patience_needs_a_validation_split() -> None:
    check(train=4, val=1, batch_size=4, patience=2)
    with pytest.raises(CacheError, match=r"no validation records, but training.patience=2 .* cache.validation_share over 0"):
        check(train=4, val=0, batch_size=4, patience=2)


def test_the_progress_line_keeps_what_was_last_known_of_each_split(capsys: pytest.CaptureFixture[str]) -> None:
    with _Progress(40) as progress:
        progress.show(10, "val", {"loss": 1.5})
        progress.show(10, "speech", {"stop_rate": 0.75})
        progress.show(20, "train", {"loss": 2.0, "attention_focus": 0.5, "step_ms": 30.0, "data_wait_share": 0.01})
        progress.say(20, "warning: something")
    shown = capsys.readouterr()
    lines = shown.err.splitlines()
    assert lines[:2] == ["step 10/40: val 1.500", "step 10/40: val 1.500, stops 75%"]
    assert lines[2].startswith("step 20/40: val 1.500, stops 75%, loss 2.000, focus 0.50, step 30 ms, wait 1.0%, ")
    assert lines[3] == "step 20/40: warning: something"
    assert shown.out == ""


def test_the_summary_says_that_a_run_ended_early_and_which_step_was_best() -> None:
    text = summary_text(Path("run"), SUMMARY)
    assert "7 (stopped early), first after 1.5 s" in text
    assert "step 5, validation loss 1.250" in text
    without = summary_text(Path("run"), {**SUMMARY, "stopped_early": False, "best": None})
    assert "stopped early" not in without
    assert "none: the cache has no validation clips" in without
