"""Clients that connect and ask for nothing hold up nobody."""

import errno
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.serving.running import GatedVoice, Running, running
from tests.waiting import wait_until
from xtts_pipeline.serving import connections

# A client that asks for something needs more: this thread may stand still for a moment.
LITTLE_SECONDS = 0.05
HTTP_SECONDS = 1.0


@pytest.fixture
def voice() -> GatedVoice:
    return GatedVoice(1)


@pytest.fixture
def server(voice: GatedVoice) -> Iterator[Running]:
    with running({"gated": voice}) as running_server:
        yield running_server


@pytest.fixture
def begin_within(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Set the time that a client has to begin from now on."""
    return partial(monkeypatch.setattr, connections, "BEGIN_SECONDS")


def all_received(client: socket.socket) -> bytes:
    return b"".join(iter(lambda: client.recv(65_536), b""))


@pytest.mark.parametrize(
    "begun", [b"", b"GET /health HTTP/1.1\r\nHost: localhost\r\n"], ids=["nothing", "half a header"]
)
@pytest.mark.parametrize("protocol", ["http", "wyoming"])
def test_a_client_that_does_not_begin_is_left(
    server: Running, begin_within: Callable[[float], None], protocol: str, begun: bytes
) -> None:
    begin_within(LITTLE_SECONDS)
    port = server.http_port if protocol == "http" else server.wyoming_port
    with socket.create_connection(("127.0.0.1", port), timeout=60.0) as client:
        client.sendall(begun.splitlines()[0] if begun and protocol == "wyoming" else begun)
        # A reset: the server left with bytes of ours unread.
        with suppress(ConnectionResetError):
            assert all_received(client) == b""


@pytest.mark.parametrize("protocol", ["h2c", "websocket"])
def test_a_wish_for_another_protocol_is_passed_over_in_silence(
    protocol: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with running({"gated": GatedVoice(1)}) as server:
        capsys.readouterr()
        asked = f"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, close\r\nUpgrade: {protocol}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", server.http_port), timeout=60.0) as client:
            client.sendall(asked.encode())
            assert all_received(client).startswith(b"HTTP/1.1 200 ")
        assert capsys.readouterr().err == ""


DESCRIBE = b'{"type": "describe"}\n'


def describe(client: socket.socket) -> None:
    """Ask a Wyoming server what it speaks, and read its answer."""
    client.sendall(DESCRIBE)
    with client.makefile("rb") as answers:
        header = json.loads(answers.readline())
        assert header["type"] == "info"
        answers.read(header["data_length"])


@pytest.mark.parametrize(
    "begun", [DESCRIBE[:5], b'{"type": "describe", "data_length": 9}\n{"a"'], ids=["half a header", "half the data"]
)
def test_a_client_that_stops_inside_a_later_event_is_left(
    server: Running, begin_within: Callable[[float], None], begun: bytes
) -> None:
    with socket.create_connection(("127.0.0.1", server.wyoming_port), timeout=60.0) as client:
        describe(client)
        begin_within(LITTLE_SECONDS)
        client.sendall(begun)
        assert all_received(client) == b""


def test_a_client_that_sends_no_later_event_is_left() -> None:
    with (
        running({"gated": GatedVoice(1)}, max_seconds=0.05) as server,
        socket.create_connection(("127.0.0.1", server.wyoming_port), timeout=60.0) as client,
    ):
        client.sendall(DESCRIBE)
        assert b'"info"' in all_received(client)


def is_held(port: int, client_port: int) -> bool:
    """Return whether a process has the server's end of a connection open."""
    ends = [f"0100007F:{number:04X}" for number in (port, client_port)]
    rows = [line.split() for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()]
    return any(row[1:3] == ends and row[9] != "0" for row in rows)


def test_a_client_that_does_not_read_its_speech_is_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], begin_within: Callable[[float], None]
) -> None:
    begin_within(HTTP_SECONDS)
    monkeypatch.setattr(connections, "UNREAD_SECONDS", 0.1)
    voice = GatedVoice(100_000)
    voice.gate.release(100_000)
    body = b'{"input": "abc", "response_format": "pcm"}'
    head = f"POST /v1/audio/speech HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    asked = f"{head}Content-Type: application/json\r\n\r\n".encode() + body
    with running({"gated": voice}, max_seconds=0.5) as server:
        capsys.readouterr()
        with socket.create_connection(("127.0.0.1", server.http_port), timeout=60.0) as client:
            client.sendall(asked)
            ports = server.http_port, client.getsockname()[1]
            wait_until(lambda: is_held(*ports))
            wait_until(lambda: server.metric("xtts_requests_total", protocol="http", outcome="cut") == 1.0)
            begin_within(LITTLE_SECONDS)
            wait_until(lambda: not is_held(*ports))
        assert capsys.readouterr().err == ""


