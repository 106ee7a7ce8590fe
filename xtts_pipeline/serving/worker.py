"""Speak all orders in one thread, part by part: next is always the order whose listener would first be without sound.

TensorFlow uses all cores for one part, so a second thread would only slow the first. Parts go to asyncio.
"""

import asyncio
import math
import threading
import time
import traceback
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import numpy as np

from xtts_pipeline.errors import XttsError, first_line_of
from xtts_pipeline.serving.metrics import ServerMetrics
from xtts_pipeline.serving.orders import RequestError, SpeechOrder, open_together
from xtts_pipeline.system.terminal import echo_line

if TYPE_CHECKING:
    # Importing it starts TensorFlow.
    from xtts_pipeline.inference.speech import SpeechStream

# Parts that wait for a slow client. Its speech pauses at this number, so that it costs little memory.
MAX_UNREAD_PARTS = 32


class LiveSpeech(AsyncIterator[np.ndarray]):
    """The sound of one order, float32 [samples] a part, while the worker makes it. Raises the error that ended it."""

    def __init__(self, order: SpeechOrder, worker: "SpeechWorker", after: "LiveSpeech | None" = None) -> None:
        self.order, self._worker = order, worker
        self.sample_rate = order.voice.synthesizer.checkpoint.config.audio.sample_rate
        # When the listener needs the next part: at once at first, later when the sound so far has been played.
        self.arrived = time.monotonic()
        self.due: float = self.arrived if after is None else max(self.arrived, after.due)
        self._is_first = after is None
        # Written under the worker's lock.
        self.unread_parts = 0
        self._is_ended = False
        self._stream: SpeechStream | None = None
        self._loop = asyncio.get_running_loop()
        self._parts: asyncio.Queue[np.ndarray | XttsError | None] = asyncio.Queue()

    @property
    def is_waiting(self) -> bool:
        """Whether nothing of it has been made."""
        return self._stream is None and not self._is_ended

    def begin(self, stream: "SpeechStream", metrics: ServerMetrics) -> None:
        """Take the stream of its order."""
        self._stream = stream
        metrics.changed_characters.labels(self.order.voice.name).inc(stream.text_changes.total())

    @property
    def can_advance(self) -> bool:
        """Whether a part is to be made: the speech goes on, and its client reads."""
        return not self._is_ended and self.unread_parts < MAX_UNREAD_PARTS

    def advance(self, metrics: ServerMetrics, *, debug: bool) -> None:
        """Make the next part; called by the worker's thread."""
        part: np.ndarray | XttsError | None
        try:
            if (stream := self._stream) is None:
                stream = self.order.open()
                self.begin(stream, metrics)
            part = next(stream, None)
        except XttsError as error:
            part = error
        except Exception as error:  # noqa: BLE001 (the error of one order must not end the thread of all)
            _log_fault(error, "", debug=debug)
            part = RequestError("the speech failed; the server's log has the reason", status=500)
        now = time.monotonic()
        if isinstance(part, np.ndarray):
            seconds = len(part) / self.sample_rate
            if self._is_first:
                metrics.first_sound_seconds.observe(now - self.arrived)
            self._is_first = False
            metrics.sound_seconds.inc(seconds)
            self.due = max(self.due, now) + seconds
        self._is_ended = not isinstance(part, np.ndarray)
        # The loop has ended if the process is being ended by force.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._parts.put_nowait, part)

    async def __anext__(self) -> np.ndarray:
        part = await self._parts.get()
        self._worker.note_read(self)
        if part is None:
            raise StopAsyncIteration
        if isinstance(part, XttsError):
            raise part
        return part


class SpeechWorker:
    """The thread that speaks, and the orders of the clients that listen, at most `max_requests` of them."""

    def __init__(self, max_requests: int, metrics: ServerMetrics, *, batch: int = 1, debug: bool = False) -> None:
        self._max_requests, self._metrics, self._batch, self._is_debug = max_requests, metrics, batch, debug
        self._speeches: list[LiveSpeech] = []
        self._is_stopped = False
        self._changed = threading.Condition()
        self._busy_seconds, self._ended = 1.0, 1
        self._thread = threading.Thread(target=self._run, name="speech", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread after the part that it is making."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify()
        self._thread.join()

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs; if a fault ended it, no order is spoken any more."""
        return self._thread.is_alive()

    @contextmanager
    def speak(self, order: SpeechOrder, after: LiveSpeech | None = None) -> Iterator[LiveSpeech]:
        """Yield the speech of an order; it is made until the block ends, and no longer.

        after: the sentence before this one, of the same text to the same listener.
        Raises RequestError of status 429 if `max_requests` orders are being spoken, but never within a text.
        """
        speech = LiveSpeech(order, self, after)
        with self._changed:
            if after is None and len(self._speeches) >= self._max_requests:
                wait = math.ceil(len(self._speeches) * self._busy_seconds / self._ended)
                raise RequestError(
                    f"{len(self._speeches)} requests are being spoken, as many as are allowed; try again in {wait} s",
                    status=429,
                    retry_seconds=wait,
                )
            self._speeches.append(speech)
            self._metrics.waiting.set(len(self._speeches))
            self._changed.notify()
        try:
            yield speech
        finally:
            with self._changed:
                self._speeches.remove(speech)
                self._ended += 1
                self._metrics.waiting.set(len(self._speeches))

    def note_read(self, speech: LiveSpeech) -> None:
        """Count a part that the client has read: its speech may go on."""
        with self._changed:
            speech.unread_parts -= 1
            self._changed.notify()

    def _run(self) -> None:
        while (speech := self._next()) is not None:
            start = time.monotonic()
            if self._batch > 1 and speech.is_waiting:
                self._open_batch(speech)
            with self._changed:
                speech.unread_parts += 1
            speech.advance(self._metrics, debug=self._is_debug)
            self._busy_seconds += time.monotonic() - start

    def _open_batch(self, first: LiveSpeech) -> None:
        """Open a speech together with the next ones that fit it, if they fill a batch."""
        with self._changed:
            waiting = [speech for speech in self._speeches if speech.is_waiting and speech.order.fits(first.order)]
        if len(waiting) >= self._batch:
            waiting = waiting[: self._batch]
            # Each order is then opened alone, and the one at fault raises its error again.
            try:
                streams = open_together([speech.order for speech in waiting])
            except XttsError:
                return
            except Exception as error:  # noqa: BLE001 (a fault of batches must not end the thread of all)
                _log_fault(error, f"{len(waiting)} requests together, now one by one: ", debug=self._is_debug)
                return
            for speech, stream in zip(waiting, streams, strict=True):
                speech.begin(stream, self._metrics)

    def _next(self) -> LiveSpeech | None:
        """Return the speech that is due first, as soon as there is one; None at the end."""
        with self._changed:
            while not self._is_stopped:
                ready = [speech for speech in self._speeches if speech.can_advance]
                if ready:
                    return min(ready, key=lambda speech: speech.due)
                self._changed.wait()
        return None


def _log_fault(error: Exception, during: str, *, debug: bool) -> None:
    """Print a fault of the code as one line, with its traceback before it if `debug`."""
    if debug:
        traceback.print_exception(error)
    echo_line(f"error: {during}{type(error).__name__}: {first_line_of(error)}")
