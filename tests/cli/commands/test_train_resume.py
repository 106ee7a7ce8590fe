"""`xtts train --resume` in the folder of a run that was damaged, changed or stopped early."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands.conftest import SUMMARY, Killed, WriteCache, begin
from tests.damage import forged
from xtts_pipeline.cli.commands import train as train_module
from xtts_pipeline.errors import CacheError, CheckpointError, ConfigError, OutputError, XttsError
from xtts_pipeline.training import loop
from xtts_pipeline.training.checkpoints.run_folder import write_cache_path
from xtts_pipeline.training.plan import RunPlan


def copy_checkpoint(run: Path) -> Path:
    """Return a newer checkpoint of the run, which is sound."""
    folders = [run / "checkpoints" / f"step-{step:08d}" for step in (1, 2)]
    shutil.copytree(*folders)
    change_state(folders[1], {"step": 2})
    return folders[1]


def change_state(folder: Path, changes: dict[str, Any], *lost: str) -> None:
    """Change a state.json as a program would: with a new checksum."""
    with forged(folder / "state.json") as state:
        state.update(changes)
        for key in lost:
            del state[key]


def lose_state(folder: Path) -> None:
    (folder / "state.json").unlink()


def lose_weights(folder: Path) -> None:
    (folder / "weights.safetensors").unlink()


def cut_weights(folder: Path) -> None:
    os.truncate(folder / "weights.safetensors", 10)


def lose_everything(folder: Path) -> None:
    lose_state(folder)
    lose_weights(folder)


def become_a_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.touch()


def become_a_pipe(folder: Path) -> None:
    lose_state(folder)
    os.mkfifo(folder / "state.json")


def link_state(folder: Path) -> None:
    shutil.move(folder / "state.json", folder / "elsewhere")
    (folder / "state.json").symlink_to(folder / "elsewhere")


def claim_another_step(folder: Path) -> None:
    change_state(folder, {"step": 3})


def lose_run_state(folder: Path) -> None:
    change_state(folder, {}, "run")


def claim_a_huge_step(folder: Path) -> None:
    change_state(folder, {"step": 10**30})


def shorten_the_window(folder: Path) -> None:
    with forged(folder / "state.json") as state:
        state["run"]["window"] = [[1.0, 2.0]]


def add_a_key(folder: Path) -> None:
    change_state(folder, {"more": 1})


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lose_state, "state.json: no such file"),
        (lose_weights, "weights.safetensors: no such file"),
        (lose_everything, "state.json: no such file"),
        (become_a_file, "state.json: cannot be read (Not a directory)"),
        (become_a_pipe, "state.json: cannot be read (no regular file)"),
        (link_state, "state.json: cannot be read (a link, expected a regular file)"),
        (claim_another_step, "not a sound checkpoint (state.json is that of step 3)"),
        (lose_run_state, "not a sound checkpoint (run: "),
        (claim_a_huge_step, "not a sound checkpoint (step: "),
        (shorten_the_window, "run.window: found 2 metrics of a step, expected"),
        (add_a_key, "not a sound checkpoint (more: "),
    ],
)
def test_a_newest_checkpoint_that_is_not_whole_is_skipped_with_the_reason(
    stopped: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    damage: Callable[[Path], None],
    said: str,
) -> None:
    cache, run = stopped
    newest = copy_checkpoint(run)
    damage(newest)
    begun: list[int] = []
    monkeypatch.setattr(loop, "run", lambda context: begun.append(context.resumption.checkpoint.step) or {})
    begin(cache, run, resume=True)
    assert begun == [1]
    shown = capsys.readouterr().err
    assert "damaged checkpoint: " in shown
    assert said in shown
    assert [path.name for path in sorted(newest.parent.iterdir())] == ["damaged-step-00000002", "step-00000001"]


def test_a_run_without_a_sound_checkpoint_is_refused_each_time(stopped: tuple[Path, Path]) -> None:
    cache, run = stopped
    lose_state(run / "checkpoints" / "step-00000001")
    for _ in range(2):
        with pytest.raises(CheckpointError, match="run: none of its 1 checkpoints is sound"):
            begin(cache, run, resume=True)


def test_the_best_checkpoint_of_a_run_without_another_sound_one_is_offered(stopped: tuple[Path, Path]) -> None:
    cache, run = stopped
    shutil.copytree(run / "checkpoints", run / "best")
    lose_state(run / "checkpoints" / "step-00000001")
    remedy = f"begin a new run with best/: --init-from {run}/best --output NEW"
    for found in ("none of its 1 checkpoints is sound", "holds best/ but no checkpoint to go on from"):
        with pytest.raises(CheckpointError) as caught:
            begin(cache, run, resume=True)
        assert str(caught.value) == f"{run}: {found}; {remedy}"
        shutil.rmtree(run / "checkpoints", ignore_errors=True)


def test_settings_that_a_crash_left_empty_are_not_taken_for_defaults(stopped: tuple[Path, Path]) -> None:
    cache, run = stopped
    (run / "config.yaml").write_bytes(b"")
    with pytest.raises(OutputError, match=r"config.yaml: empty or no regular file, expected the run's settings"):
        begin(cache, run, resume=True)


def test_settings_that_do_not_fit_the_weights_leave_the_run_as_it_was(stopped: tuple[Path, Path]) -> None:
    cache, run = stopped
    settings = (run / "config.yaml").read_bytes()
    narrow = ["model.width=8", "model.heads=2", "model.feedforward_width=8"]
    with pytest.raises(CheckpointError, match=r"step-00000001: .*: found nothing, expected float32"):
        begin(cache, run, settings=narrow, resume=True, allow_change=("model",))
    assert (run / "config.yaml").read_bytes() == settings


def test_a_changed_setting_is_refused_before_tensorflow_starts(
    stopped: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*_: object, **__: object) -> None:
        raise Killed

    monkeypatch.setattr(train_module, "with_tensorflow", start)
    cache, run = stopped
    with pytest.raises(ConfigError, match=r"training\.warmup_steps: the run has 200, asked for is 7; leave these"):
        begin(cache, run, resume=True, settings=("training.warmup_steps=7",))
    # A run killed since has changed the setting, and it goes back to that of the checkpoint.
    path = run / "config.yaml"
    path.write_text(path.read_text(encoding="utf-8").replace("warmup_steps: 200", "warmup_steps: 7"), encoding="utf-8")
    with pytest.raises(Killed):
        begin(cache, run, resume=True, settings=("training.warmup_steps=200",))


def test_a_refused_resume_leaves_the_path_of_the_cache_as_it_was(
    stopped: tuple[Path, Path], tmp_path: Path, write_cache: WriteCache
) -> None:
    _, run = stopped
    (run / "cache.txt").write_text("its own\n", encoding="utf-8")
    write_cache(tmp_path / "other", train=24)
    with pytest.raises(ConfigError, match=r"cache: the run has .*--allow-change cache"):
        begin(tmp_path / "other", run, steps=2, resume=True)
    assert (run / "cache.txt").read_text(encoding="utf-8") == "its own\n"


def test_a_resumed_run_reads_its_own_cache(
    stopped: tuple[Path, Path], tmp_path: Path, write_cache: WriteCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, run = stopped
    write_cache_path(run, cache)
    write_cache(tmp_path / "elsewhere" / "cache", train=24)
    monkeypatch.chdir(tmp_path / "elsewhere")
    plans: list[RunPlan] = []
    monkeypatch.setattr(loop, "train", lambda _log, plan, *_: plans.append(plan))
    begin(None, run, steps=3, resume=True)
    assert plans[0].cache == cache
    (run / "cache.txt").write_text("gone\n", encoding="utf-8")
    with pytest.raises(CacheError, match="run: its cache gone is not on this machine; name a copy with --cache"):
        begin(None, run, steps=3, resume=True)


def test_a_run_resumed_before_its_first_checkpoint_keeps_its_own_settings(
    tmp_path: Path, write_cache: WriteCache, bases: list[Any]
) -> None:
    write_cache(tmp_path / "cache")
    run, own = tmp_path / "run", ["model.width=16", "model.heads=2"]
    with pytest.raises(Killed):
        begin(tmp_path / "cache", run, settings=own)
    settings = (run / "config.yaml").read_bytes()
    with pytest.raises(ConfigError, match=r"model.width: the run has 16, asked for is 32; .* --allow-change"):
        begin(tmp_path / "cache", run, settings=["model.width=32"], resume=True)
    with pytest.raises(Killed):
        begin(tmp_path / "cache", run, resume=True)
    assert (run / "config.yaml").read_bytes() == settings
    with pytest.raises(Killed):
        begin(tmp_path / "cache", run, settings=["model.width=32"], resume=True, allow_change=("model",))
    assert "width: 32" in (run / "config.yaml").read_text()
    assert bases == [None, None, None]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{", "not a summary (found '{': invalid JSON"),
        (b"[]", "not a summary"),
        (json.dumps({**SUMMARY, "steps": "7"}).encode(), "steps: found '7'"),
        (json.dumps({**SUMMARY, "steps": None}).encode(), "steps: found 'None'"),
        (json.dumps({**SUMMARY, "loss": {"first": 1.0}}).encode(), "loss.last: "),
        (json.dumps({**SUMMARY, "best": {**SUMMARY["best"], "value": "low"}}).encode(), "best.value: found 'low'"),
        (json.dumps({**SUMMARY, "by_function": {"f": 1}}).encode(), "by_function.f: found '1'"),
        (json.dumps({**SUMMARY, "step_ms": dict.fromkeys(("mean", "std", "p50", "p95"), 1.0)}).encode(), "step_ms: "),
        (json.dumps({**SUMMARY, "resumed_at_steps": 1}).encode(), "resumed_at_steps: found '1'"),
        (json.dumps({**SUMMARY, "network": "other"}).encode(), "network: found 'other'"),
        (b"[" * 100_000, "not a summary"),
        (b'{"steps": ' + b"9" * 20_000 + b"}", "not a summary"),
    ],
)
def test_a_summary_that_is_none_is_refused_in_one_line(stopped: tuple[Path, Path], content: bytes, said: str) -> None:
    cache, run = stopped
    (run / "summary.json").write_bytes(content)
    with pytest.raises(OutputError, match=r"summary.json: .*remove it, and --resume goes on") as caught:
        begin(cache, run, resume=True)
    assert said in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_finished_run_says_so_and_trains_nothing(
    stopped: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cache, run = stopped
    (run / "summary.json").write_text(json.dumps({**SUMMARY, "steps": 2}))
    monkeypatch.setattr(loop, "run", lambda _: pytest.fail("trained"))
    begin(cache, run, resume=True)
    said = f"already finished: {run} has taken 2 steps; a larger --steps continues it\n"
    assert capsys.readouterr().err == said


def test_a_run_that_patience_stopped_goes_on_with_other_clips_alone(
    stopped: tuple[Path, Path], tmp_path: Path, write_cache: WriteCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, run = stopped
    (run / "summary.json").write_text(json.dumps({**SUMMARY, "steps": 1, "stopped_early": True}))
    write_cache(tmp_path / "other", train=24)
    begun: list[int] = []
    monkeypatch.setattr(loop, "run", lambda context: begun.append(context.resumption.checkpoint.step) or {})
    begin(cache, run, resume=True, allow_change=("cache",))
    assert begun == []
    begin(tmp_path / "other", run, resume=True, allow_change=("cache",))
    assert begun == [1]


@pytest.mark.parametrize("damage", [lose_state, lose_weights, cut_weights, lose_run_state])
def test_a_finished_run_whose_last_checkpoint_is_damaged_goes_on_from_the_one_before(
    stopped: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, damage: Callable[[Path], None]
) -> None:
    cache, run = stopped
    damage(copy_checkpoint(run))
    (run / "summary.json").write_text(json.dumps({**SUMMARY, "steps": 2}))
    begun: list[int] = []
    monkeypatch.setattr(loop, "run", lambda context: begun.append(context.resumption.checkpoint.step) or {})
    begin(cache, run, resume=True)
    assert begun == [1]


RUN_FILES = ("config.yaml", "summary.json", "metrics.jsonl", "tensorflow.log", "checkpoints", "best", ".lock")


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *(("link", name) for name in (*RUN_FILES, "checkpoints/step-00000002", "tensorboard/train")),
        *(("pipe", name) for name in RUN_FILES),
    ],
)
def test_no_file_of_a_run_is_written_through_a_link_or_waits_for_a_pipe(
    tmp_path: Path, stopped: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, kind: str, name: str
) -> None:
    cache, run = stopped
    monkeypatch.setattr(loop, "run", lambda _: pytest.fail("trained"))
    elsewhere, path = tmp_path / "elsewhere", run / name
    path.parent.mkdir(exist_ok=True)
    if path.exists():
        path.rename(elsewhere)
    else:
        elsewhere.write_text("{}")
    if kind == "link":
        path.symlink_to(elsewhere)
    else:
        os.mkfifo(path)
    before = {file: file.read_bytes() for file in [elsewhere, *elsewhere.rglob("*")] if file.is_file()}
    with pytest.raises(XttsError, match=r"found a link|no regular file|a link, expected"):
        begin(cache, run, resume=True)
    assert {file: file.read_bytes() for file in [elsewhere, *elsewhere.rglob("*")] if file.is_file()} == before