def test_a_closing_connection_waits_for_a_client_that_reads_slowly() -> None:
    unsent, aborted, looks = [9, 9, 5, 5, 5], [], []
    transport = SimpleNamespace(
        is_closing=lambda: True, get_write_buffer_size=lambda: unsent[len(looks)], abort=lambda: aborted.append(True)
    )
    http = connections.TimedHttp.__new__(connections.TimedHttp)
    http.transport, now = transport, [0.0]
    http.loop = SimpleNamespace(time=lambda: now[0], call_later=lambda _, *look: looks.append(look))
    http._close_if_idle(None)
    for seconds in (59.0, 58.0, 59.0, 1.0):
        now[0] += seconds
        assert not aborted
        look, *seen = looks[-1]
        look(*seen)
    assert aborted


def test_a_client_may_wait_before_a_later_event(server: Running, begin_within: Callable[[float], None]) -> None:
    with socket.create_connection(("127.0.0.1", server.wyoming_port), timeout=60.0) as client:
        describe(client)
        begin_within(LITTLE_SECONDS)
        for _ in range(2):
            describe(client)
            time.sleep(2.0 * LITTLE_SECONDS)


def test_a_client_that_begins_no_second_request_is_left(server: Running, begin_within: Callable[[float], None]) -> None:
    begin_within(HTTP_SECONDS)
    with socket.create_connection(("127.0.0.1", server.http_port), timeout=60.0) as client:
        client.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert client.recv(65_536).startswith(b"HTTP/1.1 200 ")
        # The byte after the answer lifts uvicorn's own deadline.
        client.sendall(b"G")
        all_received(client)


def test_a_speech_that_takes_longer_is_not_cut(
    server: Running, voice: GatedVoice, begin_within: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[object] = []
    look = connections.TimedHttp._close_if_idle
    monkeypatch.setattr(
        connections.TimedHttp, "_close_if_idle", lambda self, last: (looks.append(last), look(self, last))
    )
    begin_within(HTTP_SECONDS)
    statuses: list[int] = []
    thread = threading.Thread(target=lambda: statuses.append(server.speak().status_code))
    thread.start()
    wait_until(lambda: bool(voice.begun))
    begin_within(LITTLE_SECONDS)
    seen = len(looks)
    wait_until(lambda: len(looks) > seen + 3)
    voice.gate.release()
    thread.join(timeout=60.0)
    assert statuses == [200]


@pytest.mark.parametrize("protocol", ["http", "wyoming"])
def test_when_no_file_can_be_opened_clients_wait_and_one_line_says_so(
    protocol: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    accept = socket.socket.accept
    refused: list[str] = []
    is_full = threading.Event()

    def accept_if_possible(found: socket.socket) -> tuple[socket.socket, object]:
        if is_full.is_set():
            refused.append("accept")
            raise OSError(errno.EMFILE, "Too many open files")
        return accept(found)

    with running({"gated": GatedVoice(1)}) as server:
        assert server.client.get("/health").status_code == 200
        monkeypatch.setattr(socket.socket, "accept", accept_if_possible)
        is_full.set()
        port, asked = {
            "http": (server.http_port, b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"),
            "wyoming": (server.wyoming_port, b'{"type": "describe"}\n'),
        }[protocol]
        with socket.create_connection(("127.0.0.1", port), timeout=60.0) as client:
            client.sendall(asked)
            wait_until(lambda: len(refused) > 1)
            # asyncio would try as often as clients may wait, 100 or 2,048 times.
            assert len(refused) < 50
            is_full.clear()
            assert client.recv(65_536)
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if "serving" not in line] == [
        "warning: no more files can be opened, so new clients wait; raise the limit (ulimit -n)"
    ]


def test_another_fault_of_the_loop_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    show = connections.LoopFaults(debug=False)
    show(None, {"message": "a fault", "exception": ValueError("one\ntwo")})
    show(None, {"message": "without an exception"})
    assert capsys.readouterr().err == "error: a fault: ValueError: one\nerror: without an exception\n"
