"""A run that is killed, damaged or changed, and goes on.

The step is one number here, so that what is asked is the run around it; test_kills.py asks it of the true one.
"""

import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.model.conftest import SPEC, random_batch
from tests.training.test_loop import CONFIG, TRAINING, MadeUpSource
from xtts_pipeline.config.load import dump_config
from xtts_pipeline.config.schema import Config
from xtts_pipeline.data.position import StreamPosition
from xtts_pipeline.errors import CheckpointError, ConfigError, InterruptedRunError, TrainingError
from xtts_pipeline.model.network import Batch
from xtts_pipeline.training import loop
from xtts_pipeline.training import resume as module
from xtts_pipeline.training.checkpoints import saver as saving
from xtts_pipeline.training.checkpoints.files import load_checkpoint
from xtts_pipeline.training.checkpoints.run_folder import checkpoint_folders, write_config
from xtts_pipeline.training.checkpoints.state import BestSoFar
from xtts_pipeline.training.loop import train
from xtts_pipeline.training.monitoring.metrics import METRICS_NAME, SKIPPED_NAME
from xtts_pipeline.training.resume import check_same_cache, resume
from xtts_pipeline.training.step import TrainStep

SETTINGS = TRAINING.model_copy(
    update={
        "steps": 12,
        "log_every": 3,
        "evaluate_every": 5,
        "save_every": 4,
        "keep_checkpoints": 3,
        "sample_every_evaluations": None,
    }
)
RUN_CONFIG = CONFIG.model_copy(update={"training": SETTINGS})
TIMES = ("step_ms", "data_wait_share", "device_share", "examples_per_second")


class TinyStep(tf.Module):
    """Stands for the compiled step: a weight that depends on every batch and on their order."""

    METRICS = TrainStep.METRICS

    def __init__(self, *_: object) -> None:
        super().__init__()
        self.weight, self.step, self.rate_factor = tf.Variable(1.0), tf.Variable(0, dtype=tf.int64), tf.Variable(1.0)
        self.loss_scale = None
        self.compiled = SimpleNamespace(
            functions=[self.count], is_new_shape=False, trace=lambda _: None, python_name="count"
        )

    def count(self) -> None:
        """Stand for the compiled function."""

    def __call__(self, batch: Batch) -> tf.Tensor:
        value = tf.reduce_mean(tf.cast(batch.mel, tf.float32))
        is_finite = bool(tf.math.is_finite(value))
        if is_finite:
            self.weight.assign(0.9 * self.weight + 1e-3 * value * self.rate_factor * tf.cast(self.step, tf.float32))
        self.step.assign_add(1)
        numbers = dict.fromkeys(self.METRICS, self.weight + 0.0 * value)
        return tf.stack(
            list({**numbers, "mel_frames": tf.constant(27.0), "is_skipped": tf.constant(float(not is_finite))}.values())
        )


class TinyValidation:
    """Stands for validation: its loss is worst in the middle of the run."""

    def __init__(self) -> None:
        self.evaluations = 0

    def evaluate(self, before_batch: Callable[[], None]) -> dict[str, float]:
        before_batch()
        self.evaluations += 1
        return {"loss": (3.0, 5.0, 1.0, 0.5)[self.evaluations - 1]}

    def is_speaking_due(self, **_: bool) -> bool:
        return False


class Unwatched:
    """Stands for the monitor."""

    def watch(self, *_: object, **__: object) -> None:
        pass

    def look(self, _: int) -> list[str]:
        return []

    def counts(self) -> dict[str, dict[str, int]]:
        return {}

    def compile_seconds(self, _function: str) -> float:
        return 0.0

    def memory(self, _function: str, _estimated_bytes: int | None) -> dict[str, int | None]:
        return {}

    events: tuple[()] = ()
    unexpected_shapes = 0


class Killed(BaseException):
    """Stands for SIGKILL: nothing of the run's own code sees it."""


