"""What NVIDIA's management library says of the GPU while something else runs: sampled in a thread of its own.

The library comes with the extra `gpu`; without it, without a driver or without a GPU there is nothing to sample. Which GPU is looked at is
what CUDA_VISIBLE_DEVICES names first. A number in it counts as NVML does, by PCI address: CUDA_DEVICE_ORDER=PCI_BUS_ID makes TensorFlow
count so too.
"""

import os
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any, Self

from xtts_pipeline.system.runtime import visible_gpus

SAMPLES_PER_SECOND = 10
# Bits of NVML's throttle reasons that slow a device which has work; idling and a user's own clock setting do not.
_THROTTLE = {"power": 0x4 | 0x80, "heat": 0x20 | 0x40, "hardware": 0x8}


@dataclass(frozen=True)
class Sample:
    """One look at the device; seconds since the sampling began. None stands for a counter that this device or driver does not have."""

    seconds: float
    utilisation: float | None
    memory_mb: float | None
    sm_mhz: int | None
    watts: float | None
    throttled: tuple[str, ...] | None
    pcie_mb_per_second: float | None

    def to_json(self) -> dict[str, Any]:
        """Return it as `--json` prints it."""
        return asdict(self)


class Sampler:
    """A context manager that looks at the first visible GPU ten times a second; without one `samples` stays empty, `reason` says why."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []
        self.reason: str | None = None
        self.device: str | None = None
        self._is_over, self._last_error = threading.Event(), ""
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        try:
            import pynvml
        except ModuleNotFoundError:
            self.reason = "nvidia-ml-py is not installed; pip install 'xtts-pipeline[gpu]'"
            return self
        self._library = pynvml
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            self.reason = f"NVML finds no GPU ({error})"
            return self
        try:
            self._handle = _first_visible(pynvml)
            self.device = None if self._handle is None else str(pynvml.nvmlDeviceGetName(self._handle))
        except pynvml.NVMLError as error:
            self.reason = f"NVML finds no GPU ({error}; CUDA_VISIBLE_DEVICES is {os.environ.get('CUDA_VISIBLE_DEVICES', 'not set')})"
        if self.device is None:
            self.reason = self.reason or "CUDA_VISIBLE_DEVICES hides every GPU"
            pynvml.nvmlShutdown()
            return self
        self._started = time.perf_counter()
        self._thread = threading.Thread(target=self._sample, name="nvml", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        if self._thread is not None:
            self._thread.join()
            self._library.nvmlShutdown()

    def _sample(self) -> None:
        # By the clock: pauses of a tenth between looks would add the time that NVML takes to answer.
        tick = 1
        while not self._is_over.wait(max(self._started + tick / SAMPLES_PER_SECOND - time.perf_counter(), 0.0)):
            sample = self._look()
            if all(value is None for name, value in asdict(sample).items() if name != "seconds"):
                self.reason = f"NVML does not answer ({self._last_error})"
                return
            self.samples.append(sample)
            tick = max(tick, int((time.perf_counter() - self._started) * SAMPLES_PER_SECOND)) + 1

    def _look(self) -> Sample:
        library, handle = self._library, self._handle
        use = self._ask(library.nvmlDeviceGetUtilizationRates, handle)
        memory = self._ask(library.nvmlDeviceGetMemoryInfo, handle)
        milliwatts = self._ask(library.nvmlDeviceGetPowerUsage, handle)
        throttled = self._ask(library.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
        counters = (library.NVML_PCIE_UTIL_TX_BYTES, library.NVML_PCIE_UTIL_RX_BYTES)
        moved = [self._ask(library.nvmlDeviceGetPcieThroughput, handle, counter) for counter in counters]
        return Sample(
            seconds=time.perf_counter() - self._started,
            utilisation=None if use is None else use.gpu / 100,
            memory_mb=None if memory is None else memory.used / 1e6,
            sm_mhz=self._ask(library.nvmlDeviceGetClockInfo, handle, library.NVML_CLOCK_SM),
            watts=None if milliwatts is None else milliwatts / 1e3,
            throttled=None
            if throttled is None
            else tuple(name for name, bits in _THROTTLE.items() if throttled & bits),
            # NVML counts kB.
            pcie_mb_per_second=None if None in moved else sum(moved) / 1e3,
        )

    def _ask(self, counter: Callable[..., Any], *arguments: Any) -> Any:
        """Return what a counter says, or None where this device or driver does not have it."""
        try:
            return counter(*arguments)
        except self._library.NVMLError as error:
            self._last_error = str(error)
            return None


def free_memory_bytes() -> int | None:
    """Return how much memory of the first visible GPU nothing uses yet; None without the library, a driver or such a GPU."""
    try:
        import pynvml
    except ModuleNotFoundError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        handle = _first_visible(pynvml)
        return None if handle is None else int(pynvml.nvmlDeviceGetMemoryInfo(handle).free)
    except pynvml.NVMLError:
        return None
    finally:
        pynvml.nvmlShutdown()


def _first_visible(library: Any) -> Any | None:
    """Return NVML's handle of the GPU that CUDA counts first, None where all are hidden. Raises NVMLError if there is no such GPU."""
    visible = visible_gpus()
    if visible == []:
        return None
    first = "0" if visible is None else visible[0]
    return (
        library.nvmlDeviceGetHandleByIndex(int(first))
        if first.isdecimal()
        else library.nvmlDeviceGetHandleByUUID(first)
    )
