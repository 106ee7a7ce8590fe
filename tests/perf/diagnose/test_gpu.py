"""`xtts diagnose gpu`: without a GPU in a real command, with one by samples that are given."""

from pathlib import Path

import pytest

from tests.perf.commands import run_command
from xtts_pipeline.perf.diagnose.gpu import THRESHOLDS, GpuReport, judge, time_shares
from xtts_pipeline.perf.diagnose.oscillation import Oscillation, find_oscillation
from xtts_pipeline.perf.diagnose.verdict import Verdict
from xtts_pipeline.perf.trial import StepTime
from xtts_pipeline.system.nvml import Sample

ADVICE = "a faster disk"


def test_without_a_gpu_the_host_is_looked_at_and_that_is_no_failure(cache: Path, tmp_path: Path) -> None:
    options = ["--cache", cache, "--seconds", 1, "--plot", tmp_path / "timeline.png"]
    done = run_command("none", "diagnose", "gpu", *options, settings=("training.jit_compile=false",))
    assert (done.exit_code, done.stderr) == (0, "compiling the training step\n")
    assert (done.result["device"], done.result["gpu"]) == (None, None)
    assert done.result["no_gpu_reason"]
    assert done.result["picture"] == str(tmp_path / "timeline.png")
    assert done.result["steps"] > 0
    assert sum(done.result["shares"].values()) == pytest.approx(1.0)
    assert (tmp_path / "timeline.png").read_bytes().startswith(b"\x89PNG")


def steps(wait: float) -> list[StepTime]:
    return [StepTime(number, wait, 1.0 - wait, is_compiling=False) for number in range(5)]


def samples(*utilisation: float | None, throttled: tuple[str, ...] | None = ()) -> list[Sample]:
    return [
        Sample(0.1 * number, share, 900.0, 1_500, 300.0, throttled, 50.0) for number, share in enumerate(utilisation)
    ]


def found(wait: float, seen: list[Sample], *, has_gpu: bool = True) -> Verdict:
    shares = time_shares(steps(wait))
    told = [sample.utilisation for sample in seen if sample.utilisation is not None]
    return judge(shares, seen, find_oscillation(told), has_gpu=has_gpu, wait_advice=ADVICE)


@pytest.mark.parametrize(
    ("wait", "seen", "verdict"),
    [
        (0.30, samples(*[0.4] * 30), "starved"),
        (0.01, samples(*[0.95, 0.95, 0.95, 0.1, 0.1, 0.1] * 6), "oscillating"),
        (0.01, samples(*[0.4] * 30), "host-bound"),
        (0.01, samples(*[0.95] * 30), "compute-bound"),
        (0.01, samples(*[0.95] * 30, throttled=None), "compute-bound"),
        (0.01, samples(*[0.95] * 30, throttled=("heat",)), "throttled"),
    ],
)
def test_the_verdict_follows_from_shares_and_samples(wait: float, seen: list[Sample], verdict: str) -> None:
    assert found(wait, seen).name == verdict
    assert found(wait, seen).is_healthy == (verdict == "compute-bound")
    assert (ADVICE in found(wait, seen).remedy) == (verdict in {"starved", "oscillating"})


def test_a_gpu_that_nothing_is_known_of_is_not_called_busy() -> None:
    for seen in ([], samples(*[None] * 30)):
        assert (found(0.01, seen).name, found(0.01, seen).is_healthy) == ("unknown", False)
    assert found(0.30, []).name == "starved"
    assert (found(0.01, [], has_gpu=False).name, found(0.01, [], has_gpu=False).is_healthy) == ("compute-bound", True)


def test_a_gpu_that_tensorflow_does_not_see_is_said_to_idle() -> None:
    assert found(0.01, samples(*[0.0] * 30), has_gpu=False).name == "GPU not used"


def test_what_the_device_does_not_tell_is_said_so_and_the_rest_is_shown() -> None:
    seen = [Sample(0.1 * number, 0.9, None, None, 200.0, None, None) for number in range(30)]
    taken = steps(0.0)
    shares = time_shares(taken)
    report = GpuReport(
        judge(shares, seen, None, has_gpu=True, wait_advice=ADVICE),
        True,
        "Device 9",
        None,
        shares,
        tuple(taken),
        tuple(seen),
        None,
        Path("gpu.png"),
    )
    assert "not told MHz, 200 W" in report.to_text()
    assert "throttled     not told" in report.to_text()
    assert all(f"{name} {limit:.0%}" in report.to_text() for name, limit in THRESHOLDS.items())
    assert len(THRESHOLDS) == 5


def test_an_oscillation_is_said_in_seconds_by_the_samples_own_times() -> None:
    # Sampled every 0.2 s, whatever was asked for.
    seen = [Sample(0.2 * number, 0.5, 900.0, 1_500, 300.0, (), 50.0) for number in range(30)]
    verdict = judge(
        time_shares(steps(0.0)),
        seen,
        Oscillation(period=8, strength=0.9, spread=0.6),
        has_gpu=True,
        wait_advice=ADVICE,
    )
    assert "every 1.6 s" in verdict.finding