class Source(MadeUpSource):
    """Notes where reading begins, has batches that are not finite, and kills the run when so many have been read."""

    def __init__(self, kill_after: int | None = None, bad: tuple[StreamPosition, ...] = ()) -> None:
        self.kill_after, self.bad = kill_after, bad
        self.begun: list[StreamPosition] = []

    def training_batches(
        self, config: object, signatures: object, position: StreamPosition, *_: object
    ) -> Iterator[Batch]:
        self.begun.append(position)
        for read, batch in enumerate(super().training_batches(config, signatures, position)):
            if read == self.kill_after:
                raise Killed
            yield batch._replace(mel=batch.mel * np.float16(np.nan)) if position in self.bad else batch
            position = position.after(3)

    def batch_clips(
        self, _config: object, _signatures: object, positions: Sequence[StreamPosition]
    ) -> list[list[tuple[str, bool]]]:
        return [[(f"sound-{at.epoch}", True), (f"bad-{at.batch}", at not in self.bad)] for at in positions]


class Silent:
    def show(self, step: int, split: str, numbers: Mapping[str, float]) -> None:
        pass

    def say(self, step: int, line: str) -> None:
        pass


class Said(list[str]):
    def __call__(self, line: str) -> None:
        self.append(line)


def go(
    run: Path, source: Source, config: Config = RUN_CONFIG, interruption: Any = None, allowed: tuple[str, ...] = ()
) -> dict[str, Any]:
    resumption = resume(run, source, config, allowed, Said())  # type: ignore[arg-type]
    return train(source, config, run, Unwatched(), Silent(), resumption, interruption)  # type: ignore[arg-type]


