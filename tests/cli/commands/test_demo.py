import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.waiting import wait_until
from xtts_pipeline.cli.commands import demo as demo_module
from xtts_pipeline.cli.commands.demo import next_run_folder, run_demo
from xtts_pipeline.corpus.options import ReadOptions
from xtts_pipeline.errors import StepError


@pytest.fixture
def commands(tmp_path: Path, write_cache, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Replace the commands: record their arguments, and let preprocess write a cache."""
    given = []

    start_process = subprocess.Popen

    def start(command: Sequence[str]) -> subprocess.Popen[bytes]:
        assert command[:3] == [sys.executable, "-m", "xtts_pipeline"]
        given.append(list(command[3:]))
        if command[3] == "preprocess":
            write_cache(Path(command[command.index("--cache") + 1]))
        return start_process(["true"])

    monkeypatch.setattr(demo_module.subprocess, "Popen", start)
    return given


def test_the_commands_and_what_they_made_are_shown_and_no_json(commands: list[list[str]], tmp_path: Path, capsys):
    run_demo(tmp_path / "demo", tmp_path / "my corpus", steps=7)

    shown = capsys.readouterr().out
    assert [command[0] for command in commands] == ["preprocess", "verify-cache", "train", "synthesize"]
    assert not any("--json" in command for command in commands)
    assert [line for line in shown.splitlines() if line.startswith("$ ")] == [
        f"$ xtts {shlex.join(command)}" for command in commands
    ]
    configs = "--config demo --config ljspeech"
    data, cache = f"--data '{tmp_path}/my corpus'", f"--cache '{tmp_path}/demo/cache-my corpus'"
    assert f"$ xtts preprocess {data} {cache} {configs}\n" in shown
    assert f"\n  run      {tmp_path}/demo/runs/1:" in shown
    assert f"\n  speech   {tmp_path}/demo/speech.wav\n" in shown
    assert f"\n  picture  {tmp_path}/demo/speech.png:" in shown
    assert f"xtts synthesize --run {tmp_path}/demo/runs/1 --text 'Hello, world!'" in shown


def test_the_corpus_is_read_as_the_user_says(commands: list[list[str]], tmp_path: Path):
    reading = ReadOptions("manifest", {"audio": "file", "text": "der text"}, "old takes", "\t", "cp1252")
    run_demo(tmp_path / "demo", tmp_path, steps=1, reading=reading)

    words = commands[0][3 : commands[0].index("--cache")]
    columns = ["--columns", "audio=file,text=der text", "--audio-dir", "old takes"]
    assert words == ["--layout", "manifest", *columns, "--delimiter", r"\t", "--encoding", "cp1252"]


def test_the_delimiter_may_be_a_quote(commands: list[list[str]], tmp_path: Path):
    run_demo(tmp_path / "demo", tmp_path, steps=1, reading=ReadOptions(delimiter="'"))
    assert commands[0][commands[0].index("--delimiter") + 1] == "'"


def test_the_spoken_text_is_from_the_training_split(commands: list[list[str]], tmp_path: Path):
    run_demo(tmp_path / "demo", None, steps=None)

    lines = (tmp_path / "demo" / "cache" / "utterances.jsonl").read_text(encoding="utf-8").splitlines()
    trained_on = {row["raw_text"] for row in map(json.loads, lines) if row["split"] == "train"}
    synthesize = commands[-1]
    assert synthesize[synthesize.index("--text") + 1] in trained_on


def test_steps_are_those_of_the_preset_fewer_on_a_corpus_or_as_given(commands: list[list[str]], tmp_path: Path):
    run_demo(tmp_path / "demo", None, steps=None)
    run_demo(tmp_path / "demo", tmp_path, steps=None)
    run_demo(tmp_path / "demo", tmp_path, steps=9)

    trains = [command for command in commands if command[0] == "train"]
    assert "--steps" not in trains[0]
    assert [train[train.index("--steps") + 1] for train in trains[1:]] == ["200", "9"]


def test_each_corpus_has_a_cache_of_its_own(commands: list[list[str]], tmp_path: Path):
    for data in (None, tmp_path / "one", tmp_path / "two"):
        run_demo(tmp_path / "demo", data, steps=1)
    caches = [command[command.index("--cache") + 1] for command in commands if command[0] == "preprocess"]
    assert caches == [f"{tmp_path}/demo/{name}" for name in ("cache", "cache-one", "cache-two")]


def test_each_demo_trains_in_a_new_folder(tmp_path: Path):
    assert next_run_folder(tmp_path / "runs") == tmp_path / "runs" / "1"

    (tmp_path / "runs" / "1").mkdir(parents=True)
    (tmp_path / "runs" / "3").mkdir()
    assert next_run_folder(tmp_path / "runs") == tmp_path / "runs" / "2"


def test_a_command_that_fails_ends_the_demo_with_its_exit_code(tmp_path: Path, capfd):
    with pytest.raises(StepError, match="xtts preprocess: ended with exit code 2") as caught:
        run_demo(tmp_path / "demo", tmp_path / "no such corpus", steps=1)

    assert caught.value.exit_code == 2
    assert "no such corpus" in capfd.readouterr().err


def test_a_command_that_was_killed_is_a_failure_too():
    assert StepError("xtts train", -9).exit_code == 1


COMMAND_THAT_SAVES = """#!/bin/sh
trap 'sleep 0.2; touch saved; exit 130' INT TERM
touch started
while :; do sleep 0.05; done
"""


def write_command_that_saves(folder: Path) -> None:
    command = folder / "command"
    command.write_text(COMMAND_THAT_SAVES)
    command.chmod(0o755)


@pytest.mark.parametrize("is_to_group", [True, False], ids=["Ctrl-C", "scheduler"])
def test_an_interrupted_demo_waits_for_its_command_to_save(tmp_path: Path, is_to_group: bool):
    write_command_that_saves(tmp_path)
    code = f"import sys; from {demo_module.__name__} import _run_step; sys.executable = './command'; _run_step('train')"
    demo = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, stderr=subprocess.PIPE, start_new_session=True)
    wait_until((tmp_path / "started").exists, demo)
    (os.killpg if is_to_group else os.kill)(demo.pid, signal.SIGINT)
    assert b"KeyboardInterrupt" in demo.communicate()[1]
    assert (tmp_path / "saved").exists()


INTERRUPTED_WHILE_IT_STARTS = f"""
import signal, subprocess, sys
from pathlib import Path
from {demo_module.__name__} import _run_step

class Popen(subprocess.Popen):
    def __init__(self, arguments):
        super().__init__(arguments)
        while not Path("started").exists():
            pass
        signal.raise_signal(signal.SIGINT)

subprocess.Popen, sys.executable = Popen, "./command"
_run_step("train")
"""


def test_a_demo_interrupted_while_its_command_starts_ends_the_command(tmp_path: Path):
    write_command_that_saves(tmp_path)
    demo = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_WHILE_IT_STARTS], cwd=tmp_path, capture_output=True, check=False
    )
    assert b"KeyboardInterrupt" in demo.stderr
    assert (tmp_path / "saved").exists()


@pytest.mark.slow
def test_the_demo_speaks(tmp_path: Path, capfd):
    run_demo(tmp_path / "demo", None, steps=2)

    assert (tmp_path / "demo" / "speech.wav").stat().st_size > 1_000
    assert (tmp_path / "demo" / "speech.png").read_bytes().startswith(b"\x89PNG")
    assert "\ncompilations   3  (" in capfd.readouterr().out
