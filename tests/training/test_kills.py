"""`xtts train` and `xtts train-vocoder` as processes, killed at random steps, end bit for bit like undisturbed runs."""

import json
import math
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.planted_nan import plant
from tests.cache.corpora import build, make_config, write_corpus
from tests.training.tiny_run import read_metrics, read_skipped
from tests.waiting import wait_until
from xtts_pipeline.cache.format.manifest import Manifest
from xtts_pipeline.training.checkpoints.files import load_checkpoint

STEPS = 30
MODEL = {
    "encoder_layers": 1,
    "decoder_layers": 1,
    "flow_layers": 1,
    "voice_latents": 0,
    "width": 8,
    "heads": 2,
    "feedforward_width": 8,
}
VOCODER = {
    "width": 8,
    "blocks": 1,
    "crop_frames": 9,
    "crops_per_clip": 1,
    "spectral_sizes": "[128]",
    "adversarial_weight": 1.0,
    "discriminator_sizes": "[128]",
    "discriminator_width": 4,
}
TRAINING = {
    "batch_size": 4,
    "log_every": 3,
    "evaluate_every": 7,
    "save_every": 4,
    "warmup_steps": 5,
    "sample_every_evaluations": "null",
}


# Makes a run wait after the report of a step, so that it cannot end before the signal.
HELD_RUN = """
import os, sys, time
from xtts_pipeline.__main__ import main
from xtts_pipeline.cli.progress import RunProgress

_, step, gate, *arguments = sys.argv
show = RunProgress.show


def show_and_hold(self, at, split, numbers):
    show(self, at, split, numbers)
    if at >= int(step) and not os.path.exists(gate):
        print(f"held at step {at}", file=sys.stderr, flush=True)
        while not os.path.exists(gate):
            time.sleep(0.01)


RunProgress.show = show_and_hold
sys.argv = ["xtts", *arguments]
main()
"""


