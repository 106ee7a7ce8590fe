"""The stream of batches, with copies by a thread."""

import threading
from collections.abc import Iterator

import numpy as np
import pytest
import tensorflow as tf

from tests.clock import Clock
from xtts_pipeline.config.schema import DataConfig
from xtts_pipeline.data.batch_stream import BATCHES_AHEAD, BatchStream, CopiedBatchStream, open_stream
from xtts_pipeline.model.batch import Batch


def slow(clock: Clock, seconds: float, count: int = 100) -> Iterator[int]:
    for number in range(count):
        clock.now += seconds
        yield number


def test_a_stream_tells_how_long_its_last_batch_was_waited_for() -> None:
    clock = Clock()
    stream = BatchStream(slow(clock, 3.0), clock)
    assert next(stream) == 0
    clock.now += 50.0  # the step
    assert (next(stream), stream.wait_seconds) == (1, 3.0)


def test_batches_are_copied_ahead_in_their_order() -> None:
    copied: list[int] = []
    is_ahead = threading.Event()

    def copy(number: int) -> str:
        copied.append(number)
        if number == BATCHES_AHEAD:
            is_ahead.set()
        return f"copy of {number}"

    stream = CopiedBatchStream(iter(range(100)), copy)
    assert next(stream) == "copy of 0"
    assert is_ahead.wait(60)
    assert [next(stream) for _ in range(30)] == [f"copy of {number}" for number in range(1, 31)]
    stream.close()
    assert copied == list(range(len(copied)))
    assert 31 <= len(copied) <= 31 + BATCHES_AHEAD


def test_the_wait_for_a_copy_is_not_one_for_data() -> None:
    clock = Clock()
    stream = CopiedBatchStream(slow(clock, 2.0), lambda _: setattr(clock, "now", clock.now + 40.0), clock)
    next(stream)
    stream.close()
    assert stream.wait_seconds == 2.0


def test_a_batch_that_is_ready_is_not_waited_for() -> None:
    clock, copies = Clock(), threading.Semaphore(0)
    stream = CopiedBatchStream(slow(clock, 2.0), lambda _: copies.release(), clock)
    next(stream)
    for _ in range(1 + BATCHES_AHEAD):
        assert copies.acquire(timeout=60)
    stream._thread.submit(lambda: None).result()  # the last copy has ended
    next(stream)
    assert stream.wait_seconds == 0.0
    stream.close()


def test_an_error_of_the_pipeline_comes_with_the_batch_that_it_concerns() -> None:
    def batches() -> Iterator[int]:
        yield 0
        yield 1
        raise ValueError("damaged")

    stream = CopiedBatchStream(batches(), lambda number: number)
    assert [next(stream), next(stream)] == [0, 1]
    with pytest.raises(ValueError, match="damaged"):
        next(stream)
    stream.close()


@pytest.mark.parametrize(("gpus", "is_asked", "is_copied"), [(0, True, False), (1, True, True), (1, False, False)])
def test_batches_are_copied_to_the_gpu_if_there_is_one(
    monkeypatch: pytest.MonkeyPatch, gpus: int, is_asked: bool, is_copied: bool
) -> None:
    # Without a GPU, the CPU takes its place: the copies go from the CPU to itself.
    devices = tf.config.list_logical_devices("CPU")[:1] * gpus
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda _kind: devices)
    # The bits of -1 and of 2,141,192,192 are no number as float32.
    numbers = tf.constant([0, -1, 2_141_192_192])
    mel = tf.constant([[[-11.5, 2.0, float("nan")]]], tf.float16)
    batch = Batch(numbers, mel, *(None if name == "speaker" else tf.range(3) for name in Batch._fields[2:]))
    stream = open_stream(iter([batch] * 9), DataConfig(prefetch_to_device=is_asked))
    found = next(stream)
    stream.close()
    assert isinstance(stream, CopiedBatchStream) == is_copied
    assert found.speaker is None
    assert found.tokens.numpy().tolist() == [0, -1, 2_141_192_192]
    assert (found.tokens.dtype, found.mel.dtype) == (tf.int32, tf.float16)
    np.testing.assert_array_equal(found.mel.numpy().view(np.uint16), mel.numpy().view(np.uint16))
    assert found.mel_length.numpy().tolist() == [0, 1, 2]
