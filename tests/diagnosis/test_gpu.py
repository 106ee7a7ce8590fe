"""`xtts diagnose gpu`: without a GPU in a real command, with one by samples that are given."""

from pathlib import Path

import pytest

from tests.diagnosis.commands import run_command
from xtts_pipeline.diagnosis.gpu import judge, time_shares
from xtts_pipeline.diagnosis.oscillation import Oscillation, find_oscillation
from xtts_pipeline.diagnosis.trial import StepTime
from xtts_pipeline.nvml import Sample


def test_without_a_gpu_the_host_is_looked_at_and_that_is_no_failure(cache: Path, tmp_path: Path) -> None:
    options = ["--cache", cache, "--seconds", 1, "--plot", tmp_path / "timeline.png"]
    done = run_command("none", "diagnose", "gpu", *options, settings=("training.jit_compile=false",))
    assert (done.exit_code, done.stderr) == (0, "")
    assert (done.result["device"], done.result["gpu"]) == (None, None)
    assert done.result["no_gpu_reason"]
    assert done.result["steps"] > 0
    assert sum(done.result["shares"].values()) == pytest.approx(1.0)
    assert (tmp_path / "timeline.png").read_bytes().startswith(b"\x89PNG")


def steps(wait: float, host: float, compute: float) -> list[StepTime]:
    return [StepTime(number, wait, host, compute, 4, is_compiling=False) for number in range(5)]


def samples(*utilisation: float, throttled: tuple[str, ...] = ()) -> list[Sample]:
    return [Sample(0.1 * number, share, 900.0, 1_500, 300.0, throttled, 50.0) for number, share in enumerate(utilisation)]


@pytest.mark.parametrize(
    ("wait", "seen", "verdict"),
    [
        (0.30, samples(*[0.4] * 30), "starved"),
        (0.01, samples(*[0.95, 0.95, 0.95, 0.1, 0.1, 0.1] * 6), "oscillating"),
        (0.01, samples(*[0.4] * 30), "host-bound"),
        (0.01, samples(*[0.95] * 30), "compute-bound"),
        (0.01, samples(*[0.95] * 30, throttled=("heat",)), "throttled"),
        (0.01, [], "compute-bound"),
    ],
)
def test_the_verdict_follows_from_shares_and_samples(wait: float, seen: list[Sample], verdict: str) -> None:
    shares = time_shares(steps(wait, 0.0, 1.0 - wait))
    found = judge(shares, seen, find_oscillation([sample.utilisation for sample in seen]))
    assert found.name == verdict
    assert found.is_healthy == (verdict == "compute-bound")


def test_an_oscillation_is_said_in_seconds() -> None:
    found = judge(time_shares(steps(0.0, 0.1, 0.9)), samples(0.5), Oscillation(period=16, strength=0.9, spread=0.6))
    assert "every 1.6 s" in found.finding
