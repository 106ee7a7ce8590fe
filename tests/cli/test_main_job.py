"""The three commands and `synthesize` as real processes: exit codes and output."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from tests import calling
from tests.json_lines import read_json_lines
from tests.waiting import wait_until
from xtts_pipeline.corpus.read import LAYOUTS
from xtts_pipeline.errors import CheckpointError
from xtts_pipeline.inference.synthesizer import Synthesizer

SETTINGS = [
    *("--set", "audio.mel_bins=20"),
    *("--set", "limits.max_text_length=24"),
    *("--set", "limits.max_mel_frames=64"),
    *("--set", "cache.validation_share=0.2"),
]
CLIPS = 14


@dataclass(frozen=True)
class Ended:
    """A finished command."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def result(self) -> Any:
        return json.loads(self.stdout)

    @property
    def error(self) -> str:
        """The only error line; fails if there are more, or a traceback."""
        lines = [line for line in self.stderr.splitlines() if line.startswith("xtts: ")]
        assert "Traceback" not in self.stderr, self.stderr
        assert len(lines) == 1, self.stderr
        return lines[0]


def xtts(*arguments: object, cwd: Path | None = None) -> Ended:
    done = calling.start_xtts(*arguments, cwd=cwd, timeout=900)
    return Ended(done.returncode, done.stdout, done.stderr)


