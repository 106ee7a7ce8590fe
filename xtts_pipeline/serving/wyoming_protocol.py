"""The Wyoming protocol, by which Home Assistant speaks: whole texts, and texts that arrive in chunks.

Reads events itself: sizes are checked before memory is taken, which the package's own reader does not do.
"""

import asyncio
import json
from contextlib import suppress
from typing import Any, TypeVar

from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.error import Error
from wyoming.event import Event, async_write_event
from wyoming.info import Attribution, Describe, Info, TtsProgram, TtsVoice, TtsVoiceSpeaker
from wyoming.tts import (
    Synthesize,
    SynthesizeChunk,
    SynthesizeStart,
    SynthesizeStop,
    SynthesizeStopped,
    SynthesizeVoice,
)

from xtts_pipeline import __version__
from xtts_pipeline.audio.save import BYTES_PER_SAMPLE, clip_to_int16
from xtts_pipeline.errors import Reason, TextError, XttsError
from xtts_pipeline.serving import connections
from xtts_pipeline.serving.http_api import Service
from xtts_pipeline.serving.orders import RequestError
from xtts_pipeline.serving.worker import LiveSpeech
from xtts_pipeline.text.sentences import pause_seconds, split_sentences

M = TypeVar("M", Synthesize, SynthesizeStart, SynthesizeChunk)
MAX_EVENT_BYTES = 1 << 20
# A text that waits for its end is split again when it has grown by this share: a split at every chunk would take the
# square of its length.
SPLIT_GROWTH = 0.01
ATTRIBUTION = Attribution("xtts_pipeline", "")
# Whatever a malformed event raises in json and in the package that reads its data.
_FAULTS = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)


class _MalformedEventError(Exception):
    """An event that the protocol does not have. It ends the connection: where the next event begins is not known."""


