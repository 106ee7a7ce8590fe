import asyncio
import json
import re
import socket
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.client import AsyncTcpClient
from wyoming.error import Error
from wyoming.event import Event
from wyoming.info import Describe, Info
from wyoming.tts import (
    Synthesize,
    SynthesizeChunk,
    SynthesizeStart,
    SynthesizeStop,
    SynthesizeStopped,
    SynthesizeVoice,
)

from tests.serving.running import GatedVoice, Running, running
from tests.speaking import make_run
from tests.waiting import wait_until
from xtts_pipeline.inference.synthesizer import Synthesizer
from xtts_pipeline.serving import wyoming_protocol
from xtts_pipeline.text.sentences import split_sentences


def talk(server: Running, messages: Sequence, last: str) -> list[Event]:
    """Send messages with the client of the package, and return the events up to the one of this type."""

    async def exchange() -> list[Event]:
        events = []
        async with AsyncTcpClient("127.0.0.1", server.wyoming_port, read_timeout=60.0) as client:
            for message in messages:
                await client.write_event(message.event())
            while not events or events[-1].type != last:
                event = await client.read_event()
                assert event is not None
                events.append(event)
        return events

    return asyncio.run(exchange())


def sound_of(events: Sequence[Event]) -> np.ndarray:
    chunks = [AudioChunk.from_event(event) for event in events if AudioChunk.is_type(event.type)]
    assert {(chunk.rate, chunk.width, chunk.channels) for chunk in chunks} == {(22_050, 2, 1)}
    return np.concatenate([np.frombuffer(chunk.audio, "<i2") for chunk in chunks]) / 32_767


def spoken(voice: Synthesizer, text: str, speaker: str | None = None) -> np.ndarray:
    return np.clip(np.concatenate([*voice.stream(text, speaker)]), -1, 1)


def test_the_voices_are_described(server: Running) -> None:
    (program,) = Info.from_event(talk(server, [Describe()], "info")[0]).tts
    assert program.supports_synthesize_streaming
    (described,) = program.voices
    assert (described.name, described.languages) == ("tiny", ["en"])
    assert [speaker.name for speaker in described.speakers] == ["ann", "bob"]


@pytest.mark.parametrize("speaker", [None, "bob"])
def test_a_whole_text_is_spoken(server: Running, voice: Synthesizer, speaker: str | None) -> None:
    events = talk(server, [Synthesize("one two", SynthesizeVoice("tiny", speaker=speaker))], "audio-stop")
    kinds = [event.type for event in events]
    assert kinds == ["audio-start", *["audio-chunk"] * (len(kinds) - 2), "audio-stop"]
    assert AudioStart.from_event(events[0]).rate == 22_050
    np.testing.assert_allclose(sound_of(events), spoken(voice, "one two", speaker), atol=1e-4)


def test_a_text_in_chunks_is_spoken_sentence_by_sentence(server: Running, voice: Synthesizer) -> None:
    chunks = [SynthesizeChunk(part) for part in ("One t", "wo. Thr", "ee ", "four. F", "ive")]
    # Home Assistant also sends the whole text, for servers that know no chunks.
    messages = [SynthesizeStart(SynthesizeVoice("tiny")), Synthesize("all of it"), *chunks, SynthesizeStop()]
    events = talk(server, messages, "synthesize-stopped")
    assert [event.type for event in events if event.type != "audio-chunk"] == [
        "audio-start",
        "audio-stop",
        "synthesize-stopped",
    ]
    pause = np.zeros(round(0.35 * 22_050))
    sentences = [spoken(voice, text) for text in ("One two.", "Three four.", "Five")]
    expected = np.concatenate([sentences[0], pause, sentences[1], pause, sentences[2]])
    np.testing.assert_allclose(sound_of(events), expected, atol=1e-4)


def test_a_sentence_is_spoken_before_the_text_ends(server: Running) -> None:
    events = talk(server, [SynthesizeStart(), SynthesizeChunk("One two. Three")], "audio-chunk")
    assert AudioStart.is_type(events[0].type)


def test_other_requests_do_not_end_a_text_in_chunks() -> None:
    gated = GatedVoice(parts=1)
    with running({"gated": gated}, max_requests=1) as served, ThreadPoolExecutor(1) as pool:

        async def converse() -> list[str]:
            async with AsyncTcpClient("127.0.0.1", served.wyoming_port) as client:
                await client.write_event(SynthesizeStart().event())
                await client.write_event(SynthesizeChunk("The first. Second").event())
                gated.gate.release()
                kinds = [(await client.read_event()).type for _ in range(3)]
                other = pool.submit(served.speak)
                await asyncio.to_thread(wait_until, lambda: served.metric("xtts_open_requests") == 1)
                await client.write_event(SynthesizeStop().event())
                refused = partial(served.metric, "xtts_requests_total", protocol="wyoming", outcome="429")
                await asyncio.to_thread(wait_until, lambda: served.metric("xtts_open_requests") == 2 or refused())
                gated.gate.release(2)
                while kinds[-1] != "synthesize-stopped":
                    kinds.append((await client.read_event()).type)
                assert other.result().status_code == 200
                return kinds

        chunks = ["audio-chunk"] * 3  # the second is the pause
        assert asyncio.run(converse()) == ["audio-start", *chunks, "audio-stop", "synthesize-stopped"]


