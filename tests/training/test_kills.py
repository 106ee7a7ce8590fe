"""`xtts train` in processes of its own, killed at random steps: what it ends with is what an undisturbed run ends with, bit for bit."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from xtts_pipeline.cache.manifest import Manifest
from xtts_pipeline.training.checkpoint import load_checkpoint

STEPS = 30
MODEL = {
    "encoder_layers": 1,
    "decoder_layers": 1,
    "postnet_layers": 1,
    "voice_latents": 0,
    "width": 8,
    "heads": 2,
    "feedforward_width": 8,
    "prenet_width": 4,
    "postnet_width": 4,
}
TRAINING = {
    "batch_size": 4,
    "log_every": 3,
    "evaluate_every": 7,
    "save_every": 4,
    "warmup_steps": 5,
    "own_frames_start": "null",
    "speak_every_evaluations": "null",
}


def command(cache: Path, run: Path, *, is_compiled: bool, steps: int = STEPS) -> list[str]:
    settings = {"model": MODEL, "training": {**TRAINING, "jit_compile": str(is_compiled).lower()}}
    texts = [f"--set={section}.{key}={value}" for section, keys in settings.items() for key, value in keys.items()]
    options = ["--cache", str(cache), "--output", str(run), "--steps", str(steps), "--resume", "--json"]
    return [sys.executable, "-m", "xtts_pipeline", "train", *options, *texts]


def finish(arguments: Sequence[str]) -> dict[str, Any]:
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def stop_at(arguments: Sequence[str], step: int, number: signal.Signals) -> tuple[int, str]:
    """Send a signal when the run has reported a step; return its exit code and what it said."""
    said = []
    with subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            said.append(line)
            word, _, place = line.partition(" ")
            if word == "step" and int(place.partition("/")[0]) >= step:
                process.send_signal(number)
                break
        said.append(process.stderr.read())
    return process.returncode, "".join(said)


def metrics(run: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    times = ("step_ms", "data_wait_share", "device_share", "examples_per_second")
    return [{name: value for name, value in line.items() if name not in times} for line in lines]


def assert_same_end(undisturbed: Path, killed: Path, summaries: tuple[dict[str, Any], dict[str, Any]]) -> None:
    expected, found = (load_checkpoint(run) for run in (undisturbed, killed))
    for name, array in expected.arrays.items():
        np.testing.assert_array_equal(found.arrays[name], array, err_msg=name)
    for key in ("weights_sha256", "loss", "best", "steps"):
        assert summaries[1][key] == summaries[0][key]
    assert metrics(killed) == metrics(undisturbed)


def test_two_kills_and_a_sigterm_leave_no_trace(tmp_path: Path, write_cache: Callable[..., Manifest]) -> None:
    cache = tmp_path / "cache"
    write_cache(cache, train=29, val=3)
    undisturbed, killed = tmp_path / "undisturbed", tmp_path / "killed"
    expected = finish(command(cache, undisturbed, is_compiled=False))
    arguments = command(cache, killed, is_compiled=False)
    assert stop_at(arguments, 6, signal.SIGKILL)[0] == -signal.SIGKILL
    code, said = stop_at(arguments, 12, signal.SIGTERM)
    assert (code, "resuming after step " in said, "the same command with --resume goes on" in said) == (130, True, True)
    assert stop_at(arguments, 20, signal.SIGKILL)[0] == -signal.SIGKILL
    found = finish(arguments)
    assert_same_end(undisturbed, killed, (expected, found))
    assert len(found["resumed_at_steps"]) == 3
    # Over: its summary again, and nothing trained, so nothing imported for it.
    assert finish(arguments) == found


@pytest.mark.slow
@pytest.mark.parametrize("is_compiled", [False, True], ids=["traced", "compiled"])
def test_twenty_kills_at_random_steps_leave_no_trace(tmp_path: Path, write_cache: Callable[..., Manifest], *, is_compiled: bool) -> None:
    cache = tmp_path / "cache"
    write_cache(cache, train=60, val=9, buckets=((9, 12), (16, 24)))
    undisturbed, killed = tmp_path / "undisturbed", tmp_path / "killed"
    steps = 200
    expected = finish(command(cache, undisturbed, is_compiled=is_compiled, steps=steps))
    arguments = command(cache, killed, is_compiled=is_compiled, steps=steps)
    at = sorted(np.random.default_rng(7).integers(1, steps - 5, 20).tolist())
    codes = [stop_at(arguments, step, signal.SIGKILL)[0] for step in at]
    assert codes == [-signal.SIGKILL] * 20
    found = finish(arguments)
    assert_same_end(undisturbed, killed, (expected, found))
    sys.stdout.write(f"killed at {at}, resumed after {found['resumed_at_steps']}, weights {found['weights_sha256']}\n")