def command(
    cache: Path,
    run: Path,
    *,
    is_compiled: bool,
    steps: int = STEPS,
    training: Mapping[str, Any] = TRAINING,
    name: str = "train",
    model: Mapping[str, Any] = MODEL,
) -> list[str]:
    """Return `xtts train` or `xtts train-vocoder` of a small network; discriminators begin in the middle of the run."""
    network = {"model": model} if name == "train" else {"vocoder": {**VOCODER, "adversarial_start": steps // 2}}
    settings = {**network, "training": {**training, "jit_compile": str(is_compiled).lower()}}
    texts = [f"--set={section}.{key}={value}" for section, keys in settings.items() for key, value in keys.items()]
    options = ["--cache", str(cache), "--output", str(run), "--steps", str(steps), "--resume", "--json"]
    return [sys.executable, "-m", "xtts_pipeline", name, *options, *texts]


def write_waves(cache: Path, clips: int, *overrides: str) -> None:
    """Write a cache that has waves, with about a tenth of the clips for validation."""
    build(write_corpus(cache.with_name("corpus"), clips), cache, make_config("cache.store_waves=true", *overrides))


def finish(arguments: Sequence[str]) -> dict[str, Any]:
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def held_at(arguments: Sequence[str], step: int, gate: Path) -> list[str]:
    """Return the command, held after the report of `step` until the file `gate` exists."""
    return [sys.executable, "-c", HELD_RUN, str(step), str(gate), *arguments[3:]]


def stop_at(arguments: Sequence[str], step: int, number: signal.Signals, *, is_saved: bool = False) -> tuple[int, str]:
    """Send a signal while the run is held at the report of a step; return its exit code and its stderr.

    With `is_saved` the signal waits for the first checkpoint, which a background thread writes.
    """
    said = []
    run = Path(arguments[arguments.index("--output") + 1])
    gate = run.with_name(f"{run.name}-goes-on")
    gate.unlink(missing_ok=True)
    with subprocess.Popen(
        held_at(arguments, step, gate), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            said.append(line)
            if line.startswith("held at step "):
                break
        if is_saved:
            wait_until(lambda: list((run / "checkpoints").glob("step-*")), process)
        process.send_signal(number)
        if number != signal.SIGKILL:
            for line in process.stderr:
                said.append(line)
                if line.startswith("interrupted: "):
                    break
        gate.touch()
        said.append(process.stderr.read())
    return process.returncode, "".join(said)


def assert_same_end(undisturbed: Path, killed: Path, summaries: tuple[dict[str, Any], dict[str, Any]]) -> None:
    expected, found = (load_checkpoint(run) for run in (undisturbed, killed))
    for name, array in expected.arrays.items():
        np.testing.assert_array_equal(found.arrays[name], array, err_msg=name)
    for key in ("weights_sha256", "loss", "best", "steps"):
        assert summaries[1][key] == summaries[0][key]
    assert read_metrics(killed) == read_metrics(undisturbed)


@dataclass(frozen=True)
class Undisturbed:
    """An uninterrupted run of four epochs on a cache with one clip that is not finite."""

    name: str
    cache: Path
    run: Path
    summary: dict[str, Any]
    clip: str

    def command(self, run: Path) -> list[str]:
        """Return the same command for another run."""
        return command(self.cache, run, is_compiled=False, name=self.name)


@pytest.fixture(scope="module", params=["train", pytest.param("train-vocoder", marks=pytest.mark.slow)])
def undisturbed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, write_cache: Callable[..., Manifest]
) -> Undisturbed:
    folder = tmp_path_factory.mktemp("undisturbed")
    cache, run = folder / "cache", folder / "run"
    if request.param == "train":
        write_cache(cache, train=29, val=3)
    else:
        write_waves(cache, 32)
    clip = plant(cache)
    summary = finish(command(cache, run, is_compiled=False, name=request.param))
    return Undisturbed(request.param, cache, run, summary, clip)


def test_every_skipped_step_names_the_clip_that_is_not_finite(undisturbed: Undisturbed) -> None:
    skipped_steps = read_skipped(undisturbed.run)
    # Batches of 4 leave out one of 29 clips, or two of 30, so the clip may be missing in an epoch.
    assert 3 <= len(skipped_steps) == undisturbed.summary["skipped_updates"] <= 5
    assert all(line["not_finite"] == [undisturbed.clip] and undisturbed.clip in line["ids"] for line in skipped_steps)
    assert len({line["epoch"] for line in skipped_steps}) == len(skipped_steps)
    (warning,) = [line for line in undisturbed.summary["warnings"] if "not finite" in line]
    assert f"(not finite in the cache: {undisturbed.clip})" in warning
    assert math.isfinite(undisturbed.summary["loss"]["last"])


def test_two_kills_and_a_sigterm_do_not_change_the_result(tmp_path: Path, undisturbed: Undisturbed) -> None:
    killed, expected = tmp_path / "killed", undisturbed.summary
    arguments = undisturbed.command(killed)
    assert stop_at(arguments, 6, signal.SIGKILL, is_saved=True)[0] == -signal.SIGKILL
    code, said = stop_at(arguments, 12, signal.SIGTERM)
    assert (code, "resuming after step " in said, "the same command with --resume goes on" in said) == (130, True, True)
    assert stop_at(arguments, 20, signal.SIGKILL)[0] == -signal.SIGKILL
    found = finish(arguments)
    assert_same_end(undisturbed.run, killed, (expected, found))
    assert read_skipped(killed) == read_skipped(undisturbed.run)
    assert len(found["resumed_at_steps"]) == 3
    # The run is finished: the command prints its summary again and trains nothing.
    assert finish(arguments) == found


@pytest.mark.slow
def test_a_full_disk_keeps_the_last_checkpoint_and_the_run_resumes_when_there_is_room(
    tmp_path: Path, undisturbed: Undisturbed
) -> None:
    run = Path(shutil.copytree(undisturbed.run, tmp_path / "run"))
    (run / "summary.json").unlink()
    for later in ("step-00000028", "step-00000030"):
        shutil.rmtree(run / "checkpoints" / later)
    arguments, weights = undisturbed.command(run), run / "checkpoints" / "step-00000024" / "weights.safetensors"
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        # Room for every line that a run writes, but not for its weights.
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (weights.stat().st_size - 1, resource.RLIM_INFINITY))
        printed, said = process.communicate()
    assert (process.returncode, printed) == (2, "")
    tried = [line for line in said.splitlines() if "cannot be written" in line]
    expected = (
        "checkpoints/step-000000{}: cannot be written (File too large); "
        "earlier checkpoints are untouched, free space and go on"
    )
    assert [line.rpartition(f"{run}/")[2] for line in tried] == [expected.format(step) for step in (28, 30)]
    assert "warning: checkpoint not saved: " in tried[0]
    assert tried[1].startswith("xtts: ")
    assert said.splitlines()[-1] == tried[1]
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["step-00000024"]
    assert_same_end(undisturbed.run, run, (undisturbed.summary, finish(arguments)))


@pytest.mark.slow
def test_a_kill_changes_nothing_with_references_accumulation_and_augmentation(
    tmp_path: Path, write_cache: Callable[..., Manifest]
) -> None:
    cache, undisturbed, killed = tmp_path / "cache", tmp_path / "undisturbed", tmp_path / "killed"
    write_cache(cache, train=61, val=9, buckets=((9, 12), (16, 24)))
    model = {**MODEL, "voice_latents": 4, "reference_frames": 8, "dropout": 0.2}
    changed = {"accumulation_steps": 2, "voice_change": 0.2, "reference_dropout": 0.3}
    training = {**TRAINING, **changed, "sample_every_evaluations": 1, "sample_sentences": 2}
    augmentation = {"gain_db": 6, "speed_change": 0.1, "noise_min_snr_db": 20, "time_masks": 1}

    def everything(run: Path) -> list[str]:
        options = [f"--set=augmentation.{name}={value}" for name, value in augmentation.items()]
        usual = command(cache, run, is_compiled=False, steps=24, training=training, model=model)
        return [*usual, *options, "--set=data.cache_records=false"]

    expected = finish(everything(undisturbed))
    assert stop_at(everything(killed), 9, signal.SIGKILL, is_saved=True)[0] == -signal.SIGKILL
    assert stop_at(everything(killed), 15, signal.SIGTERM)[0] == 130
    assert_same_end(undisturbed, killed, (expected, finish(everything(killed))))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "is_compiled"), [("train", False), ("train", True), ("train-vocoder", True)])
def test_twenty_kills_at_random_steps_do_not_change_the_result(
    tmp_path: Path, write_cache: Callable[..., Manifest], name: str, *, is_compiled: bool
) -> None:
    cache = tmp_path / "cache"
    if name == "train":
        write_cache(cache, train=60, val=9, buckets=((9, 12), (16, 24)))
    else:
        write_waves(cache, 69, "data.buckets=[[30,26],[40,80]]")
    undisturbed, killed = tmp_path / "undisturbed", tmp_path / "killed"
    steps = 200
    expected = finish(command(cache, undisturbed, is_compiled=is_compiled, steps=steps, name=name))
    arguments = command(cache, killed, is_compiled=is_compiled, steps=steps, name=name)
    at = sorted(np.random.default_rng(7).integers(1, steps - 5, 20).tolist())
    codes = [stop_at(arguments, step, signal.SIGKILL)[0] for step in at]
    assert codes == [-signal.SIGKILL] * 20
    found = finish(arguments)
    assert_same_end(undisturbed, killed, (expected, found))
    sys.stdout.write(f"killed at {at}, resumed after {found['resumed_at_steps']}, weights {found['weights_sha256']}\n")
