"""GPU sampling with a fake of NVML's library."""

import sys
import threading
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.waiting import wait_until
from xtts_pipeline.system import nvml
from xtts_pipeline.system.nvml import Sampler, compute_capability, free_memory_bytes


def library(**changed: Any) -> ModuleType:
    """Return a fake of the used part of nvidia-ml-py, for an idle device."""
    module = ModuleType("pynvml")
    names = {
        "NVMLError": RuntimeError,
        "NVML_CLOCK_SM": 1,
        "NVML_PCIE_UTIL_TX_BYTES": 0,
        "NVML_PCIE_UTIL_RX_BYTES": 1,
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetHandleByUUID": lambda uuid: uuid,
        "nvmlDeviceGetName": lambda handle: f"Device {handle}",
        "nvmlDeviceGetUtilizationRates": lambda _: SimpleNamespace(gpu=87),
        "nvmlDeviceGetMemoryInfo": lambda _: SimpleNamespace(used=2_000_000, free=7_000_000),
        "nvmlDeviceGetCudaComputeCapability": lambda _: [9, 0],
        "nvmlDeviceGetClockInfo": lambda *_: 1_410,
        "nvmlDeviceGetMaxClockInfo": lambda *_: 1_980,
        "nvmlDeviceGetPowerUsage": lambda _: 250_000,
        "nvmlDeviceGetCurrentClocksThrottleReasons": lambda _: 0x20,
        "nvmlDeviceGetPcieThroughput": lambda *_: 1_500,
        **changed,
    }
    for name, value in names.items():
        setattr(module, name, value)
    return module


@pytest.fixture(autouse=True)
def no_device_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def sample_until(count: int) -> Sampler:
    """Return a sampler that has stopped, after this many samples or on its own."""
    with Sampler() as sampler:
        wait_until(lambda: len(sampler.samples) >= count or sampler.reason is not None)
    return sampler


def refuse(*_: object) -> None:
    raise RuntimeError("Not Supported")


def test_the_device_is_sampled_while_something_else_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", library())
    sampler = sample_until(1)
    first = sampler.samples[0]
    assert (sampler.device, sampler.reason) == ("Device 0", None)
    assert (first.utilisation, first.memory_mb, first.watts, first.throttled) == (0.87, 2.0, 250.0, ("heat",))
    assert first.pcie_mb_per_second == 3.0


@pytest.mark.parametrize(
    ("mhz", "highest", "throttled"), [(1_908, 1_980, ()), (1_780, 1_980, ("power",)), (1_908, None, ("power",))]
)
def test_a_clock_near_its_maximum_is_not_throttled(
    monkeypatch: pytest.MonkeyPatch, mhz: int, highest: int | None, throttled: tuple[str, ...]
) -> None:
    fake = library(
        nvmlDeviceGetClockInfo=lambda *_: mhz,
        nvmlDeviceGetMaxClockInfo=refuse if highest is None else lambda *_: highest,
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda _: 0x4,
    )
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    first = sample_until(1).samples[0]
    assert (first.sm_mhz, first.throttled) == (mhz, throttled)


def test_a_slow_answer_does_not_lengthen_the_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]

    class SixPauses(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            clock[0] += timeout or 0.0
            return len(sampler.samples) == 6

    def answer_slowly(_: object) -> int:
        clock[0] += 0.06
        return 250_000

    monkeypatch.setitem(sys.modules, "pynvml", library(nvmlDeviceGetPowerUsage=answer_slowly))
    monkeypatch.setattr(nvml, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    sampler = Sampler()
    monkeypatch.setattr(sampler, "_is_over", SixPauses())
    with sampler:
        pass
    seconds = [sample.seconds for sample in sampler.samples]
    # 0.8 with pauses of a tenth between the looks.
    assert seconds[5] - seconds[0] == pytest.approx(0.5)


def test_a_missing_counter_is_none_and_sampling_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    lacking = library(nvmlDeviceGetPcieThroughput=refuse, nvmlDeviceGetCurrentClocksThrottleReasons=refuse)
    monkeypatch.setitem(sys.modules, "pynvml", lacking)
    sampler = sample_until(2)
    assert (len(sampler.samples), sampler.reason) == (2, None)
    assert (sampler.samples[1].pcie_mb_per_second, sampler.samples[1].throttled, sampler.samples[1].watts) == (
        None,
        None,
        250.0,
    )


def test_a_silent_device_ends_sampling_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    counters = (
        "UtilizationRates",
        "MemoryInfo",
        "ClockInfo",
        "PowerUsage",
        "CurrentClocksThrottleReasons",
        "PcieThroughput",
    )
    monkeypatch.setitem(sys.modules, "pynvml", library(**{f"nvmlDeviceGet{counter}": refuse for counter in counters}))
    sampler = sample_until(1)
    assert (sampler.samples, sampler.device, sampler.reason) == ([], "Device 0", "NVML does not answer (Not Supported)")


@pytest.mark.parametrize(
    ("visible", "device"), [("2,0", "Device 2"), ("GPU-8932f937,1", "Device GPU-8932f937"), ("", None), ("-1", None)]
)
def test_the_first_visible_device_is_sampled(visible: str, device: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", library())
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with Sampler() as sampler:
        pass
    assert (sampler.device, free_memory_bytes()) == (device, 7_000_000 if device else None)
    assert (sampler.reason == "CUDA_VISIBLE_DEVICES hides every GPU") == (device is None)


def test_an_unknown_device_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", library(nvmlDeviceGetHandleByUUID=refuse))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-89")
    with Sampler() as sampler:
        pass
    assert sampler.reason == "NVML finds no GPU (Not Supported; CUDA_VISIBLE_DEVICES is GPU-89)"


def test_a_missing_driver_is_a_reason_not_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError("Driver Not Loaded")

    monkeypatch.setitem(sys.modules, "pynvml", library(nvmlInit=fail))
    with Sampler() as sampler:
        pass
    assert sampler.samples == []
    assert "Driver Not Loaded" in (sampler.reason or "")


def test_free_memory_is_the_devices_or_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail() -> None:
        raise RuntimeError("no driver")

    monkeypatch.setitem(sys.modules, "pynvml", library())
    assert (free_memory_bytes(), compute_capability()) == (7_000_000, (9, 0))
    monkeypatch.setitem(sys.modules, "pynvml", library(nvmlInit=fail))
    assert (free_memory_bytes(), compute_capability()) == (None, None)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert free_memory_bytes() is None
