"""docs/tasks: every command of each page is run, on one tiny corpus, cache and run that all pages share."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
import yaml
from click.testing import CliRunner

from tests.speaking import MODEL
from xtts_pipeline.cli.main import cli
from xtts_pipeline.config.load import load_config
from xtts_pipeline.training.checkpoints.run_folder import checkpoint_folders

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs" / "tasks").glob("*.md"))
RATE = 8_000

# What the pages name, and what stands for it here. `--config` and `--set` are checked by loading them; then the tiny
# settings take their place, but for the language. All trainings of `train` are one run of two steps, which --resume
# finds done; `train-vocoder` makes its own.
TINY = {
    "audio": {"sample_rate": RATE, "max_hz": 4_000.0, "fft_size": 256, "window_samples": 256, "hop_samples": 128}
    | {"mel_bins": 20},
    "limits": {"max_text_length": 48, "max_mel_frames": 60},
    "cache": {"validation_share": 0.2, "store_waves": True},
    "model": MODEL,
    "vocoder": {"width": 16, "blocks": 1, "crop_frames": 9, "crops_per_clip": 1, "adversarial_weight": 0.0}
    | {"spectral_sizes": [128], "discriminator_sizes": [128]},
    "training": {"batch_size": 2, "jit_compile": False, "sample_every_evaluations": None},
    "synthesis": {"chunk_frames": 12, "batch_size": 2, "max_frames_per_token": 1.0, "griffin_lim_iterations": 2},
}
CORPORA = ("LJSpeech-1.1", "recordings", "voices", "corpus")
TRAININGS = {
    "train": "train --cache cache --config my.yaml --output runs/first --steps 2 --resume",
    "train-vocoder": "train-vocoder --cache cache --config my.yaml --output runs/vocoder --steps 2 --resume",
}
# Programs of others.
OTHERS = ("pip", "jq", "aplay", "tee", "hf")


@dataclass(frozen=True)
class Command:
    """The words of a command after `xtts`, and the lines that the page shows below it."""

    words: tuple[str, ...]
    shown: tuple[str, ...] = ()


def commands_of(page: Path) -> list[Command]:
    """Return the `xtts` commands of a page: of its indented blocks, and of the scripts in its YAML."""
    text = page.read_text(encoding="utf-8")
    lines = [line.strip() for line in re.findall(r"^    \S.*$", re.sub(r"(?s)```.*?```", "", text), re.MULTILINE)]
    for block in re.findall(r"(?s)```yaml\n(.*?)```", text):
        lines += [line for script in scripts_of(yaml.safe_load(block)) for line in script.splitlines()]
    commands: list[Command] = []
    for line in lines:
        parts = split_at_operators(line)
        if parts[0] and parts[0][0] == "xtts":
            commands += [Command(tuple(part[1:])) for part in parts if part[0] == "xtts"]
            assert all(part[0] in ("xtts", *OTHERS) for part in parts), line
        elif parts[0][0] not in OTHERS and commands:
            commands[-1] = replace(commands[-1], shown=(*commands[-1].shown, line))
    return commands


def split_at_operators(line: str) -> list[list[str]]:
    """Return the words of each program of a shell line."""
    words = shlex.shlex(line, posix=True, punctuation_chars="|&")
    words.whitespace_split = True
    parts: list[list[str]] = [[]]
    for word in words:
        if word in ("|", "&&"):
            parts.append([])
        else:
            parts[-1].append(word)
    return parts


def scripts_of(node: object) -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "run" and isinstance(value, str):
                yield value
            elif key == "script":
                yield from value
            else:
                yield from scripts_of(value)
    elif isinstance(node, list):
        for value in node:
            yield from scripts_of(value)


def substitute(words: tuple[str, ...]) -> list[str]:
    """Return the words of a page's command with the tiny settings and the shared run in place of the page's."""
    kept, settings, configs = [], [], []
    following = iter(words)
    for word in following:
        if word == "--config":
            configs.append(next(following))
        elif word == "--set":
            settings.append(next(following))
        elif word in (">", "<"):
            next(following)
        else:
            kept.append(re.sub(r"^runs/(?!vocoder\b)\w+", "runs/first", word))
    load_config([name for name in configs if name != "my.yaml"], settings)
    if kept[0] in TRAININGS:
        return TRAININGS[kept[0]].split()
    languages = [word for setting in settings if setting.startswith("text.language=") for word in ("--set", setting)]
    tiny = ["--config", "my.yaml"] if kept[0] in ("preprocess", "stats") else []
    return [*kept, *tiny, *languages, *(["--jobs", "1"] if kept[0] == "preprocess" else [])]


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the pages name: corpora, settings, a clip, a text file, a cache and a run."""
    folder = tmp_path_factory.mktemp("tasks")
    corpus = folder / CORPORA[0]
    (corpus / "clips").mkdir(parents=True)
    rows = ["audio,text,speaker"]
    for number in range(12):
        wave = 0.3 * np.sin(2 * np.pi * (200 + 20 * number) * np.arange(int(RATE * (0.5 + 0.02 * number))) / RATE)
        soundfile.write(corpus / "clips" / f"{number:03d}.wav", wave, RATE)
        rows.append(f"clips/{number:03d}.wav,the clip of tone number {number},{('ann', 'bob')[number % 2]}")
    (corpus / "metadata.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    for name in CORPORA[1:]:
        (folder / name).symlink_to(corpus, target_is_directory=True)
    (folder / "my.yaml").write_text(yaml.safe_dump(TINY), encoding="utf-8")
    (folder / "clip.wav").write_bytes((corpus / "clips" / "000.wav").read_bytes())
    (folder / "lines.txt").write_text("the first\nthe second\n", encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for words in ("preprocess --data corpus --config my.yaml --jobs 1", TRAININGS["train"]):
            result = CliRunner().invoke(cli, words.split(), catch_exceptions=False)
            assert result.exit_code == 0, result.output
    return folder


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_commands_of_a_page_work(page: Path, workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workplace)
    commands = commands_of(page)
    assert commands
    for command in commands:
        words = substitute(command.words)
        result = CliRunner().invoke(cli, words, input="the first\n", catch_exceptions=False)
        # A diagnosis of this machine may find a fault.
        assert result.exit_code in ((0, 1) if words[0] == "diagnose" else (0,)), (words, result.output)
        starts = {line.split()[0] for line in result.output.splitlines() if line.strip()}
        assert {line.split()[0] for line in command.shown} <= starts, (command.shown, result.output)
    assert len(checkpoint_folders(workplace / "runs" / "first")) == 1


def test_the_program_of_the_page_runs(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(workplace)
    page = (ROOT / "docs" / "tasks" / "program.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"(?s)```python\n(.*?)```", page)
    exec(compile(program, "program.md", "exec"), {})  # noqa: S102 (the page's own program)
    *parts, error = capsys.readouterr().out.splitlines()
    assert soundfile.info("morning.wav").samplerate == RATE
    assert parts
    assert all(int(part) > 0 for part in parts)
    assert "text" in error
