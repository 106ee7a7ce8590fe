"""Pictures and sounds of the spoken sentences, for TensorBoard: made in a thread of their own, so that no step waits for them.

A queue that is full drops what is new and counts it; what fails there is told at the end of the run.
"""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Self

import tensorflow as tf

from xtts_pipeline.audio.vocoder import GriffinLim
from xtts_pipeline.config import Config
from xtts_pipeline.training.metrics import write_picture, write_sound
from xtts_pipeline.training.validation import SpokenSentence

# How many evaluations' sentences may wait; more would be a thread that never catches up, and memory that fills.
WAITING_EVALUATIONS = 2
CLOSE_SECONDS = 120.0


class MediaWriter:
    """Draws and voices sentences under tensorboard/media; a context manager that ends with what waits written, or dropped on an error.

    dropped counts the sentences for which there was no room.
    """

    def __init__(self, run: Path, config: Config) -> None:
        self._folder = run / "tensorboard" / "media"
        self._audio, settings = config.audio, config.synthesis
        self._vocoder = GriffinLim(config.audio, settings.griffin_lim_iterations, settings.griffin_lim_momentum)
        self._most_waiting = WAITING_EVALUATIONS * config.training.spoken_sentences
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="media")
        self._waiting: set[Future[None]] = set()
        self._errors: list[BaseException] = []
        self._writer: tf.summary.SummaryWriter | None = None
        self._voiced: set[int] = set()
        self._unfinished = 0
        self.dropped = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
        else:
            self.close()

    def add(self, step: int, sentences: Sequence[SpokenSentence]) -> None:
        """Have the sentences written, if there is room; return at once."""
        self._collect()
        for sentence in sentences:
            if len(self._waiting) < self._most_waiting:
                self._waiting.add(self._pool.submit(self._write, step, sentence))
            else:
                self.dropped += 1

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Wait for what is under way, at most so long; the rest is given up. A second call does nothing."""
        wait(self._waiting, seconds)
        self._collect()
        self._unfinished += len(self._waiting)
        self._waiting.clear()
        self._pool.shutdown(wait=False, cancel_futures=True)
        if self._writer is not None and not self._unfinished:
            self._writer.close()

    def warnings(self) -> list[str]:
        """Return what went wrong, once closed; empty if nothing did."""
        warnings, things = [], "pictures and sounds for TensorBoard"
        if self._errors:
            first = self._errors[0]
            warnings.append(f"{things}: {len(self._errors)} sentences failed, the first with {type(first).__name__}: {first}")
        if self._unfinished:
            warnings.append(f"{things}: {self._unfinished} sentences were given up, still not done long after the last step")
        if self.dropped:
            warnings.append(
                f"{things}: {self.dropped} sentences were dropped, they came faster than one thread draws; "
                "raise training.speak_every_evaluations"
            )
        return warnings

    def _collect(self) -> None:
        done = {future for future in self._waiting if future.done()}
        self._waiting -= done
        self._errors += [error for future in done if (error := future.exception()) is not None]

    def _write(self, step: int, sentence: SpokenSentence) -> None:
        # In this thread: matplotlib takes a second to load.
        from xtts_pipeline.pictures import encode_comparison

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
