"""`xtts train-vocoder`: a whole small run, resumed, begun with another one, and refused."""

import json
import shutil
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import Result

from tests.cache.corpora import build, make_config, write_corpus
from tests.calling import xtts
from tests.json_lines import read_json_lines
from tests.training.vocoder.test_step import SMALL
from xtts_pipeline.cli import training_options
from xtts_pipeline.cli.commands import diagnose as diagnose_module
from xtts_pipeline.cli.commands.vocoder import train_vocoder as module
from xtts_pipeline.config.load import load_config
from xtts_pipeline.errors import CacheError, CheckpointError, ConfigError
from xtts_pipeline.training.checkpoints.files import load_checkpoint, load_generator
from xtts_pipeline.vocoder.neural import NeuralVocoder

WAVES = "cache.store_waves=true"
TRAINING = (
    "training.log_every=2",
    "training.evaluate_every=3",
    "training.save_every=2",
    "training.sample_every_evaluations=null",
    "vocoder.adversarial_weight=1",
    "vocoder.adversarial_start=3",
)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("vocoder")
    build(write_corpus(root / "data", 24), root / "cache", make_config(WAVES))
    return root / "cache"


def train(cache: Path, run: Path, steps: int, *options: str) -> dict[str, Any]:
    settings = [f"--set={setting}" for setting in (*SMALL, *TRAINING)]
    words = ("train-vocoder", "--cache", cache, "--output", run, "--steps", steps, "--json", *settings, *options)
    result = xtts(*words, catch_exceptions=False, standalone_mode=False)
    summary: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return summary


