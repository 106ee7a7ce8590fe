"""Drawn bad requests, sent over raw sockets to a server: each gets a 4xx with one line, and the server lives."""

import json
import socket
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.serving.running import Running
from xtts_pipeline.serving import http_api
from xtts_pipeline.serving.sound import MEDIA_TYPES

VOICES = ("tiny", "tiny/ann", "tiny/bob")
SPEECH = "/v1/audio/speech"
TRICKS = (
    "../tiny",
    "/etc/passwd",
    "tiny/..",
    "tiny/",
    "./tiny",
    "%2e%2e/tiny",
    "tiny\x00",
    "TINY",
    "C:\\tiny",
    "tiny\n",
    "",
)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
NOT_TEXT = JSON_VALUES.filter(lambda value: not isinstance(value, str))
# A value of each field that is never right.
WRONG_VALUES = {
    "input": NOT_TEXT | st.sampled_from(["", " \n", "...", "a" * 201]),
    "voice": NOT_TEXT.filter(lambda value: value is not None)
    | st.sampled_from(TRICKS)
    | st.text().filter(lambda name: name not in VOICES),
    "response_format": NOT_TEXT | st.text(max_size=9).filter(lambda name: name not in MEDIA_TYPES),
    "speed": st.floats().filter(lambda speed: not 0.25 <= speed <= 4.0) | st.text(max_size=3) | st.none(),
    "language": st.text(max_size=9).filter(lambda name: not name.strip().lower().startswith("en")),
    "reference": st.text(max_size=40),
    "model": NOT_TEXT | st.text(max_size=9),
    "stream_format": JSON_VALUES.filter(lambda value: value != "audio"),
    "unknown": JSON_VALUES,
}

# Stands for the answer that a client lost because it was still sending.
CLOSED = b'{"error": {"message": "closed"}}'
# Requests that fail before their body is read.
HEADS = (
    {"method": "PUT"},
    {"method": "G\x01T"},
    {"path": "/v1/audio/../speech"},
    {"path": "/v1/audio/speech/%00"},
    {"path": "/" + "a" * 100_000, "method": "GET"},
    {"headers": {}},
    {"headers": {"Content-Type": "text/plain"}},
    {"headers": {"Content-Type": "application/json", "Content-Length": "-5"}},
    {"headers": {"Content-Type": "application/json", "Content-Length": "many"}},
    {"headers": {"Content-Type": "application/json", "Transfer-Encoding": "chunked"}},
)


@dataclass(frozen=True)
class Draw:
    """A request as bytes on the wire. A client that `leaves` reads no answer."""

    body: bytes = b""
    method: str = "POST"
    path: str = SPEECH
    headers: dict[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})
    leaves: bool = False
    part_bytes: int = 1 << 20
    may_succeed: bool = False

    def content(self) -> bytes:
        headers = {"Host": "localhost", "Connection": "close", "Content-Length": str(len(self.body)), **self.headers}
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"{self.method} {self.path} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + self.body


def order(**fields: object) -> bytes:
    return json.dumps({"input": "abc", "response_format": "pcm", **fields}).encode()


@st.composite
def wrong_fields(draw: st.DrawFn) -> Draw:
    name = draw(st.sampled_from(sorted(WRONG_VALUES)))
    return Draw(order(**{name: draw(WRONG_VALUES[name])}))


GOOD = order()
DRAWS = st.one_of(
    wrong_fields(),
    st.integers(0, len(GOOD) - 1).map(lambda cut: Draw(GOOD[:cut])),
    st.sampled_from([GOOD + GOOD, b"\xff" + GOOD, b"[" * 5_000, b'"abc"', b"null"]).map(Draw),
    st.text(max_size=60).map(lambda text: Draw(order(input=text), may_succeed=True)),
    st.sampled_from(HEADS).map(lambda head: Draw(GOOD, **head)),
    st.integers(1, 250).map(lambda sent: Draw(order(input="a " * 99), leaves=True, part_bytes=sent)),
    st.just(Draw(b'{"input": "abc", "voice": ' + b" " * 9, part_bytes=20)),
    st.sampled_from([3_000, 100_000, 10_000_000]).map(lambda size: Draw(order(input="a" * size))),
)


def send(server: Running, request: Draw) -> tuple[int, bytes]:
    """Return the status and the body of the answer; 0 for a client that has left."""
    content, answer = request.content(), b""
    with socket.create_connection(("127.0.0.1", server.http_port), timeout=60.0) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if request.leaves:
            client.sendall(content[: request.part_bytes])
            return 0, b""
        try:
            for start in range(0, len(content), request.part_bytes):
                client.sendall(content[start : start + request.part_bytes])
            while part := client.recv(65_536):
                answer += part
        except (ConnectionResetError, BrokenPipeError):
            # The server answers a body that is too long before its end.
            assert len(content) > 1 << 20
    head, _, body = answer.partition(b"\r\n\r\n")
    return (int(head.split()[1]), body) if head else (413, CLOSED)


@pytest.mark.parametrize("examples", [100, pytest.param(1_000, marks=pytest.mark.slow)])
def test_bad_requests_get_one_line_and_the_server_lives(
    server: Running, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, examples: int
) -> None:
    # A body that never ends is drawn too, and the server gives up on it only then.
    monkeypatch.setattr(http_api, "BODY_SECONDS", 0.5)

    @settings(max_examples=examples, suppress_health_check=list(HealthCheck))
    @given(request=DRAWS)
    def check(request: Draw) -> None:
        status, body = send(server, request)
        if request.leaves or (request.may_succeed and status == 200):
            return
        assert 400 <= status < 500, (request, status)
        # The HTTP library itself answers what is no HTTP.
        if b"Invalid HTTP request received." not in body:
            message = json.loads(body)["error"]["message"]
            assert len(message.splitlines()) == 1
            assert "Traceback" not in message

    check()
    assert server.speak().status_code == 200
    assert server.metric("xtts_requests_total", outcome="500", protocol="http") == 0
    assert "Traceback" not in capsys.readouterr().err
