"""What NVIDIA's management library says of the GPU while something else runs: sampled in a thread of its own.

The library comes with the extra `gpu`; without it, without a driver or without a GPU there is nothing to sample.
"""

import threading
import time
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any, Self

SAMPLES_PER_SECOND = 10
# Bits of NVML's throttle reasons that slow a device which has work; idling and a user's own clock setting do not.
_THROTTLE = {"power": 0x4 | 0x80, "heat": 0x20 | 0x40, "hardware": 0x8}


@dataclass(frozen=True)
class Sample:
    """One look at the device; seconds since the sampling began."""

    seconds: float
    utilisation: float
    memory_mb: float
    sm_mhz: int
    watts: float
    throttled: tuple[str, ...]
    pcie_mb_per_second: float

    def to_json(self) -> dict[str, Any]:
        """Return it as `--json` prints it."""
        return asdict(self)


class Sampler:
    """A context manager that looks at the first GPU ten times a second; without one `samples` stays empty, and `reason` says why."""

    def __init__(self, index: int = 0) -> None:
        self.samples: list[Sample] = []
        self.reason: str | None = None
        self.device: str | None = None
        self._index, self._is_over = index, threading.Event()
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
            self._handle = pynvml.nvmlDeviceGetHandleByIndex(self._index)
            self.device = str(pynvml.nvmlDeviceGetName(self._handle))
        except pynvml.NVMLError as error:
            self.reason = f"NVML finds no GPU ({error})"
            return self
        self._started = time.perf_counter()
        self._thread = threading.Thread(target=self._sample, name="nvml", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._is_over.set()
        if self._thread is not None:
            self._thread.join()
            self._library.nvmlShutdown()

    def _sample(self) -> None:
        try:
            while not self._is_over.wait(1 / SAMPLES_PER_SECOND):
                self.samples.append(self._look())
        except self._library.NVMLError as error:
            self.reason = f"NVML stopped answering ({error})"

    def _look(self) -> Sample:
        library, handle = self._library, self._handle
        throttled = library.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
        counters = (library.NVML_PCIE_UTIL_TX_BYTES, library.NVML_PCIE_UTIL_RX_BYTES)
        return Sample(
            seconds=time.perf_counter() - self._started,
            utilisation=library.nvmlDeviceGetUtilizationRates(handle).gpu / 100,
            memory_mb=library.nvmlDeviceGetMemoryInfo(handle).used / 1e6,
            sm_mhz=library.nvmlDeviceGetClockInfo(handle, library.NVML_CLOCK_SM),
            watts=library.nvmlDeviceGetPowerUsage(handle) / 1e3,
            throttled=tuple(name for name, bits in _THROTTLE.items() if throttled & bits),
            # NVML counts kB.
            pcie_mb_per_second=sum(library.nvmlDeviceGetPcieThroughput(handle, counter) for counter in counters) / 1e3,
        )


def free_memory_bytes(index: int = 0) -> int | None:
    """Return how much memory of a GPU nothing uses yet; None without the library, a driver or such a GPU."""
    try:
        import pynvml
    except ModuleNotFoundError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        return int(pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(index)).free)
    except pynvml.NVMLError:
        return None
    finally:
        pynvml.nvmlShutdown()
