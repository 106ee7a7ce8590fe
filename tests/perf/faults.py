"""Run an `xtts` command with a planted fault: `python -m tests.perf.faults FAULT COMMAND...`.

The fault replaces parts of the package before the command starts.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

from xtts_pipeline.system.runtime import NativeLog, prepare_environment

FIRST_BAD_BATCH = 2


def plant_in_batches(change: Callable[[int, Any], Any]) -> None:
    """Pass every training batch from the third on through `change(number, batch)`."""
    from xtts_pipeline.data.source import Source

    whole = Source.training_batches

    def faulty(self: Source, *arguments: Any, **options: Any) -> Iterator[Any]:
        for number, batch in zip(count(), whole(self, *arguments, **options), strict=False):
            yield batch if number < FIRST_BAD_BATCH else change(number, batch)

    Source.training_batches = faulty  # type: ignore[method-assign]


def varying_shape() -> None:
    import tensorflow as tf

    def cut(number: int, batch: Any) -> Any:
        # As padding each batch to its own longest clip would.
        mel = batch.mel[:, : batch.mel.shape[1] - 1 - number % 3]
        return batch._replace(mel=mel, mel_length=tf.minimum(batch.mel_length, mel.shape[1]))

    plant_in_batches(cut)


def int64_tokens() -> None:
    import tensorflow as tf

    plant_in_batches(lambda _, batch: batch._replace(tokens=tf.cast(batch.tokens, tf.int64)))


def python_scalar() -> None:
    plant_in_batches(lambda number, batch: batch._replace(mel_length=number))


def incomplete_batch() -> None:
    plant_in_batches(lambda _, batch: type(batch)(*(None if part is None else part[:-1] for part in batch)))


def numpy_function() -> None:
    import tensorflow as tf

    from xtts_pipeline.data import cached as dataset

    parse = dataset.parse_batch

    def through_python(*arguments: Any) -> dict[str, Any]:
        fields = parse(*arguments)
        mel = tf.numpy_function(lambda mel: mel, [fields["mel"]], tf.float16)
        return {**fields, "mel": tf.ensure_shape(mel, fields["mel"].shape)}

    dataset.parse_batch = through_python


def pretend_steps(seconds: float) -> None:
    """Have steps of four clips take a fixed time, whatever else the machine does."""
    # The import of TensorFlow writes to stderr.
    with NativeLog():
        from xtts_pipeline.perf.trial import StepTime, Trial

    Trial.take_step = lambda _: StepTime(0.0, 0.0, seconds, is_compiling=False)  # type: ignore[method-assign]


def slow_device() -> None:
    pretend_steps(0.1)


def slow_disk() -> None:
    """Let each record come as late as a disk of 20 MB/s would bring it, to a device that would take far more."""
    import tensorflow as tf

    from xtts_pipeline.data import cached as dataset
    from xtts_pipeline.perf.pipeline import Pipeline

    read = dataset.shard_records
    pretend_steps(1e-3)
    # Python plays the slow disk, which must not count as Python in the path. TensorFlow's sleeping dataset once hung.
    Pipeline.python_operations = lambda _: []  # type: ignore[method-assign]
    bytes_per_second = 20e6
    seconds = int(os.environ["FAULT_RECORD_BYTES"]) / bytes_per_second

    def wait() -> bool:
        time.sleep(seconds)
        return True

    def late(record: tf.Tensor) -> tf.Tensor:
        with tf.control_dependencies([tf.numpy_function(wait, [], tf.bool)]):
            return tf.identity(record)

    def slowly(*given: Any) -> tf.data.Dataset:
        return read(*given).map(late)

    dataset.shard_records = slowly


def little_memory() -> None:
    from xtts_pipeline.system import machine

    machine.memory_limit_bytes = lambda: 20_000


def one_core() -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def none() -> None:
    """Plant nothing: the healthy run, started the same way."""


FAULTS = {
    fault.__name__: fault
    for fault in (
        none,
        varying_shape,
        int64_tokens,
        python_scalar,
        incomplete_batch,
        numpy_function,
        slow_disk,
        slow_device,
        little_memory,
        one_core,
    )
}


def main() -> None:
    fault, *arguments = sys.argv[1:]
    prepare_environment()
    FAULTS[fault]()
    sys.argv = ["xtts", *arguments]
    from xtts_pipeline.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
