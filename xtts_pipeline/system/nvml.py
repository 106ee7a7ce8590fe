"""Sample the GPU through NVIDIA's management library (NVML) in a thread of its own.

The library comes with the extra `gpu`. The sampled GPU is the first of CUDA_VISIBLE_DEVICES. NVML numbers GPUs by PCI
address; CUDA_DEVICE_ORDER=PCI_BUS_ID makes TensorFlow do the same.
"""

import os
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Any, Self

from xtts_pipeline.system.installation import install_command
from xtts_pipeline.system.runtime import visible_gpus

SAMPLES_PER_SECOND = 10
# NVML's throttle reasons that slow a busy device; idling and user clock settings are left out. An H100 always names
# power under a heavy load, at 96% of its highest clock.
_THROTTLE = {"power": 0x4 | 0x80, "heat": 0x20 | 0x40, "hardware": 0x8}
FULL_CLOCK_SHARE = 0.9


@dataclass(frozen=True)
class Sample:
    """One reading of the GPU's counters, `seconds` after the start; None for a counter that is not available.

    throttled: why the clock is under FULL_CLOCK_SHARE of its maximum.
    """

    seconds: float
    utilisation: float | None
    memory_mb: float | None
    sm_mhz: int | None
    watts: float | None
    throttled: tuple[str, ...] | None
    pcie_mb_per_second: float | None


class Sampler:
    """Context manager that samples the first visible GPU ten times a second.

    Without a GPU `samples` stays empty and `reason` says why.
    """

    def __init__(self) -> None:
        self.samples: list[Sample] = []
        self.reason: str | None = None
        self.device: str | None = None
        self._is_over, self._last_error = threading.Event(), ""
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        try:
            self._library, self._handle, self.device = _open_first_gpu()
        except LookupError as error:
            self.reason = str(error)
            return self
        self._started = time.perf_counter()
        self._thread = threading.Thread(target=self._sample, name="nvml", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        if self._thread is not None:
            self._thread.join()
            self._library.nvmlShutdown()

    def _sample(self) -> None:
        # Follow the clock: fixed pauses would add the time that NVML takes to answer.
        tick = 1
        while not self._is_over.wait(max(self._started + tick / SAMPLES_PER_SECOND - time.perf_counter(), 0.0)):
            sample = self._read_counters()
            if all(value is None for name, value in asdict(sample).items() if name != "seconds"):
                self.reason = f"NVML does not answer ({self._last_error})"
                return
            self.samples.append(sample)
            tick = max(tick, int((time.perf_counter() - self._started) * SAMPLES_PER_SECOND)) + 1

    def _read_counters(self) -> Sample:
        library, handle = self._library, self._handle
        use = self._ask(library.nvmlDeviceGetUtilizationRates, handle)
        memory = self._ask(library.nvmlDeviceGetMemoryInfo, handle)
        milliwatts = self._ask(library.nvmlDeviceGetPowerUsage, handle)
        throttled = self._ask(library.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
        clock, highest = (
            self._ask(query, handle, library.NVML_CLOCK_SM)
            for query in (library.nvmlDeviceGetClockInfo, library.nvmlDeviceGetMaxClockInfo)
        )
        if clock and highest and clock >= FULL_CLOCK_SHARE * highest:
            throttled = 0
        counters = (library.NVML_PCIE_UTIL_TX_BYTES, library.NVML_PCIE_UTIL_RX_BYTES)
        moved = [self._ask(library.nvmlDeviceGetPcieThroughput, handle, counter) for counter in counters]
        return Sample(
            seconds=time.perf_counter() - self._started,
            utilisation=None if use is None else use.gpu / 100,
            memory_mb=None if memory is None else memory.used / 1e6,
            sm_mhz=clock,
            watts=None if milliwatts is None else milliwatts / 1e3,
            throttled=None
            if throttled is None
            else tuple(name for name, bits in _THROTTLE.items() if throttled & bits),
            # NVML counts kB.
            pcie_mb_per_second=None if None in moved else sum(moved) / 1e3,
        )

    def _ask(self, counter: Callable[..., Any], *arguments: Any) -> Any:
        """Return a counter's value, or None if this device or driver does not have it."""
        try:
            return counter(*arguments)
        except self._library.NVMLError as error:
            self._last_error = str(error)
            return None


def free_memory_bytes() -> int | None:
    """Return the free memory of the first visible GPU; None without the library, a driver or such a GPU."""
    memory = _ask_first_gpu("nvmlDeviceGetMemoryInfo")
    return None if memory is None else int(memory.free)


def compute_capability() -> tuple[int, int] | None:
    """Return the CUDA compute capability of the first visible GPU; None without the library, a driver or such a GPU."""
    found = _ask_first_gpu("nvmlDeviceGetCudaComputeCapability")
    return None if found is None else (found[0], found[1])


def _ask_first_gpu(query: str) -> Any:
    """Return what the function of NVML returns; None without the library, a driver or such a GPU."""
    try:
        library, handle, _ = _open_first_gpu()
    except LookupError:
        return None
    try:
        return getattr(library, query)(handle)
    except library.NVMLError:
        return None
    finally:
        library.nvmlShutdown()


def _open_first_gpu() -> tuple[Any, Any, str]:
    """Return NVML, to be shut down, with the handle and the name of the first GPU that CUDA uses.

    Raises LookupError, saying why, without the library, a driver or such a GPU.
    """
    try:
        import pynvml  # the extra `gpu`
    except ModuleNotFoundError:
        raise LookupError(f"nvidia-ml-py is not installed; {install_command('gpu')}") from None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise LookupError(f"NVML finds no GPU ({error})") from None
    visible = visible_gpus()
    first = "0" if visible is None else next(iter(visible), None)
    with ExitStack() as undo:
        undo.callback(pynvml.nvmlShutdown)
        if first is None:
            raise LookupError("CUDA_VISIBLE_DEVICES hides every GPU")
        try:
            if first.isdecimal():
                handle = pynvml.nvmlDeviceGetHandleByIndex(int(first))
            else:
                handle = pynvml.nvmlDeviceGetHandleByUUID(first)
            name = str(pynvml.nvmlDeviceGetName(handle))
        except pynvml.NVMLError as error:
            found = os.environ.get("CUDA_VISIBLE_DEVICES", "not set")
            raise LookupError(f"NVML finds no GPU ({error}; CUDA_VISIBLE_DEVICES is {found})") from None
        undo.pop_all()
    return pynvml, handle, name
