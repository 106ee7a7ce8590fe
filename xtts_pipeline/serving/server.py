"""Load voices, answer, and end well: the life of a server whose sockets are open."""

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from xtts_pipeline.errors import first_line_of
from xtts_pipeline.inference.synthesizer import Synthesizer
from xtts_pipeline.serving.connections import ACCEPTS_AT_ONCE, LoopFaults, TimedHttp
from xtts_pipeline.serving.http_api import Service
from xtts_pipeline.serving.listening import BACKLOG
from xtts_pipeline.serving.metrics import ServerMetrics
from xtts_pipeline.serving.orders import VoiceTable
from xtts_pipeline.serving.worker import SpeechWorker
from xtts_pipeline.serving.wyoming_protocol import WyomingServer
from xtts_pipeline.system.terminal import echo_line


@dataclass(frozen=True)
class ServerSettings:
    """Whom a server answers, and its limits."""

    token: str | None
    max_requests: int
    batch: int
    max_characters: int
    max_seconds: float
    debug: bool


def serve(
    voices: Mapping[str, Path],
    vocoder: Path | str | None,
    overrides: Sequence[str],
    sockets: list[socket.socket],
    settings: ServerSettings,
) -> None:
    """Serve voices until SIGTERM or Ctrl-C; speech that has begun is finished.

    `vocoder` speaks for all of them; without it, each voice speaks with the one that it remembers. `overrides` are
    those of `Synthesizer.load`, whose errors are raised; `sockets` are those of `run`.
    """
    synthesizers = {name: Synthesizer.load(path, overrides, vocoder=vocoder) for name, path in voices.items()}
    for synthesizer in synthesizers.values():
        synthesizer.warm_up(streams=settings.batch)
    asyncio.run(run(synthesizers, sockets, settings))


async def run(
    synthesizers: Mapping[str, Synthesizer],
    sockets: list[socket.socket],
    settings: ServerSettings,
    stop: asyncio.Event | None = None,
) -> None:
    """Answer requests on the sockets, HTTP and then Wyoming, until `stop` is set or a signal arrives."""
    metrics = ServerMetrics()
    worker = SpeechWorker(settings.max_requests, metrics, batch=settings.batch, debug=settings.debug)
    table = VoiceTable(synthesizers, settings.max_characters)
    service = Service(table, worker, metrics, settings.max_seconds, settings.token)
    http_socket, *wyoming_sockets = sockets
    config = uvicorn.Config(
        service.build_app(),
        loop="asyncio",
        http=TimedHttp,
        backlog=ACCEPTS_AT_ONCE,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=round(settings.max_seconds) + 1,
    )
    http, wyoming = _Server(config), WyomingServer(service)
    with _logged_in_lines(debug=settings.debug), contextlib.ExitStack() as stack:
        stack.callback(worker.stop)
        asyncio.get_running_loop().set_exception_handler(LoopFaults(debug=settings.debug))
        listening = [
            await asyncio.start_server(wyoming.answer, sock=found, backlog=ACCEPTS_AT_ONCE) for found in wyoming_sockets
        ]
        _lengthen_queues(wyoming_sockets)
        serving = asyncio.create_task(http.serve([http_socket]))
        await _wait_for_stop(serving, stop, lambda: _say_where(list(synthesizers), sockets))
        for server in listening:
            server.close()
        http.should_exit = True
        await asyncio.gather(serving, wyoming.stop())


class _Server(uvicorn.Server):
    """A server that leaves the signals to us: uvicorn would raise them again at its end, which is no failure here."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        _lengthen_queues(sockets or [])

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _lengthen_queues(sockets: list[socket.socket]) -> None:
    # asyncio has one number for both: how many clients may wait, and how many it accepts at once.
    for found in sockets:
        found.listen(BACKLOG)


async def _wait_for_stop(
    serving: asyncio.Task[None], stop: asyncio.Event | None, on_ready: Callable[[], object]
) -> None:
    """Wait until the server has ended or is asked to stop; `on_ready` is called when signals are handled."""
    stop, loop = stop or asyncio.Event(), asyncio.get_running_loop()
    # A test runs a server in a thread, which receives no signals.
    with contextlib.suppress(RuntimeError, ValueError):
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
    on_ready()
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    # A second signal ends the process at once.
    with contextlib.suppress(RuntimeError, ValueError):
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


def _say_where(names: list[str], sockets: list[socket.socket]) -> None:
    places = []
    for scheme, found in zip(("http", "tcp"), sockets, strict=False):
        host, port = found.getsockname()[:2]
        places.append(f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}")
    echo_line(f"serving {', '.join(names)} at {' and '.join(places)}; Ctrl-C stops")


# So uvicorn calls a speech that ends at --max-seconds, which the metrics count.
_CUT = "ASGI callable returned without completing response."


class _LineHandler(logging.Handler):
    """Writes each warning of uvicorn as one line on stderr, without its traceback."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        if record.getMessage() != _CUT:
            echo_line(f"{record.levelname.lower()}: {first_line_of(record.getMessage())}")


@contextlib.contextmanager
def _logged_in_lines(*, debug: bool) -> Iterator[None]:
    log = logging.getLogger("uvicorn.error")
    handler = logging.StreamHandler() if debug else _LineHandler()
    log.addHandler(handler)
    log.setLevel(logging.WARNING)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.propagate = True
