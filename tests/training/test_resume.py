"""Resume a run that was killed, interrupted, damaged or changed.

The step is one number here; test_kills.py tests the same with the real step.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf

from tests.training.tiny_run import (
    RUN_CONFIG,
    AskedAtCheck,
    Killed,
    TinySource,
    TinyStep,
    TinyValidation,
    config_with,
    read_metrics,
    resume_and_train,
)
from tests.waiting import wait_until
from xtts_pipeline.config.load import dump_config
from xtts_pipeline.data.schedule import StreamPosition
from xtts_pipeline.errors import CheckpointError, ConfigError, InterruptedRunError
from xtts_pipeline.training import resume as module
from xtts_pipeline.training.acoustic import task
from xtts_pipeline.training.acoustic.task import AcousticTask
from xtts_pipeline.training.checkpoints import saver as saving
from xtts_pipeline.training.checkpoints.files import load_checkpoint
from xtts_pipeline.training.checkpoints.run_folder import METRICS_NAME, checkpoint_folders, write_config
from xtts_pipeline.training.checkpoints.state import BestEvaluation
from xtts_pipeline.training.optimizer import LossScale
from xtts_pipeline.training.resume import check_same_cache, resume

pytestmark = pytest.mark.usefixtures("tiny_training")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, tiny_training: None) -> tuple[Path, dict[str, Any]]:
    """A run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("whole")
    return folder, resume_and_train(folder, TinySource())


def ignore(_line: str) -> None:
    pass


