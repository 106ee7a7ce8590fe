"""The GPU is sampled by a library that stands for NVML."""

import sys
import time
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from xtts_pipeline.nvml import Sampler, free_memory_bytes


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
        "nvmlDeviceGetMemoryInfo": lambda _: SimpleNamespace(used=2_000_000, free=7_000_000),
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


def test_the_free_memory_is_that_of_the_device_and_nobody_s_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError("no driver")

    monkeypatch.setitem(sys.modules, "pynvml", library())
    assert free_memory_bytes() == 7_000_000
    monkeypatch.setitem(sys.modules, "pynvml", library(nvmlInit=fail))
    assert free_memory_bytes() is None
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert free_memory_bytes() is None
