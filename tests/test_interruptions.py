"""Two hundred signals at random moments of every command, its start included: it ends with 130 or is done.

What it leaves is whole or is not taken for whole. The slow trial continues after the last line of its file.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from tests.cache.corpora import SETTINGS
from tests.cli.commands.test_preprocess import processes_of_group, wait_for_group_to_end
from tests.drawn_inputs import TINY_RUN
from tests.test_drawn_inputs import trials  # noqa: F401 (a fixture)
from tests.trials import ROOT, continue_trial, run_trial
from xtts_pipeline.cache.verify.verify import verify_cache
from xtts_pipeline.errors import CacheError
from xtts_pipeline.system.sealed_json import unseal_json

SIGNALS = 200
MOST_SECONDS = 120.0
NUMBERS = {
    signal.SIGINT: "to the group, as a terminal sends Ctrl-C",
    signal.SIGHUP: "to the group, as a terminal that is closed",
    signal.SIGTERM: "to the process, as a scheduler",
}
SYNTHESIZE = ["synthesize", "--run", "{run}", "--output", "{new}/a.wav"]
# Each command over {corpus}, {cache} and {run}, which are copies, and {new}, which is missing.
COMMANDS: dict[str, list[str]] = {
    "config": ["config", "show", "ljspeech"],
    "stats of a corpus": ["stats", "--data", "{corpus}", "--plot", "{new}/a.png"],
    "stats of a cache": ["stats", "--cache", "{cache}"],
    "inspect": ["inspect", "--cache", "{cache}", "--id", "clip-003", "--output", "{new}"],
    "preprocess": ["preprocess", "--data", "{corpus}", "--cache", "{new}", "--jobs", "2", *SETTINGS],
    "preprocess again": ["preprocess", "--data", "{corpus}", "--cache", "{cache}", *SETTINGS, "--set=audio.max_hz=3e3"],
    "verify": ["verify-cache", "--cache", "{cache}"],
    "deep": ["verify-cache", "--cache", "{cache}", "--level", "deep", "--data", "{corpus}"],
    "repair": ["verify-cache", "--cache", "{cache}", "--repair", "--data", "{corpus}"],
    "push": ["cache", "push", "{cache}", "{new}"],
    "benchmark": [
        "benchmark",
        "preprocess",
        "--data",
        "{corpus}",
        "--output",
        "{new}",
        "--clips",
        "2",
        "--rounds",
        "1",
    ],
    "train": ["train", "--cache", "{cache}", "--output", "{new}", "--steps", "6", *TINY_RUN],
    "train on a corpus": ["train", "--data", "{corpus}", "--output", "{new}", "--steps", "4", *SETTINGS, *TINY_RUN],
    "resume": ["train", "--cache", "{cache}", "--output", "{run}", "--resume", "--steps", "9"],
    "synthesize": [*SYNTHESIZE, "--text", "this is", "--plot", "{new}/a.png", "--mel-output", "{new}/a.npy"],
    "stream": [*SYNTHESIZE, "--text", "this is", "--stream"],
    "evaluate": ["evaluate", "--run", "{run}", "--cache", "{cache}", "--output", "{new}"],
    "export": ["export", "--run", "{run}", "--output", "{new}", "--license", "mit", "--data-license", "own voice"],
    "diagnose": ["diagnose", "retracing", "--cache", "{cache}", *TINY_RUN],
    "demo": ["demo", "--data", "{corpus}", "--output", "{new}", "--steps", "1"],
}


def command(name: str, originals: Path, folder: Path) -> list[str]:
    """Return the command over copies of the originals."""
    places = {place: folder / place for place in ("corpus", "cache", "run")}
    for place, target in places.items():
        shutil.copytree(originals / place, target)
    arguments = [argument.format(**places, new=folder / "new") for argument in COMMANDS[name]]
    if name == "repair":
        next((folder / "cache").glob("*.tfrecord")).write_bytes(b"broken")
    return [sys.executable, "-m", "xtts_pipeline", *arguments]


def run_draw(number: int, originals: Path) -> dict[str, Any]:
    """Send a signal at a drawn moment of a drawn command, and return the line of the draw."""
    draws = random.Random(f"signals {number}")  # noqa: S311 (chooses moments, keeps no secret)
    name, kind = list(COMMANDS)[number % len(COMMANDS)], draws.choice(list(NUMBERS))
    # Half of the moments lie in the start, when handlers are set and modules are imported.
    share = draws.random() * draws.choice([0.1, 1.0])
    whole_seconds = duration(name, originals)
    with tempfile.TemporaryDirectory(prefix="signal-") as folder:
        arguments = command(name, originals, Path(folder))
        code, said = interrupt(arguments, Path(folder), kind, share * whole_seconds)
        problem = problem_of_end(code, kind, said, share * whole_seconds) or problem_of_files(Path(folder))
    moment = f"{share * whole_seconds:.2f} of {whole_seconds:.2f} s"
    return {
        "number": number,
        "kind": name,
        "signal": kind.name,
        "moment": moment,
        "end": code,
        "said": said[-300:],
        "problem": problem,
    }


def duration(name: str, originals: Path) -> float:
    """Return the seconds of an undisturbed run, measured once, or the first MOST_SECONDS / 4 of a long one."""
    path = originals / f"seconds of {name}.json"
    if not path.exists():
        with tempfile.TemporaryDirectory(prefix="signal-") as folder:
            arguments = command(name, originals, Path(folder))
            started = time.monotonic()
            ended = subprocess.run(arguments, cwd=folder, capture_output=True, check=False)
            assert ended.returncode in (0, 1), (arguments, ended.stderr)
            assert b"Traceback" not in ended.stderr, (arguments, ended.stderr)
        path.write_text(json.dumps(time.monotonic() - started), encoding="utf-8")
    return min(float(json.loads(path.read_text(encoding="utf-8"))), MOST_SECONDS / 4)


def stop_ignoring() -> None:
    """Undo what a shell or nohup has set for a trial in the background, and which its children would keep."""
    for kind in (signal.SIGINT, signal.SIGHUP):
        signal.signal(kind, signal.SIG_DFL)


def interrupt(arguments: list[str], folder: Path, kind: signal.Signals, seconds: float) -> tuple[int, str]:
    """Run a command, send the signal after some seconds, and return the exit code and what was said."""
    with tempfile.TemporaryFile() as said:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        process = subprocess.Popen(
            arguments,
            cwd=folder,
            stdout=said,
            stderr=said,
            env=environment,
            start_new_session=True,
            preexec_fn=stop_ignoring,  # noqa: PLW1509 (no threads here)
        )
        try:
            time.sleep(seconds)
            if process.poll() is None:
                (os.kill if kind == signal.SIGTERM else os.killpg)(process.pid, kind)
            code = process.wait(MOST_SECONDS)
            wait_for_group_to_end(process.pid)
        except subprocess.TimeoutExpired:
            code = 124
        finally:
            if processes_of_group(process.pid):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        said.seek(0)
        return code, said.read().decode("utf-8", "replace")


def problem_of_end(code: int, kind: signal.Signals, said: str, seconds: float) -> str:
    # Before the first line of the package a signal ends the interpreter, and after its last line Ctrl-C does.
    is_done = kind == signal.SIGINT and bool(said) and "interrupted" not in said
    is_outside = code == -kind and (is_done or (not said and seconds < 0.5))
    if is_outside or ("<frozen site>" in said and "__main__" not in said):
        return ""
    return "" if code in (0, 1, 130) and "Traceback" not in said else f"exit code {code}: {said[-1_000:]}"


def is_document(path: Path) -> bool:
    try:
        json.loads(path.read_bytes())
    except ValueError:
        return False
    return True


def is_checkpoint(state: Path) -> bool:
    try:
        unseal_json(state.read_bytes())
    except ValueError:
        return False
    return state.with_name("weights.safetensors").stat().st_size > 0


def is_cache(manifest: Path) -> bool:
    """Return whether every byte is right, or `xtts train`, which looks at names and sizes, refuses the cache too."""
    try:
        return verify_cache(manifest.parent).valid or not verify_cache(manifest.parent, "quick").valid
    except CacheError:
        return True


# What each file that a program may take for whole must hold.
WHOLE: dict[str, Callable[[Path], bool]] = {
    "manifest.json": is_cache,
    "step-*/state.json": is_checkpoint,
    "*.json": is_document,
    "*.wav": lambda path: soundfile.info(path).frames * 2 + 44 == path.stat().st_size,
    "*.png": lambda path: path.read_bytes().endswith(b"IEND\xaeB`\x82"),
    "*.npy": lambda path: len(np.load(path)) > 0,
    "*.tmp": lambda _: False,
}


def problem_of_files(folder: Path) -> str:
    """Return the files below a folder that look whole and are half made, or an empty text."""
    return ", ".join(
        f"half made: {path.relative_to(folder)}"
        for pattern, is_whole in WHOLE.items()
        for path in folder.rglob(pattern)
        if ".partial" not in str(path) and not is_whole(path)
    )


@pytest.mark.slow
def test_two_hundred_signals_end_every_command_and_leave_nothing_half_made(trials: Path) -> None:  # noqa: F811
    lines = run_trial("tests.test_interruptions", "signals", trials / "signals.jsonl", SIGNALS)
    assert [line for line in lines if line["problem"]] == []


if __name__ == "__main__":
    log = Path(sys.argv[2])
    continue_trial(log, int(sys.argv[3]), lambda number: run_draw(number, log.parent / "originals"))
