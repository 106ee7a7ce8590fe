"""Split the time of a run into waiting for data and training steps."""

import math
import time
from array import array
from collections.abc import Callable, Iterator, MutableSequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from xtts_pipeline.data.batch_stream import BatchStream

WARMUP_STEPS = 5


@dataclass
class StepTimer:
    """Times the wait for data and each step.

    A synchronous device (CPU) is timed step by step. An asynchronous device (GPU) returns before its work is done, so
    only windows between two readbacks are timed. Its step time is the window's time over its steps, and the wait is an
    upper bound, since the device may work while the host waits.
    `examples` has the rows of each step's batch.
    """

    is_asynchronous: bool = False
    clock: Callable[[], float] = time.perf_counter
    # Arrays: a run may take millions of steps.
    wait_seconds: MutableSequence[float] = field(default_factory=lambda: array("d"))
    step_seconds: MutableSequence[float] = field(default_factory=lambda: array("d"))
    examples: MutableSequence[int] = field(default_factory=lambda: array("i"))
    mel_frames: int = 0
    _excluded_steps: set[int] = field(default_factory=set)
    _window_start: float = 0.0
    _window_steps: int = 0
    _window_seconds: float = 0.0
    _device_seconds: float = 0.0

    def fetch(self, batches: BatchStream) -> Any:
        """Return the next batch; its wait counts as waiting for data."""
        if not self._window_steps:
            self._window_start = self.clock()
        batch = next(batches)
        self.wait_seconds.append(batches.wait_seconds)
        return batch

    @contextmanager
    def stepping(self, examples: int) -> Iterator[None]:
        """Time the block as one step on this many examples."""
        started = self.clock()
        yield
        self.examples.append(examples)
        self._window_steps += 1
        if not self.is_asynchronous:
            self.step_seconds.append(self.clock() - started)

    @contextmanager
    def pausing(self) -> Iterator[None]:
        """Exclude the block from the window. The device must be idle."""
        started = self.clock()
        yield
        self._window_start += self.clock() - started

    def exclude_last_step(self) -> None:
        """Exclude the last step from the summary, for example because it compiled."""
        self._excluded_steps.add(len(self.examples) - 1)

    def close_window(self, mel_frames: int) -> dict[str, float]:
        """Close the window after a readback; return its figures.

        These are the mean step time in ms, the shares of time spent waiting for data and by the device, and examples
        per second; all NaN without steps.
        """
        steps, self._window_steps = self._window_steps, 0
        if not steps:  # An earlier process took all steps of the window.
            return dict.fromkeys(("step_ms", "data_wait_share", "device_share", "examples_per_second"), math.nan)
        wait = sum(self.wait_seconds[-steps:])
        window = range(len(self.examples) - steps, len(self.examples))
        if self.is_asynchronous:
            wall = self.clock() - self._window_start
            if self._excluded_steps.intersection(window):
                self._excluded_steps.update(window)
            self.step_seconds.extend([max(wall - wait, 0.0) / steps] * steps)
        self.mel_frames += mel_frames
        step = sum(self.step_seconds[-steps:])
        busy = step + wait
        window_seconds = max(self.clock() - self._window_start, busy, 1e-9)
        if not self._excluded_steps.intersection(window):
            self._device_seconds += step
            self._window_seconds += window_seconds
        return {
            "step_ms": 1e3 * (busy if self.is_asynchronous else step) / steps,
            "data_wait_share": wait / max(busy, 1e-9),
            "device_share": step / window_seconds,
            "examples_per_second": sum(self.examples[-steps:]) / window_seconds,
        }

    def summary(self) -> dict[str, Any]:
        """Return step times in ms, the shares of wait and device, and throughput, without warm-up or excluded steps.

        None for each if no step is left.
        """
        steps = len(self.step_seconds)
        warm = range(WARMUP_STEPS if steps > 2 * WARMUP_STEPS else int(steps > 1), steps)
        kept = [index for index in warm if index not in self._excluded_steps]
        if not kept:
            return dict.fromkeys(
                ("step_ms", "data_wait_share", "device_share", "examples_per_second", "mel_frames_per_second")
            )
        wait, step = np.array(self.wait_seconds)[kept] * 1e3, np.array(self.step_seconds)[kept] * 1e3
        total = step + wait
        shown = total if self.is_asynchronous else step
        seconds = float(total.sum()) / 1e3
        frames_per_step = self.mel_frames / steps
        return {
            "step_ms": {
                "mean": float(shown.mean()),
                "std": float(shown.std()),
                "p50": float(np.percentile(shown, 50)),
                "p95": float(np.percentile(shown, 95)),
            },
            "data_wait_share": float(wait.sum() / 1e3 / seconds),
            "device_share": self._device_seconds / self._window_seconds if self._window_seconds else None,
            "examples_per_second": sum(self.examples[index] for index in kept) / seconds,
            "mel_frames_per_second": frames_per_step * len(step) / seconds,
        }