def write_corpus(root: Path, clips: int = CLIPS) -> Path:
    """Write a corpus of short tones in the LJSpeech layout, each with its own text."""
    (root / "wavs").mkdir(parents=True)
    random = np.random.default_rng(0)
    lines = []
    for index in range(clips):
        seconds = 0.3 + 0.02 * index
        wave = 0.3 * np.sin(
            2 * np.pi * (200 + 30 * index) * np.arange(int(22_050 * seconds)) / 22_050
        ) + 0.01 * random.normal(size=int(22_050 * seconds))
        soundfile.write(root / "wavs" / f"clip{index:02d}.wav", wave.astype(np.float32), 22_050, subtype="PCM_16")
        text = "tone " + "abcdefghijklmn"[index % 14] * (1 + index % 5)
        lines.append(f"clip{index:02d}|{text}|{text}")
    (root / "metadata.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return root


@dataclass(frozen=True)
class Job:
    """The outputs of the three commands."""

    corpus: Path
    cache: Path
    run: Path
    preprocessed: Ended
    verified: Ended
    trained: Ended


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    folder = tmp_path_factory.mktemp("job")
    corpus = write_corpus(folder / "corpus")
    cache, run = folder / "cache", folder / "run"
    return Job(
        corpus,
        cache,
        run,
        xtts("preprocess", "--data", corpus, "--cache", cache, *SETTINGS, "--json"),
        xtts("verify-cache", "--cache", cache, "--json"),
        xtts(
            *("train", "--cache", cache, "--output", run, "--config", "smoke"),
            *("--set", "training.log_every=2", "--steps", "12", "--json"),
        ),
    )


@pytest.fixture(scope="module")
def synthesizer(job: Job) -> Synthesizer:
    return Synthesizer.load(job.run)


def test_preprocess_accounts_for_every_row(job: Job) -> None:
    assert job.preprocessed.exit_code == 0, job.preprocessed.stderr
    result = job.preprocessed.result
    assert (result["read"], result["kept"], result["rejected"]) == (CLIPS, CLIPS, 0)
    assert result["shards_written"] >= 2
    assert result["seconds"] > 0
    assert result["clips_per_second"] > 0


def test_verify_cache_proves_it(job: Job) -> None:
    assert job.verified.exit_code == 0, job.verified.stderr
    result = job.verified.result
    assert result["valid"] is True
    assert result["problems"] == []
    assert result["records"] == CLIPS


def test_training_validation_and_speech_are_traced_and_compiled_once_each(job: Job) -> None:
    assert job.trained.exit_code == 0, job.trained.stderr
    summary = job.trained.result
    once = {"traces": 1, "compilations": 1}
    assert summary["by_function"] == {"train_step": once, "evaluate_step": once, "speak_step": once}
    assert (summary["steps"], summary["traces"], summary["compilations"]) == (12, 3, 3)
    assert summary["loss"]["last"] < summary["loss"]["first"]
    assert set(summary["step_ms"]) == {"mean", "std", "p50", "p95"}
    assert 0.0 <= summary["data_wait_share"] < 1.0
    assert all(seconds > 0.0 for seconds in summary["startup_seconds"].values())
    assert 0 < summary["memory"]["program_bytes"] < summary["memory"]["peak_bytes"]
    assert summary["examples_per_second"] > 0
    assert summary["mel_frames_per_second"] > 0


def test_tensorflow_says_nothing_on_the_terminal(job: Job) -> None:
    lines = [line for line in job.trained.stderr.splitlines() if not line.startswith("advice: preprocess ")]
    flags = f"--xla_cpu_use_onednn=true {os.environ['XLA_FLAGS']}"
    begins = (
        "batches (clips x tokens x frames): ",
        "memory: about ",
        "precision: matrix products in ",
        f"starting TensorFlow: CPU, XLA_FLAGS='{flags}'",
        "compiling the training step",
        "step 1/12: first step done after ",
        "step 2/12: about ",
        "compiling the evaluation",
        "compiling the synthesis of samples",
        "step 12/12: loss ",
    )
    assert [line[: len(begin)] for line, begin in zip(lines, begins, strict=True)] == [*begins]


def test_a_run_holds_its_settings_metrics_and_summary(job: Job) -> None:
    lines = read_json_lines(job.run / "metrics.jsonl")
    assert [line["step"] for line in lines if line["split"] == "train"] == [1, 2, 4, 6, 8, 10, 12]
    assert [line["step"] for line in lines if line["split"] == "val"] == [12]
    assert json.loads((job.run / "summary.json").read_text()) == job.trained.result
    assert xtts("config", "check", job.run / "config.yaml").exit_code == 0
    for folder in ("checkpoints", "best"):
        assert [path.name for path in (job.run / folder).iterdir()] == ["step-00000012"]
    assert {path.name for path in (job.run / "tensorboard").iterdir()} == {"train", "val", "speech", "media"}


def test_synthesize_speaks_draws_and_hands_over_the_mel(job: Job, tmp_path: Path) -> None:
    wav, png, npy = tmp_path / "out" / "speech.wav", tmp_path / "speech.png", tmp_path / "mel.npy"
    spoken = xtts(
        "synthesize",
        "--run",
        job.run,
        "--text",
        "Tone abc",
        "--output",
        wav,
        "--plot",
        png,
        "--mel-output",
        npy,
        "--json",
    )
    assert spoken.exit_code == 0, spoken.stderr
    wave, rate = soundfile.read(wav)
    mel = np.load(npy)
    assert rate == 22_050
    assert mel.shape == (spoken.result["mel_frames"], 20)
    assert len(wave) == (len(mel) - 1) * 256
    assert png.read_bytes().startswith(b"\x89PNG")


def test_an_unknown_speaker_is_named_with_the_known_ones(synthesizer: Synthesizer) -> None:
    with pytest.raises(CheckpointError, match="no speaker 'bob'; known are default"):
        synthesizer.synthesize("tone a", speaker="bob")


def test_the_same_text_is_spoken_the_same_way(synthesizer: Synthesizer) -> None:
    first, second = synthesizer.synthesize("tone abc"), synthesizer.synthesize("tone abc")
    np.testing.assert_array_equal(first.wave, second.wave)
    assert first.durations.sum() == pytest.approx(len(first.mel), rel=1e-4)
    assert synthesizer.symbols(first.tokens) == ["<begin>", *"tone abc", "<end>"]


def test_a_config_that_contradicts_the_cache_is_refused_with_each_difference(job: Job, tmp_path: Path) -> None:
    settings = ("--set", "audio.hop_samples=300", "--set", "text.lowercase=false")
    refused = xtts("train", "--cache", job.cache, "--output", tmp_path / "run", *settings)
    assert refused.exit_code == 2
    assert "audio.hop_samples" in refused.error
    assert "text.lowercase" in refused.error


def test_fewer_clips_than_a_batch_says_both_numbers(job: Job, tmp_path: Path) -> None:
    refused = xtts("train", "--cache", job.cache, "--output", tmp_path / "run", "--set", "training.batch_size=64")
    assert refused.exit_code == 2
    assert "training.batch_size=64" in refused.error
    assert str(CLIPS - json.loads(job.preprocessed.stdout)["splits"]["val"]) in refused.error


def test_an_output_that_cannot_be_written_is_named(job: Job, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    trained = xtts("train", "--cache", job.cache, "--config", "smoke", "--output", tmp_path / "file" / "run")
    assert trained.exit_code == 2
    assert "cannot be written (Not a directory)" in trained.error
    made = xtts("preprocess", "--data", job.corpus, "--cache", tmp_path / "file" / "cache")
    assert made.exit_code == 2
    assert "file" in made.error


def test_ctrl_c_ends_with_130_and_one_line(job: Job, tmp_path: Path) -> None:
    arguments = ["train", "--cache", job.cache, "--output", tmp_path / "run", "--config", "smoke"]
    command = [sys.executable, "-m", "xtts_pipeline", *map(str, arguments)]
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"})
    wait_until((tmp_path / "run" / "tensorflow.log").exists, running)
    running.send_signal(signal.SIGINT)
    _, stderr = running.communicate(timeout=900)
    assert running.returncode == 130
    assert Ended(130, "", stderr).error == "xtts: interrupted"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["preprocess", "--data", "missing"], "missing"),
        (["preprocess", "--data", "empty"], "found an empty folder"),
        (["train", "--cache", "missing"], "missing"),
        (["train", "--cache", "empty"], "empty"),
        (["synthesize", "--run", "empty", "--text", "a", "--output", "a.wav"], "no checkpoint"),
    ],
)
def test_what_cannot_be_used_is_one_line_and_exit_code_2(tmp_path: Path, arguments: list[str], message: str) -> None:
    (tmp_path / "empty").mkdir()
    ended = xtts(*arguments, cwd=tmp_path)
    assert ended.exit_code == 2
    assert message in ended.error
    assert ended.stdout == ""


