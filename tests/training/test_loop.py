"""Whole runs of a tiny network on made-up batches, without XLA: what a run does, not how fast."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf

from tests.json_lines import read_json_lines
from tests.model.conftest import MODEL, SPEC, random_batch
from tests.training.monitoring.events import read_values
from xtts_pipeline import plots as pictures
from xtts_pipeline.cache.format.identity import CacheIdentity
from xtts_pipeline.config.schema import AudioConfig, Config, LimitsConfig, SynthesisConfig, TrainingConfig
from xtts_pipeline.data.schedule import StreamPosition
from xtts_pipeline.model.batch import Batch
from xtts_pipeline.training import loop
from xtts_pipeline.training.acoustic import validation
from xtts_pipeline.training.checkpoints.files import load_checkpoint
from xtts_pipeline.training.context import RunContext
from xtts_pipeline.training.monitoring.compilations import CompilationMonitor

PNG = tf.io.encode_png(tf.zeros([2, 3, 1], tf.uint8)).numpy()
TRAINING = TrainingConfig(
    batch_size=2,
    steps=4,
    log_every=2,
    evaluate_every=2,
    save_every=3,
    keep_checkpoints=1,
    aligned_by_step=3,
    sample_every_evaluations=2,
    sample_sentences=2,
    jit_compile=False,
)
CONFIG = Config(
    audio=AudioConfig(mel_bins=SPEC.mel_bins, max_hz=4_000.0, floor=math.exp(SPEC.pad_value)),
    limits=LimitsConfig(max_text_length=SPEC.max_text_length, max_mel_frames=SPEC.max_mel_frames),
    model=MODEL,
    training=TRAINING,
    synthesis=SynthesisConfig(griffin_lim_iterations=1),
)


class MadeUpSource:
    """Replaces a cache with two training clips and three validation clips."""

    manifest = SimpleNamespace(audio=CONFIG.audio, limits=CONFIG.limits, symbols=tuple("abcdefgh"))
    specs = (SPEC,)
    wait_advice = "look why"
    validation_clips = 3

    def check_unchanged(self) -> None:
        pass

    def identity(self) -> CacheIdentity:
        return CacheIdentity("f" * 64, SPEC, self.manifest.symbols, ("anna",), ("en",))

    def records_digest(self) -> str:
        return "made up"

    def batches_per_epoch(self, _: object) -> int:
        return 3

    def training_batches(
        self, _config: object, _signatures: object, position: StreamPosition, *_: object
    ) -> Iterator[Batch]:
        while True:
            yield random_batch(SPEC, (9, 4), (20, 7), seed=10 * position.epoch + position.batch)
            position = position.moved(1, 3)

    def batch_clips(self, _config: object, _signatures: object, positions: Sequence[StreamPosition]) -> list[Any]:
        return [[] for _ in positions]

    def validation_batches(self, *_: object) -> Iterator[Batch]:
        yield random_batch(SPEC, (5, 8), (12, 20), seed=1)
        yield random_batch(SPEC, (7, 0), (15, 0), seed=2)

    def validation_sentences(self, _: Batch) -> Batch:
        return random_batch(SPEC, (5, 8), (12, 20), seed=1)


class NoCompilations:
    """Replaces TensorFlow's log in a run without XLA."""

    def compilations(self) -> dict[str, int]:
        return {}

    def compile_seconds(self, _function: str) -> float:
        return 0.0

    def program_bytes(self, _function: str) -> int | None:
        return None


@dataclass
class Watcher:
    """Records what a run shows and logs."""

    shown: list[tuple[int, str]] = field(default_factory=list)
    logged: list[tuple[int | None, str]] = field(default_factory=list)

    def show(self, step: int, split: str, _: Mapping[str, float]) -> None:
        self.shown.append((step, split))

    def end_evaluation(self, step: int) -> None:
        self.shown.append((step, "end"))

    def compiling(self, _function: str) -> AbstractContextManager[None]:
        return nullcontext()

    def log(self, line: str, step: int | None = None) -> None:
        self.logged.append((step, line))


@dataclass(frozen=True)
class Ended:
    """A run that is over."""

    folder: Path
    summary: dict[str, Any]
    watcher: Watcher

    def metrics(self, split: str) -> list[dict[str, Any]]:
        return [line for line in read_json_lines(self.folder / "metrics.jsonl") if line["split"] == split]