def test_a_killed_and_resumed_run_equals_an_undisturbed_one(whole: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    folder, expected = whole
    for batches in (2, 7, 3):  # before any checkpoint; within a window; before the next checkpoint
        with pytest.raises(Killed):
            resume_and_train(tmp_path, TinySource(kill_after=batches))
    source = TinySource()
    summary = resume_and_train(tmp_path, source)
    assert summary["weights_sha256"] == expected["weights_sha256"]
    assert (summary["loss"], summary["best"], summary["warnings"]) == (
        expected["loss"],
        expected["best"],
        expected["warnings"],
    )
    assert read_metrics(tmp_path) == read_metrics(folder)
    # 2 batches, none saved; 7 from the start, 5 saved as the best so far; 3 more, 8 saved.
    assert summary["resumed_at_steps"] == [5, 8]
    assert source.starts == [StreamPosition(2, 2)]
    assert load_checkpoint(tmp_path / "best").step == expected["best"]["step"]


def test_an_interrupted_run_saves_its_current_step(whole: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    folder, expected = whole

    with pytest.raises(
        InterruptedRunError, match="interrupted after step 3, which is saved; the same command with --resume goes on"
    ):
        resume_and_train(tmp_path, TinySource(), interruption=AskedAtCheck(2))
    with pytest.raises(InterruptedRunError, match="after step 5"):  # in the middle of its validation
        resume_and_train(tmp_path, TinySource(), interruption=AskedAtCheck(2))
    assert not load_checkpoint(tmp_path).state.is_settled  # type: ignore[union-attr]
    summary = resume_and_train(tmp_path, TinySource())
    assert summary["weights_sha256"] == expected["weights_sha256"]
    assert summary["resumed_at_steps"] == [3, 5]
    assert read_metrics(tmp_path) == read_metrics(folder)
    assert load_checkpoint(tmp_path / "best").step == expected["best"]["step"]


def test_a_last_evaluation_that_was_interrupted_is_kept_when_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interruption, calls = SimpleNamespace(is_asked=False), iter(range(100))

    def evaluate(self: TinyValidation, before_batch: Callable[[], None]) -> dict[str, float]:
        interruption.is_asked = next(calls) == 1
        before_batch()
        self.evaluations += 1
        return {"loss": (3.0, 1.0, 2.0, 2.5)[self.evaluations - 1]}

    monkeypatch.setattr(TinyValidation, "evaluate", evaluate)
    # The run ends with an evaluation that is due only because it ends.
    with pytest.raises(InterruptedRunError, match="interrupted after step 7, which is saved"):
        resume_and_train(tmp_path, TinySource(), config_with(steps=7), interruption)
    best = {"step": 7, "metric": "loss", "value": 1.0}
    assert resume_and_train(tmp_path, TinySource(), config_with(steps=7))["best"] == best
    longer = resume_and_train(tmp_path, TinySource(), config_with(steps=12), allowed=("training.steps",))
    assert longer["best"] == best
    assert load_checkpoint(tmp_path / "best").step == 7
    assert [line["step"] for line in read_metrics(tmp_path) if line["split"] == "val"] == [5, 7, 10, 12]


def test_a_step_saved_by_an_interruption_is_not_followed_by_another_checkpoint(tmp_path: Path) -> None:
    config = config_with(evaluate_every=100, keep_checkpoints=9)
    with pytest.raises(InterruptedRunError, match="interrupted after step 4, which is saved"):
        resume_and_train(tmp_path, TinySource(), config, AskedAtCheck(3))
    resume_and_train(tmp_path, TinySource(), config)
    steps = [int(folder.name.removeprefix("step-")) for folder in checkpoint_folders(tmp_path)]
    assert steps[0] == 4
    assert 5 not in steps


def test_a_run_whose_last_state_the_disk_refuses_is_not_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise CheckpointError("no space left")

    config = config_with(steps=4)
    with pytest.raises(InterruptedRunError, match="interrupted after step 4, which is saved"):
        resume_and_train(tmp_path, TinySource(), config, AskedAtCheck(3))
    with monkeypatch.context() as patched:
        patched.setattr(saving, "replace_state", refuse)
        with pytest.raises(CheckpointError, match="no space left"):
            resume_and_train(tmp_path, TinySource(), config)
    assert resume_and_train(tmp_path, TinySource(), config)["best"] == {"step": 4, "metric": "loss", "value": 3.0}


@pytest.mark.parametrize(("log_every", "reports"), [(2, [1, 2, 4]), (3, [1, 3, 4])])
def test_a_run_that_is_to_end_at_a_saved_step_has_its_last_report_and_evaluation(
    tmp_path: Path, log_every: int, reports: list[int]
) -> None:
    with pytest.raises(Killed):
        resume_and_train(tmp_path, TinySource(kill_after=5), config_with(log_every=log_every, evaluate_every=100))
    config = config_with(log_every=log_every, evaluate_every=100, steps=4)
    ended = resume_and_train(tmp_path, TinySource(), config, allowed=("training.steps",))
    assert (ended["steps"], ended["best"]) == (4, {"step": 4, "metric": "loss", "value": 3.0})
    assert [line["step"] for line in read_metrics(tmp_path) if line["split"] == "train"] == reports
    assert [line["step"] for line in read_metrics(tmp_path) if line["split"] == "val"] == [4]


def test_a_run_without_validation_that_is_to_end_at_a_saved_step_has_its_last_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AcousticTask, "open_validation", lambda *_: None)
    settings = {"log_every": 3, "evaluate_every": 4}
    with pytest.raises(Killed):
        resume_and_train(tmp_path, TinySource(kill_after=5), config_with(**settings))
    resume_and_train(tmp_path, TinySource(), config_with(**settings, steps=4), allowed=("training.steps",))
    assert [line["step"] for line in read_metrics(tmp_path) if line["split"] == "train"] == [1, 3, 4]


@pytest.mark.parametrize(("place", "call", "saved"), [(TinyStep, "__call__", 3), (TinyValidation, "evaluate", 5)])
def test_an_interruption_that_stops_the_compiler_too_saves_the_run(
    whole: tuple[Path, dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: type,
    call: str,
    saved: int,
) -> None:
    interruption, usual, calls = SimpleNamespace(is_asked=False), getattr(place, call), iter(range(100))

    def interrupted(*arguments: Any) -> Any:
        if next(calls) < (3 if place is TinyStep else 0):
            return usual(*arguments)
        interruption.is_asked = True
        raise tf.errors.InternalError(None, None, "ptxas exited with non-zero error code 2")

    with monkeypatch.context() as patched:
        patched.setattr(place, call, interrupted)
        with pytest.raises(InterruptedRunError, match=f"interrupted after step {saved}, which is saved"):
            resume_and_train(tmp_path, TinySource(), interruption=interruption)
    assert resume_and_train(tmp_path, TinySource())["weights_sha256"] == whole[1]["weights_sha256"]
    assert read_metrics(tmp_path) == read_metrics(whole[0])


def test_an_interruption_in_the_first_compilation_says_that_nothing_was_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise tf.errors.InternalError(None, None, "ptxas exited with non-zero error code 2")

    monkeypatch.setattr(TinyStep, "__call__", fail)
    with pytest.raises(InterruptedRunError, match="interrupted before the first step; the same command with --resume"):
        resume_and_train(tmp_path, TinySource(), interruption=SimpleNamespace(is_asked=True))
    with pytest.raises(tf.errors.InternalError, match="ptxas"):
        resume_and_train(tmp_path, TinySource(), interruption=SimpleNamespace(is_asked=False))


def copy(whole: tuple[Path, dict[str, Any]], to: Path) -> Path:
    return Path(shutil.copytree(whole[0], to))


def test_a_damaged_newest_checkpoint_is_logged_and_the_one_before_it_used(
    whole: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    run = copy(whole, tmp_path / "run")
    *_, before, newest = checkpoint_folders(run)
    weights = newest / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x00\x01")
    logged: list[str] = []
    resumption = resume(run, TinySource(), RUN_CONFIG, (), logged.append)  # type: ignore[arg-type]
    assert resumption is not None
    assert resumption.checkpoint.folder == before
    assert str(weights) in logged[0]
    assert f"it is now {newest.with_name('damaged-' + newest.name)}" in logged[0]
    assert logged[1] == f"resuming after step {resumption.checkpoint.step} of {before}"
    assert resume_and_train(run, TinySource())["weights_sha256"] == whole[1]["weights_sha256"]
    assert read_metrics(run) == read_metrics(whole[0])


@pytest.mark.parametrize("changed", [{"steps": 30}, {"learning_rate": 0.5}])
def test_a_run_that_patience_stopped_goes_on_with_another_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: dict[str, float]
) -> None:
    def evaluate(self: TinyValidation, before_batch: Callable[[], None]) -> dict[str, float]:
        before_batch()
        self.evaluations += 1
        return {"loss": float(self.evaluations)}

    monkeypatch.setattr(TinyValidation, "evaluate", evaluate)
    settings = {"steps": 20, "evaluate_every": 1, "patience": 3}
    assert resume_and_train(tmp_path, TinySource(), config_with(**settings))["steps"] == 4
    assert resume_and_train(tmp_path, TinySource(), config_with(**settings))["steps"] == 4
    ended = resume_and_train(tmp_path, TinySource(), config_with(**settings | changed), allowed=("training",))
    assert (ended["steps"], ended["stopped_early"], ended["best"]["step"]) == (7, True, 1)


def test_a_run_whose_checkpoints_are_all_damaged_is_refused(whole: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    run = copy(whole, tmp_path / "run")
    for folder in checkpoint_folders(run):
        (folder / "state.json").write_bytes(b"{}")
    with pytest.raises(CheckpointError, match=r"none of its 3 checkpoints is sound"):
        resume(run, TinySource(), RUN_CONFIG, (), ignore)  # type: ignore[arg-type]


def test_changed_settings_are_refused_unless_allowed_by_key_or_section(
    whole: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    run, config = copy(whole, tmp_path / "run"), config_with(learning_rate=0.5, patience=3)
    with pytest.raises(
        ConfigError, match=r"learning_rate: the run has 0.001, asked for is 0.5; training.patience: the run has null"
    ) as caught:
        resume(run, TinySource(), config, (), ignore)  # type: ignore[arg-type]
    assert str(caught.value).endswith("or add --allow-change training.learning_rate --allow-change training.patience")
    with pytest.raises(ConfigError, match=r"run: training.patience: .* or add --allow-change training.patience$"):
        resume(run, TinySource(), config, ("training.learning_rate",), ignore)  # type: ignore[arg-type]
    for allowed in (("training",), ("training.learning_rate", "training.patience")):
        assert resume(run, TinySource(), config, allowed, ignore) is not None  # type: ignore[arg-type]


def test_a_change_in_config_yaml_was_allowed_before_and_needs_no_option(
    whole: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    run, config = copy(whole, tmp_path / "run"), config_with(steps=24)
    with pytest.raises(ConfigError, match=r"training.steps: the run has 12, asked for is 24"):
        resume(run, TinySource(), config, (), ignore)  # type: ignore[arg-type]
    # A resumed run writes its settings before it is killed.
    write_config(run, dump_config(config), "acoustic")
    assert resume(run, TinySource(), config, (), ignore) is not None  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"training.steps: the run has 12, asked for is 36"):
        resume(run, TinySource(), config_with(steps=36), (), ignore)  # type: ignore[arg-type]


@pytest.mark.parametrize("key", ["training.seed", "vocoder.crop_frames", "vocoder.crops_per_clip"])
def test_a_changed_order_of_clips_starts_the_next_epoch(
    whole: tuple[Path, dict[str, Any]], tmp_path: Path, key: str
) -> None:
    logged: list[str] = []
    section, name = key.split(".")
    config = RUN_CONFIG.with_settings(section, **{name: 8})
    resumption = resume(copy(whole, tmp_path / "run"), TinySource(), config, (key,), logged.append)  # type: ignore[arg-type]
    assert resumption is not None
    assert resumption.state.position == StreamPosition(5, 0)  # 12 batches of 3 an epoch were all of epochs 0 to 3
    assert logged[0] == f"{key} changed: going on with epoch 5, from its beginning"


@pytest.mark.parametrize(
    ("section", "key", "value"), [("synthesis", "guidance", 1.5), ("model", "reference_frames", 16)]
)
def test_a_changed_measure_begins_the_best_evaluation_anew(
    whole: tuple[Path, dict[str, Any]], tmp_path: Path, section: str, key: str, value: float
) -> None:
    run, logged = copy(whole, tmp_path / "run"), list[str]()
    config = RUN_CONFIG.with_settings(section, **{key: value})
    resumption = resume(run, TinySource(), config, (section,), logged.append)  # type: ignore[arg-type]
    assert resumption is not None
    assert (resumption.state.best, resumption.state.best_on_disk) == (BestEvaluation(), None)
    assert logged[0].startswith("the best evaluation so far, of step ")


def test_a_step_that_was_due_for_a_report_is_reported_in_another_order_of_clips(tmp_path: Path) -> None:
    with pytest.raises(InterruptedRunError, match="interrupted after step 3"):
        resume_and_train(tmp_path, TinySource(), interruption=AskedAtCheck(2))
    resume_and_train(tmp_path, TinySource(), config_with(seed=7), allowed=("training.seed",))
    (line,) = (line for line in read_metrics(tmp_path) if line["step"] == 3)
    assert line["loss"] is not None


def test_fewer_steps_than_done_are_refused_and_more_steps_continue(
    whole: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    run = copy(whole, tmp_path / "run")
    with pytest.raises(ConfigError, match=r"12 steps are done, training.steps=11 is fewer"):
        resume(run, TinySource(), config_with(steps=11), ("training.steps",), ignore)  # type: ignore[arg-type]
    summary = resume_and_train(run, TinySource(), config_with(steps=14), allowed=("training.steps",))
    assert summary["steps"] == 14
    assert summary["loss"]["first"] == whole[1]["loss"]["first"]
    assert [line["step"] for line in read_metrics(run) if line["split"] == "train"] == [1, 3, 5, 6, 9, 10, 12, 14]


def test_a_loss_scale_ends_with_float16_and_begins_anew_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class ScaledStep(TinyStep):
        def __init__(self, *_: object) -> None:
            super().__init__()
            self.loss_scale = LossScale()

    scale = {"loss_scale.scale", "loss_scale.finite_steps"}
    for steps, step, names in ((4, ScaledStep, scale), (8, TinyStep, set()), (12, ScaledStep, scale)):
        monkeypatch.setattr(task, "AcousticStep", step)
        settings = config_with(steps=steps, evaluate_every=100)
        resume_and_train(tmp_path, TinySource(), settings, allowed=("training",))
        newest = load_checkpoint(checkpoint_folders(tmp_path)[-1])
        assert newest.step == steps
        assert {name for name in newest.arrays if name.startswith("loss_scale")} == names


def test_patience_does_not_depend_on_whether_the_best_checkpoint_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Losses(TinyValidation):
        def evaluate(self, _: Callable[[], None]) -> dict[str, float]:
            self.evaluations += 1
            return {"loss": (3.0, 2.0, 2.5, 2.2)[self.evaluations - 1]}

    save_checkpoint, begin = saving.save_checkpoint, saving.CheckpointSaver.enqueue

    def refuse_step_6(run: Path, step: int, *rest: Any) -> Path:
        if step == 6:
            raise CheckpointError("no space")
        return save_checkpoint(run, step, *rest)

    def begin_and_wait(saver: saving.CheckpointSaver, snapshot: saving.Snapshot) -> None:
        begin(saver, snapshot)
        wait_until(lambda: not saver.is_busy)

    monkeypatch.setattr(saving, "save_checkpoint", refuse_step_6)
    monkeypatch.setattr(saving.CheckpointSaver, "enqueue", begin_and_wait)
    monkeypatch.setattr(task, "AcousticValidation", lambda *_: Losses())
    summary = resume_and_train(
        tmp_path, TinySource(), config_with(evaluate_every=3, save_every=50, patience=2, steps=50)
    )
    assert (summary["steps"], summary["warnings"]) == (12, ["checkpoint not saved: no space"])
    # Better than the one on disk, though not than the lost one.
    assert summary["best"] == {"step": 12, "metric": "loss", "value": 2.2}
    state = load_checkpoint(tmp_path / "best").state
    assert state is not None
    assert (state.best, state.best_on_disk) == (BestEvaluation(6, "loss", 2.0, 2), BestEvaluation(12, "loss", 2.2))


def test_lost_metrics_are_a_warning(whole: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    run = copy(whole, tmp_path / "run")
    (run / METRICS_NAME).write_bytes(b"")
    summary = resume_and_train(run, TinySource(), config_with(steps=13), allowed=("training.steps",))
    assert "bytes fewer than at step 12; reports before it are lost" in summary["warnings"][-1]


def test_a_checkpoint_of_another_cache_is_refused(
    whole: tuple[Path, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = load_checkpoint(whole[0])
    same = SimpleNamespace(
        fingerprint="f" * 64, speakers=("anna",), languages=("en",), symbols=checkpoint.cache.symbols
    )
    check_same_cache(checkpoint, same)  # type: ignore[arg-type]
    other = SimpleNamespace(**{**vars(same), "speakers": ("anna", "ben")})
    monkeypatch.setattr(module, "config_differences", lambda *_: [])
    with pytest.raises(CheckpointError, match="trained on another cache: speakers: the cache has 2, the run 1"):
        check_same_cache(checkpoint, other)  # type: ignore[arg-type]


def test_other_clips_are_refused_as_a_change_of_the_cache(whole: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    run, source = copy(whole, tmp_path / "run"), TinySource()
    source.records_digest = lambda: "others"  # type: ignore[method-assign]
    with pytest.raises(
        ConfigError, match=r'cache: the run has "clips made up", asked for is "clips others"; .* --allow-change cache'
    ):
        resume(run, source, RUN_CONFIG, (), ignore)  # type: ignore[arg-type]
    assert resume(run, source, RUN_CONFIG, ("cache",), ignore).state.records == "others"  # type: ignore[arg-type, union-attr]


def test_a_best_evaluation_on_other_clips_no_longer_counts(whole: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    run, source, lines = copy(whole, tmp_path / "run"), TinySource(), []
    found = resume(run, source, RUN_CONFIG, (), ignore)  # type: ignore[arg-type]
    assert found is not None
    assert found.state.best.step > 0
    source.records_digest = lambda: "others"  # type: ignore[method-assign]
    changed = resume(run, source, RUN_CONFIG, ("cache",), lines.append)  # type: ignore[arg-type]
    assert changed is not None
    assert (changed.state.best, changed.state.best_on_disk) == (BestEvaluation(), None)
    assert f"the best evaluation so far, of step {found.state.best.step}, no longer counts" in "".join(lines)