def test_the_layouts_that_help_lists_are_those_there_are() -> None:
    shown = calling.xtts("preprocess", "--help").stdout
    assert [name for name in LAYOUTS if name not in shown] == []


def test_help_shows_the_three_commands_on_lines_of_their_own() -> None:
    lines = xtts("--help").stdout.splitlines()
    assert sum(line.strip().startswith(("xtts preprocess", "xtts verify-cache", "xtts train")) for line in lines) == 3
    assert xtts().exit_code == 2


def test_config_check_lists_every_error_on_a_line_of_its_own() -> None:
    ended = xtts("config", "check", "--set", "training.lr=1", "--set", "training.batch_size=x")
    assert ended.exit_code == 2
    first, second = sorted(ended.stderr.splitlines())
    assert first.startswith("xtts: --set training.batch_size=x: input should be")
    assert second.startswith("xtts: --set training.lr=1: unknown key; known are batch_size,")


def test_config_check_tells_a_program_what_it_tells_a_person() -> None:
    good, bad = (calling.xtts("config", "check", f"--set=training.steps={steps}", "--json") for steps in ("7", "x"))
    assert (good.exit_code, json.loads(good.stdout)) == (0, {"valid": True, "problems": []})
    found = json.loads(bad.stdout)
    assert (bad.exit_code, found["valid"]) == (2, False)
    assert [f"xtts: {problem}" for problem in found["problems"]] == bad.stderr.splitlines()


def test_a_full_disk_behind_stdout_is_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "xtts_pipeline", "config", "show"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert Ended(2, "", done.stderr).error.startswith(
        "xtts: stdout: cannot be read or written (No space left on device)"
    )