class WyomingServer:
    """Answers connections, each in a task of its own."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._connections: dict[asyncio.Task[None], tuple[asyncio.StreamReader, asyncio.StreamWriter]] = {}

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection until it ends; the callback of `asyncio.start_server`."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 (for the type checker: a callback runs in a task)
        self._connections[task] = reader, writer
        try:
            await _Connection(self._service, writer).run(reader)
        except (OSError, asyncio.IncompleteReadError):
            self._service.metrics.requests.labels("wyoming", "left").inc()
        except _MalformedEventError as error:
            self._service.metrics.requests.labels("wyoming", "malformed").inc()
            with suppress(OSError):
                await async_write_event(Error(str(error)[:200], "malformed").event(), writer)
        finally:
            del self._connections[task]
            writer.close()

    async def stop(self) -> None:
        """End each connection after what it is speaking."""
        for reader, writer in self._connections.values():
            writer.transport.pause_reading()  # type: ignore[attr-defined]  # of every socket's transport
            reader.feed_eof()
        if self._connections:
            await asyncio.wait(self._connections, timeout=self._service.max_seconds + 1.0)
        # A client that does not read would hold the server for ever.
        for _, writer in self._connections.values():
            writer.transport.abort()


class _Connection:
    """The events of one client, and the text that it has sent in chunks and that is not spoken yet."""

    def __init__(self, service: Service, writer: asyncio.StreamWriter) -> None:
        self._service, self._writer = service, writer
        self._voice: SynthesizeVoice | None = None
        # A text that failed is None until it ends, and is not spoken again.
        self._text: str | None = None
        # The sentence of the text in chunks that was spoken last.
        self._spoken: LiveSpeech | None = None
        # Why a sentence of the text was left out.
        self._left_out: TextError | None = None
        self._split_length = 0
        self._is_in_chunks = False
        self._characters = 0
        self._is_speaking = False

    async def run(self, reader: asyncio.StreamReader) -> None:
        event = await _read_event(reader, connections.BEGIN_SECONDS)
        while event is not None:
            # Events that have arrived are read without a pause, and other clients would wait for all of them.
            await asyncio.sleep(0)
            try:
                await self._answer(event)
            except TimeoutError:
                # The client may not read either, so that nothing more can be said.
                self._count("cut")
                self._writer.transport.abort()
                return
            except XttsError as error:
                self._text = None
                await self._report(error)
                await self._end_sound()
                if not self._is_in_chunks:
                    # Home Assistant passes over errors and waits for the end of the sound, or of the connection.
                    return
            event = await _read_event(reader, self._service.max_seconds)

    async def _answer(self, event: Event) -> None:
        if Describe.is_type(event.type):
            await self._write(self._describe())
        elif SynthesizeStart.is_type(event.type):
            self._voice, self._text = _read_message(SynthesizeStart, event).voice, ""
            self._left_out, self._spoken, self._characters, self._split_length = None, None, 0, 0
            self._is_in_chunks = True
        elif SynthesizeChunk.is_type(event.type) and self._text is not None:
            await self._take(_read_message(SynthesizeChunk, event).text)
        elif SynthesizeStop.is_type(event.type):
            await self._finish()
        # With a text in chunks, Home Assistant sends the whole text as well, for servers that know no chunks.
        elif Synthesize.is_type(event.type) and not self._is_in_chunks:
            wanted = _read_message(Synthesize, event)
            self._voice, self._spoken = wanted.voice, None
            await self._speak(wanted.text)
            await self._end_sound()
            self._count("200")

    async def _take(self, chunk: str) -> None:
        """Add text, and speak the sentences that are complete: those behind which another one has begun."""
        # Without a character an empty chunk would be free, and a client could send them for ever.
        self._characters += max(1, len(chunk))
        if self._characters > self._service.voices.max_characters:
            raise RequestError(f"text: over {self._service.voices.max_characters} characters; split it", "input")
        text = self._text = (self._text or "") + chunk
        # Only a letter or digit begins another sentence.
        if not any(map(str.isalnum, chunk)) or len(text) < (1.0 + SPLIT_GROWTH) * self._split_length:
            return
        language = self._service.voices.find(*self._names()).language
        *complete, rest = split_sentences(text, language, lambda _: True) or [""]
        self._text = rest + text[len(text.rstrip()) :]
        self._split_length = len(self._text)
        for sentence in complete:
            await self._speak_sentence(sentence, pause_seconds(sentence))

    async def _finish(self) -> None:
        rest, self._text, self._is_in_chunks = self._text, None, False
        try:
            if rest is not None:
                if rest.strip():
                    await self._speak_sentence(rest)
                if self._left_out is not None and not self._is_speaking:
                    raise self._left_out
                self._count("200")
        except XttsError as error:
            await self._report(error)
        await self._end_sound()
        await self._write(SynthesizeStopped())

    async def _report(self, error: XttsError) -> None:
        status = str(error.status if isinstance(error, RequestError) else 400)
        self._count(status)
        await self._write(Error(" ".join(str(error).split()), status))

    async def _speak_sentence(self, sentence: str, pause: float = 0.0) -> None:
        """Speak a sentence; one without anything to speak is left out, as from a whole text."""
        try:
            await self._speak(sentence, pause)
        except TextError as error:
            if error.reason != Reason.EMPTY_TEXT:
                raise
            self._left_out = error

    async def _speak(self, text: str, pause: float = 0.0) -> None:
        order = self._service.voices.order(text, *self._names())
        async with asyncio.timeout(self._service.max_seconds):
            with self._service.worker.speak(order, self._spoken) as speech:
                self._spoken, rate = speech, speech.sample_rate
                async for wave in speech:
                    if not self._is_speaking:
                        self._is_speaking = True
                        await self._write(AudioStart(rate, BYTES_PER_SAMPLE, 1))
                    await self._write(AudioChunk(rate, BYTES_PER_SAMPLE, 1, clip_to_int16(wave).tobytes()))
            if pause and self._is_speaking:
                await self._write(AudioChunk(rate, BYTES_PER_SAMPLE, 1, bytes(BYTES_PER_SAMPLE * round(pause * rate))))

    def _names(self) -> tuple[str | None, str | None]:
        """Return the names of voice and language."""
        voice = self._voice or SynthesizeVoice()
        name, language = voice.name, voice.language
        if name is not None and name not in self._service.voices.synthesizers and "@" in name:
            name, _, language = name.rpartition("@")
        return f"{name}/{voice.speaker}" if name and voice.speaker else name, language

    async def _end_sound(self) -> None:
        if self._is_speaking:
            self._is_speaking = False
            await self._write(AudioStop())

    def _describe(self) -> Info:
        voices = []
        for name, synthesizer in self._service.voices.synthesizers.items():
            cache = synthesizer.checkpoint.cache
            speakers = [TtsVoiceSpeaker(speaker) for speaker in cache.speakers] if len(cache.speakers) > 1 else None
            version = str(synthesizer.checkpoint.step)
            # Home Assistant names a voice without a language, so each language has a voice of its own.
            for language in cache.languages:
                shown = name if len(cache.languages) == 1 else f"{name}@{language}"
                voices.append(TtsVoice(shown, ATTRIBUTION, True, shown, version, [language], speakers))
        program = TtsProgram("xtts", ATTRIBUTION, True, "voices of xtts_pipeline", __version__, voices, True)
        return Info(tts=[program])

    async def _write(self, message: Any) -> None:
        await async_write_event(message.event(), self._writer)

    def _count(self, outcome: str) -> None:
        self._service.metrics.requests.labels("wyoming", outcome).inc()


async def _read_event(reader: asyncio.StreamReader, begin_seconds: float) -> Event | None:
    """Return the next event; None at the end. Raises _MalformedEventError.

    A client may wait so long before an event, as for the next words of a text, but less inside one; TimeoutError.
    """
    async with asyncio.timeout(begin_seconds):
        begun = await reader.read(1)
    if not begun:
        return None
    try:
        async with asyncio.timeout(connections.BEGIN_SECONDS):
            header = json.loads(begun + await reader.readline())
            kind, data = str(header["type"]), dict(header.get("data") or {})
            sizes = [int(header.get(f"{name}_length") or 0) for name in ("data", "payload")]
            if min(sizes) < 0 or sum(sizes) > MAX_EVENT_BYTES:
                found = f"found {sizes[0]} bytes of data and {sizes[1]} of payload"
                raise _MalformedEventError(f"{kind[:40]!r}: {found}, expected 0 to {MAX_EVENT_BYTES}; send less")
            if sizes[0]:
                data |= json.loads(await reader.readexactly(sizes[0]))
            payload = await reader.readexactly(sizes[1]) if sizes[1] else None
    except _FAULTS:
        expected = "expected a line of JSON with a type, data and their lengths; send events of the Wyoming protocol"
        raise _MalformedEventError(f"event: found none, {expected}") from None
    return Event(kind, data, payload)


def _read_message(kind: type[M], event: Event) -> M:
    """Return the event's data. Raises _MalformedEventError unless its text and its names are strings."""
    try:
        message = kind.from_event(event)
        voice = getattr(message, "voice", None) or SynthesizeVoice()
        names = (voice.name, voice.language, voice.speaker)
        is_read = all(isinstance(name, str | None) for name in names) and isinstance(getattr(message, "text", ""), str)
    except _FAULTS:
        is_read = False
    if not is_read:
        expected = "expected its fields of the Wyoming protocol, such as a text; send them"
        raise _MalformedEventError(f"{event.type}: found other data, {expected}")
    return message