@pytest.fixture(scope="module", autouse=True)
def _tiny() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        # What a manifest says is asked at the end; a made-up cache has none.
        patch.setattr(module, "check_same_cache", lambda *_: None)
        patch.setattr(loop, "TrainStep", TinyStep)
        patch.setattr(loop, "Validation", lambda *_: TinyValidation())
        yield


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, _tiny: None) -> tuple[Path, dict[str, Any]]:
    """A run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("whole")
    return folder, go(folder, Source())


def metrics(run: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run / METRICS_NAME).read_text().splitlines()]
    return [{name: value for name, value in line.items() if name not in TIMES} for line in lines]


def test_a_killed_run_ends_as_if_nothing_had_happened(whole: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    folder, expected = whole
    for batches in (2, 7, 3):  # before any checkpoint; in an open window; before the next one again
        with pytest.raises(Killed):
            go(tmp_path, Source(kill_after=batches))
    source = Source()
    summary = go(tmp_path, source)
    assert summary["weights_sha256"] == expected["weights_sha256"]
    assert (summary["loss"], summary["best"], summary["warnings"]) == (
        expected["loss"],
        expected["best"],
        expected["warnings"],
    )
    assert metrics(tmp_path) == metrics(folder)
    # 2 batches and no checkpoint; 7 from the beginning, of which 5 are saved (the first evaluation is the best so far); 3 more, 8 saved.
    assert summary["resumed_at_steps"] == [5, 8]
    assert source.begun == [StreamPosition(2, 2)]
    assert load_checkpoint(tmp_path / "best").step == expected["best"]["step"]


def test_a_run_that_is_asked_to_stop_saves_the_step_it_is_at(
    whole: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    folder, expected = whole

    class AskedAtStep:
        """Asks when the run has looked so often: after each step, and before each batch of validation."""

        def __init__(self, looks: int) -> None:
            self.looks = looks

        @property
        def is_asked(self) -> bool:
            self.looks -= 1
            return self.looks < 0

    with pytest.raises(
        InterruptedRunError, match="interrupted after step 3, which is saved; the same command with --resume goes on"
    ):
        go(tmp_path, Source(), interruption=AskedAtStep(2))
    with pytest.raises(InterruptedRunError, match="after step 5"):  # in the middle of its validation
        go(tmp_path, Source(), interruption=AskedAtStep(2))
    assert not load_checkpoint(tmp_path).state.is_settled  # type: ignore[union-attr]
    summary = go(tmp_path, Source())
    assert summary["weights_sha256"] == expected["weights_sha256"]
    assert summary["resumed_at_steps"] == [3, 5]
    assert metrics(tmp_path) == metrics(folder)
    assert load_checkpoint(tmp_path / "best").step == expected["best"]["step"]


def copy(whole: tuple[Path, dict[str, Any]], to: Path) -> Path:
    return Path(shutil.copytree(whole[0], to))


def test_a_damaged_newest_checkpoint_is_named_and_the_one_before_it_used(
    whole: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    run = copy(whole, tmp_path / "run")
    *_, before, newest = checkpoint_folders(run)
    weights = newest / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x00\x01")
    said = Said()
    resumption = resume(run, Source(), RUN_CONFIG, (), said)  # type: ignore[arg-type]
    assert resumption is not None
    assert resumption.checkpoint.folder == before
    assert str(weights) in said[0]
    assert f"it is now {newest.with_name('damaged-' + newest.name)}" in said[0]
    assert said[1] == f"resuming after step {resumption.checkpoint.step} of {before}"
    assert go(run, Source())["weights_sha256"] == whole[1]["weights_sha256"]
    assert metrics(run) == metrics(whole[0])


def test_a_run_without_a_sound_checkpoint_is_not_begun_anew(whole: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    run = copy(whole, tmp_path / "run")
    for folder in checkpoint_folders(run):
        (folder / "state.json").write_bytes(b"{}")
    with pytest.raises(CheckpointError, match=r"none of its 3 checkpoints is sound"):
        resume(run, Source(), RUN_CONFIG, (), Said())  # type: ignore[arg-type]


def changed(**settings: object) -> Config:
    return RUN_CONFIG.model_copy(update={"training": SETTINGS.model_copy(update=settings)})


def test_other_settings_are_refused_by_their_keys_or_allowed(
    whole: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    run, config = copy(whole, tmp_path / "run"), changed(learning_rate=0.5, patience=3)
    with pytest.raises(
        ConfigError, match=r"learning_rate: the run has 0.001, asked for is 0.5; training.patience: the run has null"
    ) as caught:
        resume(run, Source(), config, (), Said())  # type: ignore[arg-type]
    assert str(caught.value).endswith("or add --allow-change training.learning_rate --allow-change training.patience")
    with pytest.raises(ConfigError, match=r"run: training.patience: .* or add --allow-change training.patience$"):
        resume(run, Source(), config, ("training.learning_rate",), Said())  # type: ignore[arg-type]
    for allowed in (("training",), ("training.learning_rate", "training.patience")):
        assert resume(run, Source(), config, allowed, Said()) is not None  # type: ignore[arg-type]


def test_a_change_that_was_allowed_is_not_asked_for_again_though_no_checkpoint_has_it_yet(
    whole: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    run, config = copy(whole, tmp_path / "run"), changed(steps=24)
    with pytest.raises(ConfigError, match=r"training.steps: the run has 12, asked for is 24"):
        resume(run, Source(), config, (), Said())  # type: ignore[arg-type]
    # What a run writes that goes on with them, before it is killed.
    write_config(run, dump_config(config))
    assert resume(run, Source(), config, (), Said()) is not None  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"training.steps: the run has 12, asked for is 36"):
        resume(run, Source(), changed(steps=36), (), Said())  # type: ignore[arg-type]


def test_where_the_order_of_clips_changed_the_next_epoch_begins(
    whole: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    said = Said()
    resumption = resume(copy(whole, tmp_path / "run"), Source(), changed(seed=8), ("training.seed",), said)  # type: ignore[arg-type]
    assert resumption is not None
    assert resumption.state.position == StreamPosition(5, 0)  # 12 batches of 3 an epoch were all of epochs 0 to 3
    assert said[0] == "training.seed changed: going on with epoch 5, from its beginning"


def test_fewer_steps_than_are_done_are_refused_and_more_go_on(
    whole: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    run = copy(whole, tmp_path / "run")
    with pytest.raises(ConfigError, match=r"12 steps are done, training.steps=11 is fewer"):
        resume(run, Source(), changed(steps=11), ("training.steps",), Said())  # type: ignore[arg-type]
    summary = go(run, Source(), changed(steps=14), allowed=("training.steps",))
    assert summary["steps"] == 14
    assert summary["loss"]["first"] == whole[1]["loss"]["first"]
    assert [line["step"] for line in metrics(run) if line["split"] == "train"] == [1, 3, 5, 6, 9, 10, 12, 14]


def test_patience_does_not_ask_whether_the_best_could_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Losses(TinyValidation):
        def evaluate(self, _: Callable[[], None]) -> dict[str, float]:
            self.evaluations += 1
            return {"loss": (3.0, 2.0, 2.5, 2.2)[self.evaluations - 1]}

    save_checkpoint, begin = saving.save_checkpoint, saving.CheckpointSaver.begin_when_free

    def refuse_step_6(run: Path, step: int, *rest: Any) -> Path:
        if step == 6:
            raise CheckpointError("no space")
        return save_checkpoint(run, step, *rest)

    def begin_and_wait(saver: saving.CheckpointSaver, snapshot: saving.Snapshot) -> None:
        begin(saver, snapshot)
        while saver.is_busy:
            time.sleep(0.001)

    monkeypatch.setattr(saving, "save_checkpoint", refuse_step_6)
    monkeypatch.setattr(saving.CheckpointSaver, "begin_when_free", begin_and_wait)
    monkeypatch.setattr(loop, "Validation", lambda *_: Losses())
    summary = go(tmp_path, Source(), changed(evaluate_every=3, save_every=50, patience=2, steps=50))
    assert (summary["steps"], summary["warnings"]) == (12, ["checkpoint not saved: no space"])
    # Better than what lies on the disk, though not than what was lost.
    assert summary["best"] == {"step": 12, "val_loss": 2.2}
    state = load_checkpoint(tmp_path / "best").state
    assert state is not None
    assert (state.best, state.best_on_disk) == (BestSoFar(6, 2.0, 2), BestSoFar(12, 2.2))


def test_lost_metrics_are_a_warning(whole: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    run = copy(whole, tmp_path / "run")
    (run / METRICS_NAME).write_bytes(b"")
    summary = go(run, Source(), changed(steps=13), allowed=("training.steps",))
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
    run, source = copy(whole, tmp_path / "run"), Source()
    source.records_digest = lambda: "others"  # type: ignore[method-assign]
    with pytest.raises(
        ConfigError, match=r'cache: the run has "clips made up", asked for is "clips others"; .* --allow-change cache'
    ):
        resume(run, source, RUN_CONFIG, (), Said())  # type: ignore[arg-type]
    assert resume(run, source, RUN_CONFIG, ("cache",), Said()).state.records == "others"  # type: ignore[arg-type, union-attr]


def skipped(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / SKIPPED_NAME).read_text().splitlines()]


def test_a_step_that_is_not_finite_is_left_out_counted_and_named(tmp_path: Path) -> None:
    bad = (StreamPosition(1, 1),)  # step 5
    summary = go(tmp_path, Source(bad=bad))
    (line,) = skipped(tmp_path)
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
    found = "step 5: the update was not finite and is left out (not finite in the cache: bad-1); skipped.jsonl has each such step"
    assert summary["warnings"][0] == found
    reports = {line["step"]: line for line in metrics(tmp_path) if line["split"] == "train"}
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


def test_a_killed_run_notes_what_was_skipped_once(tmp_path: Path) -> None:
    bad = (StreamPosition(1, 1), StreamPosition(2, 0))
    expected = go(folder(tmp_path / "whole"), Source(bad=bad))
    for batches in (6, 3):
        with pytest.raises(Killed):
            go(folder(tmp_path / "killed"), Source(kill_after=batches, bad=bad))
    found = go(tmp_path / "killed", Source(bad=bad))
    assert skipped(tmp_path / "killed") == skipped(tmp_path / "whole")
    assert (found["skipped_updates"], found["weights_sha256"]) == (2, expected["weights_sha256"])


def folder(path: Path) -> Path:
    path.mkdir(exist_ok=True)
    return path


def lost(*steps: int) -> Source:
    """Return batches of which those of the given steps, counted without rolling back, are not finite."""
    return Source(bad=tuple(StreamPosition(*divmod(step - 1, 3)) for step in steps))


def test_a_lost_run_goes_back_once_with_half_the_rate_and_on_with_the_data(tmp_path: Path) -> None:
    config = changed(max_consecutive_skips=3)
    summary = go(tmp_path, lost(6, 7, 8, 9), config)
    assert (summary["steps"], summary["rolled_back_at_step"], summary["skipped_updates"]) == (12, 9, 4)
    assert (
        "4 updates in a row were not finite (training.max_consecutive_skips=3); rolled back to step 5"
        in summary["warnings"][1]
    )
    checkpoint = load_checkpoint(tmp_path)
    assert checkpoint.arrays["rate_factor"] == 0.5
    assert checkpoint.state is not None
    assert checkpoint.state.position == StreamPosition(5, 1)  # 9 batches, and 7 more from step 5 to 12
    assert [line["not_finite"] for line in skipped(tmp_path)] == [[f"bad-{(step - 1) % 3}"] for step in (6, 7, 8, 9)]
    # The lines of steps 6 to 9 were taken back, and came again.
    assert [line["step"] for line in metrics(tmp_path) if line["split"] == "train"] == [1, 3, 5, 6, 9, 10, 12]
    assert [len(line["ids"]) for line in skipped(tmp_path)] == [2, 2, 2, 2]


def test_what_was_left_out_before_the_checkpoint_of_a_roll_back_is_counted_once(tmp_path: Path) -> None:
    """Step 12 is saved between two reports, with step 11 in its open window."""
    config = changed(max_consecutive_skips=3, log_every=5, evaluate_every=100, steps=20)
    summary = go(tmp_path, lost(11, 13, 14, 15), config)
    assert (summary["rolled_back_at_step"], summary["skipped_updates"]) == (15, 4)
    assert [line["step"] for line in skipped(tmp_path)] == [11, 13, 14, 15]


def test_a_damaged_checkpoint_on_the_way_back_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    newest_good, damaged = loop.newest_good, tmp_path / "checkpoints" / "step-00000005"

    def damage_and_look(run: Path, say: Callable[[str], None]) -> Any:
        (damaged / "state.json").write_bytes(b"{}")
        return newest_good(run, say)

    monkeypatch.setattr(loop, "newest_good", damage_and_look)
    summary = go(tmp_path, lost(6, 7, 8, 9), changed(max_consecutive_skips=3))
    assert str(damaged) in summary["warnings"][1]
    assert summary["warnings"][1].endswith("one before it will do")
    assert "rolled back to step 4" in summary["warnings"][2]


def test_a_run_that_is_lost_again_ends(tmp_path: Path) -> None:
    config = changed(max_consecutive_skips=3)
    with pytest.raises(
        TrainingError, match=r"step 9: 4 updates in a row .* after it had been rolled back at step 9; lower training"
    ):
        go(tmp_path, lost(6, 7, 8, 9, 10, 11, 12, 13), config)


def test_a_run_that_is_lost_from_the_beginning_has_nothing_to_go_back_to(tmp_path: Path) -> None:
    with pytest.raises(
        TrainingError, match=r"step 3: 3 updates in a row .* and there is no checkpoint to go back to; lower"
    ):
        go(tmp_path, lost(1, 2, 3), changed(max_consecutive_skips=3))


def test_batches_depend_on_the_position_alone() -> None:
    first, second = (next(Source().training_batches(None, None, StreamPosition(1, batch))) for batch in (0, 1))
    assert (first.mel.numpy() != second.mel.numpy()).any()
    assert (first.mel.numpy() == random_batch(SPEC, (9, 4), (20, 7), seed=10).mel.numpy()).all()
