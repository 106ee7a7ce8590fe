"""A server in a thread of the tests, and a voice whose parts a test lets through one by one."""

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import httpx2
import numpy as np

from xtts_pipeline.cache.format.identity import CacheIdentity
from xtts_pipeline.cache.format.schema import RecordSpec
from xtts_pipeline.errors import TextError
from xtts_pipeline.serving.listening import listen
from xtts_pipeline.serving.server import ServerSettings, run
from xtts_pipeline.text.fallback import TextChanges

RATE = 22_050
PART_SAMPLES = 2_205
SETTINGS = {
    "max_requests": 8,
    "batch": 1,
    "max_characters": 200,
    "max_seconds": 60.0,
    "token": None,
    "debug": False,
}


@dataclass(frozen=True)
class Running:
    """A running server: its ports, and a client of its HTTP side."""

    http_port: int
    wyoming_port: int
    client: httpx2.Client

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http_port}"

    def speak(self, text: str = "abc", **fields: Any) -> httpx2.Response:
        return self.client.post("/v1/audio/speech", json={"input": text, "response_format": "pcm", **fields})

    def metric(self, name: str, **labels: str) -> float:
        """Return a figure of /metrics; 0 if it is not there yet."""
        wanted = name + (
            "{" + ",".join(f'{key}="{value}"' for key, value in sorted(labels.items())) + "}" if labels else ""
        )
        for line in self.client.get("/metrics").text.splitlines():
            key, _, value = line.rpartition(" ")
            if key == wanted:
                return float(value)
        return 0.0


@contextmanager
def running(voices: Mapping[str, Any], **settings: Any) -> Iterator[Running]:
    """Run a server with these voices until the block ends; its end is part of the test."""
    sockets = [listen("127.0.0.1", 0) for _ in range(2)]
    chosen = ServerSettings(**{**SETTINGS, **settings})
    loop, stop = asyncio.new_event_loop(), asyncio.Event()
    failures: list[BaseException] = []

    def serve() -> None:
        try:
            loop.run_until_complete(run(voices, sockets, chosen, stop))
        except BaseException as error:  # noqa: BLE001 (raised again below)
            failures.append(error)
        finally:
            loop.close()

    thread = threading.Thread(target=serve, name="server")
    thread.start()
    http_port, wyoming_port = (found.getsockname()[1] for found in sockets)
    try:
        with httpx2.Client(base_url=f"http://127.0.0.1:{http_port}", timeout=60.0) as client:
            yield Running(http_port, wyoming_port, client)
    finally:
        loop.call_soon_threadsafe(stop.set)
        for voice in voices.values():
            if isinstance(voice, GatedVoice):
                voice.gate.release(10_000)
        thread.join(timeout=60.0)
        for found in sockets:
            found.close()
    assert not thread.is_alive()
    assert failures == []


class GatedStream(Iterator[np.ndarray]):
    """Stands for a SpeechStream."""

    def __init__(self, parts: Iterator[np.ndarray], text_changes: TextChanges) -> None:
        self._parts, self.text_changes = parts, text_changes

    def __next__(self) -> np.ndarray:
        return next(self._parts)


class GatedVoice:
    """Stands for a Synthesizer: silence in parts of 0.1 s, each only after the test has let it through."""

    def __init__(self, parts: int = 1_000) -> None:
        audio, model = SimpleNamespace(sample_rate=RATE), SimpleNamespace(voice_latents=0)
        cache = CacheIdentity("fingerprint", RecordSpec(200, 880, 80, -11.5), ("a",), ("ann",), ("en",))
        self.checkpoint = SimpleNamespace(config=SimpleNamespace(audio=audio, model=model), cache=cache, step=1)
        self.gate = threading.Semaphore(0)
        self.parts = parts
        self.begun: list[str] = []
        self.made: list[str] = []
        self.opened: list[list[str]] = []

    def stream(self, text: str, *voice: object, **options: object) -> "GatedStream":
        return self.stream_batch([text], *voice, **options)[0]

    def stream_batch(self, texts: Sequence[str], *_voice: object, **_options: object) -> "list[GatedStream]":
        for text in texts:
            if "bad" in text:
                raise TextError("unknown_symbol", f"text {text!r}: a bad text; say it otherwise")
            if "crash" in text:
                raise RuntimeError("a fault of the code\nin two lines")
        self.opened.append(list(texts))
        return [GatedStream(self._parts(text), Counter({("@", ""): text.count("@")})) for text in texts]

    def _parts(self, text: str) -> Iterator[np.ndarray]:
        for _ in range(self.parts):
            self.begun.append(text)
            assert self.gate.acquire(timeout=60.0)
            self.made.append(text)
            yield np.zeros(PART_SAMPLES, np.float32)