def run(folder: Path, **settings: object) -> Ended:
    config = CONFIG.model_copy(update={"training": TRAINING.model_copy(update=settings)})
    monitor = CompilationMonitor(NoCompilations(), is_strict=True, is_compiled=False)  # type: ignore[arg-type]
    watcher = Watcher()
    with RunContext(folder, config, MadeUpSource(), monitor, watcher) as context:  # type: ignore[arg-type]
        return Ended(folder, loop.run(context), watcher)


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ended]:
    with pytest.MonkeyPatch.context() as patch:
        # Plots have their own tests, and loading matplotlib takes longer than this run.
        patch.setattr(pictures, "encode_comparison", lambda *_: PNG)
        yield run(tmp_path_factory.mktemp("run"))


def test_reports_evaluations_and_samples_come_when_due(ended: Ended) -> None:
    assert ended.watcher.shown == [
        (1, "train"),
        (2, "train"),
        (2, "val"),
        (2, "end"),
        (4, "train"),
        (4, "val"),
        (4, "speech"),
        (4, "end"),
    ]
    (speech,) = ended.metrics("speech")
    assert set(speech) == {
        "step",
        "split",
        "stop_rate",
        "duration_ratio",
    }
    assert 0.0 <= speech["stop_rate"] <= 1.0
    assert speech["duration_ratio"] > 0.0


def test_training_validation_and_speech_are_traced_once_each(ended: Ended) -> None:
    assert ended.summary["by_function"] == {
        name: {"traces": 1, "compilations": 0} for name in ("train_step", "evaluate_step", "speak_step")
    }


def test_late_alignment_is_warned_of_once(ended: Ended) -> None:
    (_, first), (step, line) = ended.watcher.logged
    assert first.startswith("first step done after ")
    assert step == 4
    assert line.startswith("warning: frames have not aligned with tokens")
    assert ended.summary["warnings"] == [line.removeprefix("warning: ")]
    assert ended.summary["aligned_at_step"] is None


def test_the_last_and_the_best_checkpoint_are_kept(ended: Ended) -> None:
    distortions = {line["step"]: line["distortion_db"] for line in ended.metrics("val")}
    step = min(distortions, key=distortions.__getitem__)
    assert ended.summary["best"] == {"step": step, "metric": "distortion_db", "value": distortions[step]}
    assert load_checkpoint(ended.folder / "best").step == step
    assert load_checkpoint(ended.folder).step == 4
    assert [path.name for path in (ended.folder / "checkpoints").iterdir()] == ["step-00000004"]


def test_samples_are_written_to_tensorboard(ended: Ended) -> None:
    tags = {value.tag for _, value in read_values(ended.folder / "tensorboard" / "media")}
    assert tags == {
        f"sentence_{number}/{kind}" for number in (1, 2) for kind in ("mels_and_tokens", "text", "true", "spoken")
    }
    assert ended.summary["dropped_media"] == 0


def test_the_summary_is_on_disk(ended: Ended) -> None:
    assert json.loads((ended.folder / "summary.json").read_text()) == ended.summary
    assert (ended.summary["steps"], ended.summary["stopped_early"]) == (4, False)


def set_losses(monkeypatch: pytest.MonkeyPatch, losses: Sequence[float]) -> None:
    """Have each evaluation return the next of these losses."""
    coming = iter(losses)
    monkeypatch.setattr(validation, "mean_losses", lambda *_: {"loss": next(coming)})


def test_a_run_stops_early_when_validation_no_longer_improves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_losses(monkeypatch, [3.0, 2.0, 2.5, math.nan])
    ended = run(tmp_path, steps=50, evaluate_every=1, patience=2, sample_every_evaluations=None, aligned_by_step=50)
    assert (ended.summary["steps"], ended.summary["stopped_early"]) == (4, True)
    assert ended.summary["best"] == {"step": 2, "metric": "loss", "value": 2.0}
    assert load_checkpoint(tmp_path).step == 4
    assert load_checkpoint(tmp_path / "best").step == 2
    assert ended.watcher.logged[1:] == [
        (4, "stopping early: 2 evaluations without a validation loss under 2.000 of step 2 (training.patience)")
    ]
    assert "speak_step" not in ended.summary["by_function"]
