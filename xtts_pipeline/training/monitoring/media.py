"""Pictures and sounds of the spoken sentences, for TensorBoard: made in a thread of their own, so that no step waits for them.

A queue that is full drops what is new and counts it; what fails there is told at the end of the run.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Self

import tensorflow as tf

from xtts_pipeline.config.schema import Config
from xtts_pipeline.training.monitoring.metrics import write_picture, write_sound
from xtts_pipeline.training.validation import SpokenSentence
from xtts_pipeline.vocoder.griffin_lim import GriffinLim

# How many evaluations' sentences may wait; more would be a thread that never catches up, and memory that fills.
WAITING_EVALUATIONS = 2
CLOSE_SECONDS = 120.0
# After an error: for the sentence under way, since a thread that is stopped amid native code can take the process down with it.
ERROR_SECONDS = 2.0


class MediaWriter:
    """Draws and voices sentences under tensorboard/media; a context manager that ends with what waits written, or dropped on an error.

    dropped counts the sentences for which there was no room.
    """

    def __init__(self, run: Path, config: Config) -> None:
        self._folder = run / "tensorboard" / "media"
        self._audio, settings = config.audio, config.synthesis
        self._vocoder = GriffinLim(config.audio, settings.griffin_lim_iterations, settings.griffin_lim_momentum)
        self._most_waiting = WAITING_EVALUATIONS * config.training.sample_sentences
        # Not a pool of threads: the interpreter waits for those at its end, and a disk that hangs would keep the process for ever.
        self._thread = Thread(target=self._work, name="media", daemon=True)
        self._tasks: SimpleQueue[tuple[Future[None], Callable[[], None]] | None] = SimpleQueue()
        self._waiting: set[Future[None]] = set()
        self._errors: list[BaseException] = []
        self._writer: tf.summary.SummaryWriter | None = None
        self._voiced: set[int] = set()
        self._unfinished = 0
        self.dropped = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self._end(ERROR_SECONDS)

    def add(self, step: int, sentences: Sequence[SpokenSentence]) -> None:
        """Have the sentences written, if there is room; return at once."""
        self._collect()
        for sentence in sentences:
            if len(self._waiting) < self._most_waiting:
                self._submit(partial(self._write, step, sentence))
            else:
                self.dropped += 1

    def rewind(self) -> None:
        """Begin a new file: TensorBoard has been told to forget steps that come again, and reads on in later files alone."""
        self._submit(self._close_writer)

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Wait for what is under way, at most so long; the rest is given up. A second call does nothing."""
        wait(self._waiting, seconds)
        self._collect()
        self._unfinished += len(self._waiting)
        if not self._unfinished:
            self._close_writer()
        self._end(0.0)

    def warnings(self) -> list[str]:
        """Return what went wrong, once closed; empty if nothing did."""
        warnings, things = [], "pictures and sounds for TensorBoard"
        if self._errors:
            first = self._errors[0]
            warnings.append(
                f"{things}: {len(self._errors)} sentences failed, the first with {type(first).__name__}: {first}"
            )
        if self._unfinished:
            warnings.append(
                f"{things}: {self._unfinished} sentences were given up, still not done long after the last step"
            )
        if self.dropped:
            warnings.append(
                f"{things}: {self.dropped} sentences were dropped, they came faster than one thread draws; "
                "raise training.sample_every_evaluations"
            )
        return warnings

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
            except BaseException as error:  # noqa: BLE001 (whoever collects the future tells of it)
                future.set_exception(error)
            else:
                future.set_result(None)

    def _end(self, seconds: float) -> None:
        """Drop what waits and have the thread end after the sentence under way, for which this waits so long."""
        for future in self._waiting:
            future.cancel()
        self._waiting.clear()
        self._tasks.put(None)
        if self._thread.ident is not None:
            self._thread.join(seconds)

    def _collect(self) -> None:
        done = {future for future in self._waiting if future.done()}
        self._waiting -= done
        self._errors += [error for future in done if (error := future.exception()) is not None]

    def _close_writer(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
            self._voiced.clear()

    def _write(self, step: int, sentence: SpokenSentence) -> None:
        # In this thread: matplotlib takes a second to load.
        from xtts_pipeline.plots import encode_comparison

        if self._writer is None:
            self._writer = tf.summary.create_file_writer(str(self._folder))
        name, rate = f"sentence_{sentence.number}", self._audio.sample_rate
        with self._writer.as_default(step=step):
            png = encode_comparison(
                sentence.true_mel,
                sentence.mel,
                sentence.attention,
                sentence.symbols,
                self._audio.hop_samples / rate,
                sentence.has_stopped,
            )
            write_picture(f"{name}/mel_and_attention", png)
            if sentence.number not in self._voiced:
                # The truth through the same vocoder, once: no speech of this run can sound better.
                write_sound(f"{name}/true", self._vocoder(sentence.true_mel), rate)
                self._voiced.add(sentence.number)
            write_sound(f"{name}/spoken", self._vocoder(sentence.mel), rate)
        self._writer.flush()
