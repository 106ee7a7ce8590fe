"""The stream of training batches: times the wait for them, and copies them to the GPU ahead of their step.

A GPU begins a copy when it has ended all that it was given before. So a copy at the start of a step would wait for the
step before, and the GPU would then wait for the host, which has given it nothing more. A thread copies instead.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import tensorflow as tf

from xtts_pipeline.config.schema import DataConfig
from xtts_pipeline.model.batch import Batch

# One batch for the next step, and one that is copied meanwhile.
BATCHES_AHEAD = 2


class BatchStream:
    """Batches without end.

    wait_seconds: how long the step had to wait for the last batch.
    """

    def __init__(self, batches: Iterator[Any], clock: Callable[[], float] = time.perf_counter) -> None:
        self.wait_seconds = 0.0
        self._batches, self._clock = batches, clock

    def __next__(self) -> Any:
        batch, self.wait_seconds = self._fetch()
        return batch

    def close(self) -> None:
        """Fetch no more batches."""

    def _fetch(self) -> tuple[Any, float]:
        """Return the next batch and the seconds to fetch it."""
        started = self._clock()
        batch = next(self._batches)
        return batch, self._clock() - started


class CopiedBatchStream(BatchStream):
    """Batches without end, each as `copy` returned it, which a thread calls ahead of the step.

    Waiting for a copy is not in `wait_seconds`: a copy ends when the GPU has ended a step.
    """

    def __init__(
        self,
        batches: Iterator[Any],
        copy: Callable[[Any], Any],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        super().__init__(batches, clock)
        self._copy = copy
        self._thread = ThreadPoolExecutor(1, "copies")
        self._ahead: deque[Future[tuple[Any, float]]] = deque()

    def __next__(self) -> Any:
        """Return the next batch; raise what fetching or copying it raised."""
        started = self._clock()
        while len(self._ahead) < BATCHES_AHEAD:
            self._ahead.append(self._thread.submit(self._fetch_copy))
        batch, fetch_seconds = self._ahead.popleft().result()
        self.wait_seconds = min(self._clock() - started, fetch_seconds)
        self._ahead.append(self._thread.submit(self._fetch_copy))
        return batch

    def close(self) -> None:
        """Fetch no more batches, and wait for the copy that has begun."""
        self._thread.shutdown(cancel_futures=True)

    def _fetch_copy(self) -> tuple[Any, float]:
        batch, fetch_seconds = self._fetch()
        return self._copy(batch), fetch_seconds


def open_stream(
    batches: Iterator[Any], data: DataConfig, send_ahead: Callable[[Any], Any] | None = None
) -> BatchStream:
    """Return the batches as a stream, copied ahead of their step if `data.prefetch_to_device` asks for it.

    `send_ahead` copies a batch to several devices; without it, the first GPU is the one device, if there is a GPU.
    """
    copy = (send_ahead or _copier_to_gpu()) if data.prefetch_to_device else None
    return BatchStream(batches) if copy is None else CopiedBatchStream(batches, copy)


def _copier_to_gpu() -> Callable[[Any], Any] | None:
    gpus = tf.config.list_logical_devices("GPU")
    if not gpus:
        return None

    # At once, so that all wait for the same step. One after the other, each could wait for one step more.
    threads = ThreadPoolExecutor(len(Batch._fields), "copy")

    def copy(batch: Any) -> Any:
        return type(batch)(*threads.map(lambda tensor: _to_device(tensor, gpus[0].name), batch))

    return copy


def _to_device(tensor: tf.Tensor | None, device: str) -> tf.Tensor | None:
    """Return a tensor on the device.

    By an operation: `Tensor._copy_nograd` holds the GIL until the GPU has ended all that it was given before.
    """
    if tensor is None:
        return None
    # An operation on int32 would leave its input in the host's memory.
    with tf.device("CPU"):
        bits = tf.bitcast(tensor, tf.float32) if tensor.dtype == tf.int32 else tensor
    with tf.device(device):
        return tf.bitcast(bits, tensor.dtype)