@pytest.fixture(scope="module")
def run(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "whole"
    summary = train(cache, folder, 6)
    assert (summary["network"], summary["steps"], summary["traces"]) == ("vocoder", 6, 3)
    return folder


def test_a_trained_vocoder_turns_frames_into_sound(run: Path) -> None:
    vocoder = NeuralVocoder(load_generator(load_checkpoint(run)))
    wave = vocoder(np.full((20, 8), -3.0, np.float32))
    assert wave.shape == (19 * 128,)
    assert np.isfinite(wave).all()
    lines = read_json_lines(run / "metrics.jsonl")
    assert [(line["step"], line["split"]) for line in lines if line["split"] == "val"] == [(3, "val"), (6, "val")]
    by_step = {line["step"]: line for line in lines if line["split"] == "train"}
    assert (by_step[2]["discriminator_loss"], by_step[2]["adversarial_loss"]) == (0.0, 0.0)
    assert min(by_step[6][name] for name in ("adversarial_loss", "feature_loss", "discriminator_loss")) > 0.0


def test_a_resumed_run_ends_with_the_same_weights(cache: Path, run: Path, tmp_path: Path) -> None:
    train(cache, tmp_path / "run", 4)
    train(cache, tmp_path / "run", 6, "--resume")
    assert load_checkpoint(tmp_path / "run").weights_sha256 == load_checkpoint(run).weights_sha256


def test_a_run_may_begin_with_the_weights_of_another_vocoder(cache: Path, run: Path, tmp_path: Path) -> None:
    summary = train(cache, tmp_path / "run", 1, "--init-from", str(run), "--set", "training.learning_rate=1e-12")
    base, begun = load_checkpoint(run).arrays, load_checkpoint(tmp_path / "run").arrays
    assert summary["origin"]["kept_share"] == 1.0
    for name, value in begun.items():
        if name.startswith("network."):
            np.testing.assert_allclose(value, base[name.replace("network.", "average.", 1)], atol=1e-6)
        if name.startswith("discriminators."):
            np.testing.assert_allclose(value, base[name], atol=1e-6)


def diagnose(*words: object) -> Result:
    return xtts("diagnose", *words)


def test_both_phases_of_a_vocoders_step_are_diagnosed(run: Path) -> None:
    result = diagnose("retracing", "--run", run, "--steps", 2, "--json")
    report = json.loads(result.stdout)
    assert (result.exit_code, report["verdict"], report["traces"]) == (0, "healthy", 2)
    assert [event["function"] for event in report["events"]] == ["reconstruction_step", "train_step"]
    assert [check["found"] for check in report["checks"] if check["name"] in {"batches", "step"}] == [
        "2 of 4x12x8",
        "4 steps run",
    ]


def test_the_step_of_a_vocoder_is_timed_on_its_own_batches(run: Path, tmp_path: Path) -> None:
    result = diagnose("gpu", "--run", run, "--seconds", 0.1, "--plot", tmp_path / "gpu.png", "--json")
    report = json.loads(result.stdout)
    assert result.exit_code == 0
    assert report["steps"] > 0
    assert (tmp_path / "gpu.png").is_file()


@pytest.mark.parametrize(("has_gpu", "preset"), [(False, "vocoder-two-cores"), (True, "vocoder")])
def test_without_a_run_the_network_that_train_vocoder_would_train_is_diagnosed(
    cache: Path, monkeypatch: pytest.MonkeyPatch, has_gpu: bool, preset: str
) -> None:
    diagnosed: list[Any] = []

    def stop(*arguments: Any, **_: Any) -> None:
        diagnosed.append(arguments[3])
        raise click.Abort

    monkeypatch.setattr(diagnose_module, "with_tensorflow", stop)
    monkeypatch.setattr(training_options, "has_gpu", lambda: has_gpu)
    result = diagnose("gpu", "--network", "vocoder", "--cache", cache, *(f"--set={text}" for text in SMALL))
    assert [config.vocoder for config in diagnosed] == [load_config([preset], SMALL).vocoder]
    assert result.stderr.startswith(f"settings: the preset {preset}; choose others with --config\n")


def test_the_stages_of_an_acoustic_pipeline_are_not_measured_for_a_vocoder(run: Path) -> None:
    error = diagnose("input", "--run", run).exception
    assert isinstance(error, ConfigError)
    assert "found the run of a vocoder, expected one of an acoustic model, whose pipeline has these stages; " in str(
        error
    )
    assert f"xtts diagnose gpu --run {run} measures" in str(error)


def test_a_cache_without_waves_is_refused(tmp_path: Path) -> None:
    build(write_corpus(tmp_path / "data", 8), tmp_path / "cache", make_config())
    with pytest.raises(CacheError, match=r"has no stored waves; add them by .*--set cache\.store_waves=true"):
        train(tmp_path / "cache", tmp_path / "run", 2)
    assert not (tmp_path / "run").exists()


def test_a_vocoder_is_no_acoustic_model(cache: Path, run: Path, tmp_path: Path) -> None:
    begins = ("--output", tmp_path / "run", "--init-from", run, "--set", "training.batch_size=2")
    killed = Path(
        shutil.copytree(run, tmp_path / "killed", ignore=shutil.ignore_patterns("checkpoints", "best", "*.json"))
    )
    for options in (begins, *(("--output", folder, "--resume") for folder in (run, killed))):
        with pytest.raises(
            CheckpointError, match="found the weights of a vocoder, expected those of an acoustic model"
        ):
            xtts("train", "--cache", cache, *options, catch_exceptions=False, standalone_mode=False)


@pytest.mark.parametrize(
    ("options", "is_begun", "expected"),
    [
        ([], False, ("vocoder-two-cores",)),
        (["--resume"], False, ("vocoder-two-cores",)),
        (["--resume"], True, ()),
        (["--config", "tiny"], False, ("tiny",)),
    ],
)
def test_a_new_run_has_the_settings_of_the_preset_with_resume_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], is_begun: bool, expected: tuple[str, ...]
) -> None:
    asked: list[tuple[str, ...]] = []

    def note(*_: object, configs: tuple[str, ...], **__: object) -> tuple[Path, dict[str, Any]]:
        asked.append(configs)
        return tmp_path, {}

    for name, replacement in (("run_training", note), ("print_summary", lambda *_, **__: None)):
        monkeypatch.setattr(module, name, replacement)
    monkeypatch.setattr(training_options, "has_gpu", bool)
    if is_begun:
        (tmp_path / "config.yaml").touch()
    xtts("train-vocoder", "--output", tmp_path, *options, catch_exceptions=False, standalone_mode=False)
    assert asked == [expected]
