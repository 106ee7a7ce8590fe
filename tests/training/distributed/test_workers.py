"""`xtts train` in several processes on loopback: they train like one process and end together if one of them ends."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest

from benchmarks.scaling_processes import free_ports
from tests.calling import start_xtts
from tests.json_lines import read_json_lines
from tests.training.test_kills import MODEL, command, held_at
from tests.training.tiny_run import read_metrics
from tests.waiting import wait_until
from xtts_pipeline.cache.format.manifest import Manifest
from xtts_pipeline.training.checkpoints.run_folder import checkpoint_folders
from xtts_pipeline.training.distributed.cluster import Cluster

pytestmark = pytest.mark.slow
BUCKETS = ((9, 12), (16, 24))
TRAINING = {
    "batch_size": 12,
    "log_every": 1,
    "evaluate_every": 20,
    "save_every": 4,
    "sample_every_evaluations": "null",
}
DETECTION_SECONDS = 60.0


def environment(addresses: Sequence[str], index: int) -> dict[str, str]:
    """Return the environment of one worker; without TF_CONFIG if it is the only one."""
    cluster = Cluster(tuple(addresses), index)
    return {**os.environ, **({"TF_CONFIG": cluster.to_tf_config()} if len(addresses) > 1 else {})}


class Workers:
    """The processes of one run; a context manager that kills the remaining ones."""

    def __init__(
        self, cache: Path, run: Path, count: int, steps: int, *, hold_at: int | None = None, voice_latents: int = 0
    ) -> None:
        """Start the processes; with `hold_at` the chief waits after the report of this step until `go_on`."""
        addresses = tuple(f"127.0.0.1:{port}" for port in free_ports(count))
        self.run, self.gate = run, run.with_name(f"{run.name}-goes-on")
        self.processes = []
        for index in range(count):
            # test_step.py compares compiled steps of several devices.
            model = {**MODEL, "voice_latents": voice_latents}
            arguments = command(cache, run, is_compiled=False, steps=steps, training=TRAINING, model=model)
            if hold_at is not None and index == 0:
                arguments = held_at(arguments, hold_at, self.gate)
            with (run.parent / f"{run.name}-{index}.err").open("a") as said:
                self.processes.append(
                    subprocess.Popen(
                        arguments, env=environment(addresses, index), stdout=subprocess.PIPE, stderr=said, text=True
                    )
                )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()

    def finish(self) -> list[dict[str, Any]]:
        """Return the summaries, the chief's first."""
        printed = [process.communicate()[0] for process in self.processes]
        assert self.codes() == [0] * len(self.processes), self.said(0)
        return [dict(json.loads(text)) for text in printed]

    def codes(self) -> list[int]:
        return [process.wait() for process in self.processes]

    def said(self, index: int) -> str:
        return (self.run.parent / f"{self.run.name}-{index}.err").read_text()

    def wait_for(self, text: str, index: int = 0) -> None:
        """Return once a process has printed the text."""
        wait_until(lambda: text in self.said(index), self.processes[index])

    def go_on(self) -> None:
        """Release the chief from the step that it is held at."""
        self.gate.touch()


@pytest.fixture
def cache(tmp_path: Path, write_cache: Callable[..., Manifest]) -> Path:
    write_cache(tmp_path / "cache", train=220, val=9, shards=5)
    return tmp_path / "cache"


def finish(cache: Path, run: Path, count: int, steps: int) -> list[dict[str, Any]]:
    with Workers(cache, run, count, steps) as workers:
        return workers.finish()


def losses(run: Path) -> list[float]:
    return [line["loss"] for line in read_metrics(run) if line["split"] == "train"]


def left_out(run: Path) -> list[Any]:
    return read_json_lines(run / "left_out.jsonl")


@pytest.mark.parametrize(("count", "voice_latents"), [(2, 4), (4, 0)])
def test_several_processes_train_like_one(
    tmp_path: Path, write_cache: Callable[..., Manifest], count: int, voice_latents: int
) -> None:
    cache, one, many = tmp_path / "cache", tmp_path / "one", tmp_path / "many"
    write_cache(cache, train=220, val=9, shards=5, buckets=BUCKETS)
    with (
        Workers(cache, one, 1, 50, voice_latents=voice_latents) as alone,
        Workers(cache, many, count, 50, voice_latents=voice_latents) as together,
    ):
        alone.finish()
        _, *others = together.finish()
    assert others == [{"steps": 50}] * (count - 1)
    expected = np.array(losses(one))
    assert len(expected) == 50
    np.testing.assert_allclose(losses(many), expected, rtol=1e-4)
    sys.stdout.write(f"{count} processes: loss apart by {np.max(np.abs(losses(many) / expected - 1)):.1e}\n")
    epochs = left_out(many)
    assert [line["epoch"] for line in epochs] == list(range(len(epochs)))
    assert len(epochs) >= 3