@pytest.mark.parametrize(
    ("chunks", "most_characters"),
    [(["a", *[" "] * 3_000], 1), (["a", *["."] * 3_000], 1), (["a"] * 3_000, 300_000), (["a; "] * 1_300, 400_000)],
    ids=["spaces", "points", "letters", "clauses"],
)
def test_many_short_chunks_are_split_a_few_times(
    chunks: list[str], most_characters: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []

    def split(text: str, *rest: object) -> list[str]:
        sizes.append(len(text))
        return split_sentences(text, *rest)

    monkeypatch.setattr(wyoming_protocol, "split_sentences", split)
    voice = GatedVoice(1)
    voice.gate.release()
    with running({"gated": voice}, max_characters=4_000) as server:
        talk(server, [SynthesizeStart(), *map(SynthesizeChunk, chunks), SynthesizeStop()], "synthesize-stopped")
    assert voice.made == ["".join(chunks)]
    assert sum(sizes) <= most_characters


def test_chunks_without_a_character_reach_the_limit(server: Running) -> None:
    messages = [SynthesizeStart(), *[SynthesizeChunk("")] * 201, SynthesizeStop()]
    events = talk(server, messages, "synthesize-stopped")
    assert [event.type for event in events] == ["error", "synthesize-stopped"]
    assert "over 200 characters" in Error.from_event(events[0]).text


@pytest.mark.parametrize("text", ["你好。 one two. three", "one. 你好。 three", "one two. 你好"])
def test_a_sentence_with_nothing_to_speak_is_left_out_of_a_text_in_chunks(server: Running, text: str) -> None:
    messages = [SynthesizeStart(), *map(SynthesizeChunk, text), SynthesizeStop()]
    events = talk(server, messages, "synthesize-stopped")
    kinds = [event.type for event in events]
    assert (kinds[0], kinds[-2:]) == ("audio-start", ["audio-stop", "synthesize-stopped"])
    assert "error" not in kinds


def test_nothing_to_say_in_chunks_ends_without_sound(server: Running) -> None:
    events = talk(server, [SynthesizeStart(), SynthesizeChunk(" "), SynthesizeStop()], "synthesize-stopped")
    assert [SynthesizeStopped.is_type(event.type) for event in events] == [True]


@pytest.mark.parametrize(
    ("message", "found"),
    [
        (Synthesize("one", SynthesizeVoice("../tiny")), "voice: found '../tiny'"),
        (Synthesize("one", SynthesizeVoice("tiny@xx")), "language: found 'xx'"),
        (Synthesize("one", SynthesizeVoice(language="xx")), "language: found 'xx'"),
        (Synthesize(""), "found no text"),
        (Synthesize("☃"), "no letter or digit to speak"),
        (Synthesize("a" * 201), "at most 200"),
    ],
)
def test_an_error_of_a_whole_text_is_one_event_and_ends_the_connection(
    server: Running, message: Synthesize, found: str
) -> None:
    async def exchange() -> tuple[Event | None, Event | None]:
        async with AsyncTcpClient("127.0.0.1", server.wyoming_port, read_timeout=60.0) as client:
            await client.write_event(message.event())
            return await client.read_event(), await client.read_event()

    event, end = asyncio.run(exchange())
    error = Error.from_event(event)
    assert found in error.text
    assert (error.code, end) == ("400", None)


def test_an_error_of_a_text_in_chunks_is_one_event_and_the_connection_goes_on(server: Running) -> None:
    chunks = [SynthesizeStart(), SynthesizeChunk("a" * 150), SynthesizeChunk("a" * 150), SynthesizeStop()]
    events = talk(server, [*chunks, Synthesize("one")], "audio-stop")
    assert "over 200 characters" in Error.from_event(events[0]).text
    assert AudioStop.is_type(events[-1].type)


def test_each_language_of_a_voice_is_a_voice_for_home_assistant(tmp_path: Path) -> None:
    synthesizer = Synthesizer.load(make_run(tmp_path / "two", languages=("de", "en")))
    with running({"two": synthesizer}) as served:
        (program,) = Info.from_event(talk(served, [Describe()], "info")[0]).tts
        assert [(voice.name, voice.languages) for voice in program.voices] == [("two@de", ["de"]), ("two@en", ["en"])]
        for voice in program.voices:
            events = talk(served, [Synthesize("2", SynthesizeVoice(voice.name, speaker="bob"))], "audio-stop")
            wave = np.concatenate([*synthesizer.stream("2", "bob", *voice.languages)])
            np.testing.assert_allclose(sound_of(events), np.clip(wave, -1, 1), atol=1e-4)


@pytest.mark.parametrize("chunks", [["a" * 201, "b"], ["☃"]], ids=["too long", "nothing to speak"])
def test_a_text_in_chunks_that_fails_ends_and_is_not_spoken_again(server: Running, chunks: list[str]) -> None:
    messages = [SynthesizeStart(), *map(SynthesizeChunk, chunks), Synthesize("all of it"), SynthesizeStop()]
    events = talk(server, messages, "synthesize-stopped")
    assert [event.type for event in events] == ["error", "synthesize-stopped"]


def test_a_client_that_does_not_read_ends_with_its_time_and_holds_up_no_stop() -> None:
    voice = GatedVoice(100_000)
    voice.gate.release(100_000)
    asked = b'{"type": "synthesize", "data": {"text": "abc"}}\n'
    # The last client is connected until the server has stopped.
    with ExitStack() as clients, running({"slow": voice}, max_seconds=0.5) as server:
        address = ("127.0.0.1", server.wyoming_port)
        with socket.create_connection(address) as client:
            client.sendall(asked)
            wait_until(lambda: server.metric("xtts_requests_total", protocol="wyoming", outcome="cut") == 1.0)
        wait_until(lambda: server.metric("xtts_open_requests") == 0)
        made = len(voice.made)
        clients.enter_context(socket.create_connection(address)).sendall(asked)
        wait_until(lambda: len(voice.made) > made)


def test_speech_that_has_begun_is_finished_at_the_end() -> None:
    voice = GatedVoice(3)
    kinds: list[str] = []

    async def listen(port: int) -> None:
        async with AsyncTcpClient("127.0.0.1", port, read_timeout=60.0) as client:
            await client.write_event(Synthesize("abc").event())
            while (event := await client.read_event()) is not None:
                kinds.append(event.type)

    with running({"gated": voice}) as server:
        thread = threading.Thread(target=lambda: asyncio.run(listen(server.wyoming_port)))
        thread.start()
        wait_until(lambda: bool(voice.begun))
        # The end of the block stops the server, and then lets the speech through.
    thread.join()
    assert kinds == ["audio-start", *["audio-chunk"] * 3, "audio-stop"]


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"[]",
        b"5",
        b"{}",
        b"\xff" * 100,
        b'{"type": "synthesize"}',
        b'{"type": "synthesize", "data": {"text": 5}}',
        b'{"type": "synthesize", "data": [1]}',
        b'{"type": "synthesize", "data": {"text": "a", "voice": 5}}',
        b'{"type": "synthesize", "data": {"text": "a", "voice": {"name": 5}}}',
        b'{"type": "synthesize-start", "data": {"voice": {"language": []}}}',
        b'{"type": "x", "data_length": -1}',
        b'{"type": "x", "data_length": "many"}',
        json.dumps({"type": "x", "payload_length": 1 << 40}).encode(),
        b"a" * 200_000,
        b"[" * 50_000,
    ],
    ids=lambda line: line[:40].decode("latin-1"),
)
def test_a_malformed_event_ends_its_connection_alone(server: Running, line: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.wyoming_port), timeout=60.0) as client:
        client.sendall(line + b"\n")
        answer = b""
        try:
            while part := client.recv(4_096):
                answer += part
        except ConnectionResetError:
            # The server left with bytes of ours unread.
            pass
    assert not answer or json.loads(answer.partition(b"\n")[0])["type"] == "error"
    assert not answer or re.search(rb"found .*, expected .*; send ", answer)
    assert talk(server, [Synthesize("one")], "audio-stop")


@pytest.mark.parametrize("number", ["1e999", "Infinity", "-Infinity", "NaN"])
def test_a_length_that_is_no_finite_number_is_answered_as_malformed(server: Running, number: str) -> None:
    with socket.create_connection(("127.0.0.1", server.wyoming_port), timeout=60.0) as client:
        client.sendall(b'{"type": "describe", "data_length": %s}\n' % number.encode())
        answer = json.loads(client.makefile("rb").readline())
    assert answer["type"] == "error"
    assert talk(server, [Describe()], "info")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{}", "event: found none, expected a line of JSON with a type"),
        (b'{"type": "synthesize"}', "synthesize: found other data, expected its fields of the Wyoming protocol"),
        (b'{"type": "x", "data_length": 2000000}', "'x': found 2000000 bytes of data and 0 of payload, expected 0 to"),
    ],
)
def test_a_malformed_event_is_explained_without_words_of_python(server: Running, line: bytes, said: str) -> None:
    with socket.create_connection(("127.0.0.1", server.wyoming_port), timeout=60.0) as client:
        client.sendall(line + b"\n")
        with client.makefile("rb") as answer:
            header = json.loads(answer.readline())
            assert json.loads(answer.read(header["data_length"]))["text"].startswith(said)
