"""`xtts diagnose gpu`: without a GPU in a real command, with one by a library that stands for NVML."""

import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.diagnosis.commands import run_command
from xtts_pipeline.diagnosis.gpu import judge, time_shares
from xtts_pipeline.diagnosis.nvml import Sample, Sampler
from xtts_pipeline.diagnosis.oscillation import Oscillation, find_oscillation
from xtts_pipeline.diagnosis.trial import StepTime


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


def library(**changed: Any) -> ModuleType:
    """Return a module with the names of nvidia-ml-py that are used, of a device at rest."""
    module = ModuleType("pynvml")
    names = {
        "NVMLError": RuntimeError,
        "NVML_CLOCK_SM": 1,
        "NVML_PCIE_UTIL_TX_BYTES": 0,
        "NVML_PCIE_UTIL_RX_BYTES": 1,
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetName": lambda _: "Device 9",
        "nvmlDeviceGetUtilizationRates": lambda _: SimpleNamespace(gpu=87),
        "nvmlDeviceGetMemoryInfo": lambda _: SimpleNamespace(used=2_000_000),
        "nvmlDeviceGetClockInfo": lambda *_: 1_410,
        "nvmlDeviceGetPowerUsage": lambda _: 250_000,
        "nvmlDeviceGetCurrentClocksThrottleReasons": lambda _: 0x20,
        "nvmlDeviceGetPcieThroughput": lambda *_: 1_500,
        **changed,
    }
    for name, value in names.items():
        setattr(module, name, value)
    return module


def test_the_device_is_sampled_while_something_else_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", library())
    with Sampler() as sampler:
        end = time.monotonic() + 10.0
        while not sampler.samples and time.monotonic() < end:
            time.sleep(0.02)
    first = sampler.samples[0]
    assert (sampler.device, sampler.reason) == ("Device 9", None)
    assert (first.utilisation, first.memory_mb, first.watts, first.throttled) == (0.87, 2.0, 250.0, ("heat",))
    assert first.pcie_mb_per_second == 3.0


def test_a_driver_that_is_missing_is_a_reason_not_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError("Driver Not Loaded")

    monkeypatch.setitem(sys.modules, "pynvml", library(nvmlInit=fail))
    with Sampler() as sampler:
        pass
    assert sampler.samples == []
    assert "Driver Not Loaded" in (sampler.reason or "")
