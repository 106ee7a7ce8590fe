"""Write plots and audio of the samples of an evaluation for TensorBoard, in a thread, so that no step waits.

A full queue drops new samples and counts them; errors of the thread are reported at the end of the run.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Protocol, Self

import numpy as np
import tensorflow as tf

from xtts_pipeline.config.schema import Config
from xtts_pipeline.training.checkpoints.run_folder import TENSORBOARD_FOLDER
from xtts_pipeline.training.monitoring.metrics import plugin_metadata, write_text

# Room in the queue: with more the thread would never catch up, and memory would fill.
MAX_WAITING_EVALUATIONS = 2
CLOSE_SECONDS = 120.0
# After an error the thread may finish its sample: stopping it inside native code could crash the process.
ERROR_SECONDS = 2.0
# tensorboard.ImagePluginData of version 0 is an empty message.
_IMAGE = plugin_metadata("images", "DATA_CLASS_BLOB_SEQUENCE")
# tensorboard.AudioPluginData of version 0: field 2, the encoding, is 11 (WAV).
_AUDIO = plugin_metadata("audio", "DATA_CLASS_BLOB_SEQUENCE", b"\x10\x0b")
_PNG_SIZE = slice(16, 24)


class EvaluationSample(Protocol):
    """One of the samples of an evaluation. The writer's thread calls its methods."""

    @property
    def name(self) -> str:
        """The group of its tags."""

    @property
    def text(self) -> str:
        """What is spoken; empty if it is not known."""

    def picture(self) -> tuple[str, bytes]:
        """Return the tag and the PNG of its picture."""

    def sounds(self) -> Mapping[str, Callable[[], np.ndarray]]:
        """Return each sound by its tag; `true`, the ground truth, is written once."""


class MediaWriter:
    """Writes plots and audio of samples under tensorboard/media; a context manager that ends with the queue written.

    After an error the queue is dropped. `dropped` counts the samples that found no room in the queue.
    """

    def __init__(self, run: Path, config: Config) -> None:
        self._folder = run / TENSORBOARD_FOLDER / "media"
        self._sample_rate = config.audio.sample_rate
        self._max_waiting = MAX_WAITING_EVALUATIONS * config.training.sample_sentences
        # No thread pool: the interpreter waits for its threads at exit, and a hanging disk would block the process.
        self._thread = Thread(target=self._work, name="media", daemon=True)
        self._tasks: SimpleQueue[tuple[Future[None], Callable[[], None]] | None] = SimpleQueue()
        self._waiting: set[Future[None]] = set()
        self._errors: list[BaseException] = []
        self._writer: tf.summary.SummaryWriter | None = None
        self._has_truth: set[str] = set()
        self._unfinished = 0
        self.dropped = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self._stop_thread(ERROR_SECONDS)

    def add(self, step: int, samples: Sequence[EvaluationSample]) -> None:
        """Queue the samples for which there is room; return at once."""
        self._collect_done()
        for sample in samples:
            if len(self._waiting) < self._max_waiting:
                self._submit(partial(self._write, step, sample))
            else:
                self.dropped += 1

    def rewind(self) -> None:
        """Begin a new event file after a roll-back: TensorBoard reads repeated steps only from later files."""
        self._submit(self._close_writer)

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Wait at most `seconds` for the queue and give up the rest. A second call does nothing."""
        wait(self._waiting, seconds)
        self._collect_done()
        self._unfinished += len(self._waiting)
        if not self._unfinished:
            try:
                self._close_writer()
            except tf.errors.OpError as error:  # a full disk
                self._errors.append(error)
        self._stop_thread(0.0)

    def warnings(self) -> list[str]:
        """Return what failed, after `close`."""
        warnings = []
        if self._errors:
            first = self._errors[0]
            warnings.append(f"{len(self._errors)} samples failed, the first with {type(first).__name__}: {first}")
        if self._unfinished:
            warnings.append(f"{self._unfinished} samples were given up, still not done long after the last step")
        if self.dropped:
            warnings.append(
                f"{self.dropped} samples were dropped, they came faster than one thread draws; "
                "raise training.sample_every_evaluations"
            )
        return [f"pictures and sounds for TensorBoard: {warning}" for warning in warnings]

    def _submit(self, task: Callable[[], None]) -> None:
        if self._thread.ident is None:
            self._thread.start()
        future: Future[None] = Future()
        self._waiting.add(future)
        self._tasks.put((future, task))

    def _work(self) -> None:
        while (waiting := self._tasks.get()) is not None:
            future, task = waiting
            if not future.set_running_or_notify_cancel():
                continue
            try:
                task()
            except BaseException as error:  # noqa: BLE001 (`_collect_done` reports it)
                future.set_exception(error)
            else:
                future.set_result(None)

    def _stop_thread(self, seconds: float) -> None:
        """Drop the queue and wait at most `seconds` for the sample in progress."""
        for future in self._waiting:
            future.cancel()
        self._waiting.clear()
        self._tasks.put(None)
        if self._thread.ident is not None:
            self._thread.join(seconds)

    def _collect_done(self) -> None:
        done = {future for future in self._waiting if future.done()}
        self._waiting -= done
        self._errors += [error for future in done if (error := future.exception()) is not None]

    def _close_writer(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
            self._has_truth.clear()

    def _write(self, step: int, sample: EvaluationSample) -> None:
        if self._writer is None:
            self._writer = tf.summary.create_file_writer(str(self._folder))
        with self._writer.as_default(step=step):
            tag, png = sample.picture()
            write_picture(f"{sample.name}/{tag}", png)
            if sample.text and sample.name not in self._has_truth:
                write_text(f"{sample.name}/text", sample.text)
            for label, make in sample.sounds().items():
                if label != "true" or sample.name not in self._has_truth:
                    write_sound(f"{sample.name}/{label}", make(), self._sample_rate)
            self._has_truth.add(sample.name)
        self._writer.flush()


def write_picture(name: str, png: bytes) -> None:
    """Add a PNG to TensorBoard's images, with the default summary writer at its step."""
    width, height = struct.unpack(">II", png[_PNG_SIZE])
    tf.summary.write(name, tf.constant([str(width).encode(), str(height).encode(), png]), metadata=_IMAGE)


def write_sound(name: str, wave: np.ndarray, sample_rate: int) -> None:
    """Add a float wave [samples] to TensorBoard's audio, scaled down to a peak of 1 if it is louder."""
    peak = float(np.abs(wave).max(initial=1.0))
    wav = tf.audio.encode_wav(tf.constant(wave[:, None] / peak, tf.float32), sample_rate)
    tf.summary.write(name, wav[None], metadata=_AUDIO)