@pytest.mark.parametrize(("victim", "number"), [(1, signal.SIGKILL), (0, signal.SIGKILL), (2, signal.SIGSTOP)])
def test_a_lost_worker_ends_all_and_the_same_command_resumes(
    tmp_path: Path, cache: Path, victim: int, number: signal.Signals
) -> None:
    steps, run, other = 30, tmp_path / "disturbed", tmp_path / "undisturbed"
    with Workers(cache, other, 3, steps) as undisturbed, Workers(cache, run, 3, steps, hold_at=11) as workers:
        workers.wait_for("held at step 11\n")
        workers.processes[victim].send_signal(number)
        workers.go_on()
        sent = time.monotonic()
        others = [index for index in range(3) if index != victim]
        assert [workers.processes[index].wait(DETECTION_SECONDS) for index in others] == [1, 1]
        passed = time.monotonic() - sent
        sys.stdout.write(f"worker {victim} {number.name}: the others had ended after {passed:.0f} s\n")
        assert passed < DETECTION_SECONDS
        for index in others:
            assert f"worker {index} of 3: another worker is gone" in workers.said(index)
            assert "Traceback" not in workers.said(index)
        expected, *_ = undisturbed.finish()
    found, *_ = finish(cache, run, 3, steps)
    assert found["resumed_at_steps"]
    assert found["weights_sha256"] == expected["weights_sha256"]
    assert read_metrics(run) == read_metrics(other)
    assert left_out(run) == left_out(other)


@pytest.mark.parametrize("asked", [0, 1])
def test_a_sigterm_of_one_worker_stops_all_at_the_same_step(tmp_path: Path, cache: Path, asked: int) -> None:
    steps, run = 24, tmp_path / "disturbed"
    with (
        Workers(cache, tmp_path / "undisturbed", 2, steps) as undisturbed,
        Workers(cache, run, 2, steps, hold_at=6) as workers,
    ):
        workers.wait_for("held at step 6\n")
        workers.processes[asked].terminate()
        workers.wait_for("interrupted: ", asked)
        workers.go_on()
        assert workers.codes() == [130, 130]
        assert [("which is saved" in workers.said(index)) for index in range(2)] == [True, True]
        expected, *_ = undisturbed.finish()
    stopped_at = int(checkpoint_folders(run)[-1].name.removeprefix("step-"))
    found, *_ = finish(cache, run, 2, steps)
    assert found["resumed_at_steps"] == [stopped_at]
    assert found["weights_sha256"] == expected["weights_sha256"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_that_waits_for_another_one_says_so_and_ends_on_a_signal(
    tmp_path: Path, cache: Path, number: signal.Signals
) -> None:
    addresses = tuple(f"127.0.0.1:{port}" for port in free_ports(2))
    arguments = command(cache, tmp_path / "run", is_compiled=False, steps=2, training=TRAINING)
    with subprocess.Popen(arguments, env=environment(addresses, 0), stderr=subprocess.PIPE, text=True) as waiting:
        assert waiting.stderr is not None
        expected = f"worker 0 of 2: waiting for worker 1 at {addresses[1]}, for 300 s at most"
        assert any(expected in line for line in waiting.stderr)
        waiting.send_signal(number)
        assert waiting.stderr.read().splitlines()[-1] == "xtts: interrupted"
    assert waiting.returncode == 130


def refused(cache: Path, run: Path, count: int, more: Sequence[str]) -> tuple[int, str]:
    addresses = [f"127.0.0.1:{number + 1}" for number in range(count)]
    options = ("--cache", cache, "--output", run, "--steps", 2, *more)
    done = start_xtts("train", *options, env=environment(addresses, 0))
    return done.returncode, done.stderr


def test_a_batch_that_devices_cannot_share_is_refused(tmp_path: Path, cache: Path) -> None:
    code, said = refused(cache, tmp_path / "run", 1, ["--devices", "3", "--set", "training.batch_size=4"])
    assert (code, "training.batch_size=4 cannot be shared by 3 devices" in said) == (2, True)
    code, said = refused(cache, tmp_path / "other", 2, ["--devices", "3"])
    assert (code, "start more workers instead" in said) == (2, True)


def test_batches_that_are_copied_ahead_to_two_devices_do_not_change_the_weights(
    tmp_path: Path, write_cache: Callable[..., Manifest]
) -> None:
    cache = tmp_path / "buckets"
    write_cache(cache, train=220, val=9, buckets=BUCKETS)
    weights = set()
    for setting, steps in (("false", (7,)), ("true", (3, 7))):
        for last in steps:
            arguments = command(cache, tmp_path / setting, is_compiled=False, steps=last, training=TRAINING)
            options = ["--devices", "2", "--set", f"data.prefetch_to_device={setting}"]
            done = subprocess.run([*arguments, *options], capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
        weights.add(json.loads(done.stdout)["weights_sha256"])
    assert len(weights) == 1
