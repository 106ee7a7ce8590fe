"""The HTTP side: OpenAI's speech API, the list of voices, health, metrics and the page.

Every error is OpenAI's error JSON with one line.
"""

import asyncio
import base64
import hmac
import ipaddress
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from importlib.resources import files
from typing import Literal

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from xtts_pipeline.errors import XttsError, did_you_mean
from xtts_pipeline.serving.metrics import ServerMetrics
from xtts_pipeline.serving.orders import RequestError, SpeechOrder, VoiceTable
from xtts_pipeline.serving.sound import MEDIA_TYPES, SoundEncoder, available_formats
from xtts_pipeline.serving.worker import SpeechWorker

# OpenAI's names, which clients send when they are not told another.
MODELS = ("xtts", "tts-1", "tts-1-hd", "gpt-4o-mini-tts")
# The page asks for the token itself; a probe has none.
OPEN_PATHS = ("/", "/health")
MAX_CLIP_BYTES = 6 << 20
# JSON writes a character outside of Unicode's first plane in 12 bytes.
BYTES_PER_CHARACTER = 12
OTHER_FIELDS_BYTES = 4_096
BODY_SECONDS = 30.0
# The page loads nothing from elsewhere.
PAGE_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; connect-src 'self'"
)


class SpeechRequest(BaseModel):
    """The body of `/v1/audio/speech`: OpenAI's fields, `language`, and `reference`, a sound file in base64."""

    model_config = ConfigDict(strict=True, extra="forbid")

    model: str = MODELS[0]
    input: str
    voice: str | None = None
    response_format: str = "mp3"
    speed: float = Field(1.0, allow_inf_nan=False)
    stream_format: Literal["audio"] = "audio"
    instructions: str | None = None
    language: str | None = None
    reference: str | None = None


@dataclass(frozen=True)
class Service:
    """What answers requests: the voices, the worker that speaks, and the limits."""

    voices: VoiceTable
    worker: SpeechWorker
    metrics: ServerMetrics
    max_seconds: float
    token: str | None = None

    def build_app(self) -> ASGIApp:
        """Return the ASGI application."""
        app = Starlette(
            routes=[
                Route("/", self._page),
                Route("/health", self._health),
                Route("/metrics", self._show_metrics),
                Route("/v1/models", self._models),
                Route("/v1/audio/voices", self._voices),
                Route("/v1/audio/speech", self._speak, methods=["POST"]),
            ],
            exception_handlers={XttsError: self._refuse, HTTPException: self._refuse},
        )
        return _Gate(app, self.token, self.metrics)

    async def _page(self, _: Request) -> Response:
        content = files("xtts_pipeline.serving").joinpath("page.html").read_bytes()
        return HTMLResponse(content, headers={"content-security-policy": PAGE_POLICY})

    async def _health(self, _: Request) -> Response:
        if self.worker.is_alive:
            return JSONResponse({"status": "ok"})
        return JSONResponse({"status": "the thread that speaks has ended; start the server again"}, 503)

    async def _show_metrics(self, _: Request) -> Response:
        return Response(generate_latest(self.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    async def _models(self, _: Request) -> Response:
        models = [{"id": name, "object": "model", "created": 0, "owned_by": "xtts_pipeline"} for name in MODELS]
        return JSONResponse({"object": "list", "data": models})

    async def _voices(self, _: Request) -> Response:
        return JSONResponse({"voices": self.voices.describe(), "formats": available_formats()})

    async def _speak(self, request: Request) -> Response:
        body = await self._read_body(request)
        # Base64 and checks of a text take milliseconds, which streams of other clients can wait.
        order, response_format = self._parse(body)
        return _SpeechResponse(self, order, response_format)

    async def _read_body(self, request: Request) -> bytes:
        content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if content_type != "application/json":
            shown = content_type[:80] or "none"
            raise RequestError(f"Content-Type: found {shown}, expected application/json", status=415)
        limit = BYTES_PER_CHARACTER * self.voices.max_characters + MAX_CLIP_BYTES * 4 // 3 + OTHER_FIELDS_BYTES
        body = bytearray()
        try:
            async with asyncio.timeout(BODY_SECONDS):
                async for part in request.stream():
                    body += part
                    if len(body) > limit:
                        raise RequestError(f"body: over {limit} bytes; send less text or a shorter clip", status=413)
        except TimeoutError:
            raise RequestError(f"body: not complete after {BODY_SECONDS:.0f} s", status=408) from None
        except ClientDisconnect:
            raise RequestError("body: the client has left", status=400) from None
        return bytes(body)

    def _parse(self, body: bytes) -> tuple[SpeechOrder, str]:
        try:
            wanted = SpeechRequest.model_validate_json(body)
        except ValidationError as error:
            problem = error.errors(include_url=False, include_context=False, include_input=False)[0]
            field = ".".join(map(str, problem["loc"]))[:80] or None
            raise RequestError(f"{field or 'body'}: {problem['msg']}", field) from None
        formats = available_formats()
        if wanted.model not in MODELS:
            found = wanted.model[:80]
            raise RequestError(f"model: found {found!r}; {did_you_mean(found, MODELS)}", "model", status=404)
        if wanted.response_format not in formats:
            found = wanted.response_format[:80]
            raise RequestError(f"response_format: found {found!r}, expected {', '.join(formats)}", "response_format")
        clip = None if wanted.reference is None else _decode_clip(wanted.reference)
        order = self.voices.order(wanted.input, wanted.voice, wanted.language, clip, wanted.speed)
        return order, wanted.response_format

    async def _refuse(self, request: Request, error: Exception) -> Response:
        headers: Mapping[str, str] = {}
        if isinstance(error, RequestError):
            status, field, message = error.status, error.field, str(error)
            headers = {"retry-after": str(error.retry_seconds)} if error.retry_seconds else {}
        elif isinstance(error, HTTPException):
            status, field, headers = error.status_code, None, error.headers or {}
            message = f"{request.method[:20]} {request.url.path[:80]}: {HTTPStatus(status).phrase.lower()}"
        else:
            status, field, message = 400, "input", str(error)
        self.metrics.requests.labels("http", str(status)).inc()
        return _error_response(status, message, field, headers)


class _SpeechResponse(Response):
    """Sends a speech part by part. It ends when the client leaves or after `max_seconds`."""

    def __init__(self, service: Service, order: SpeechOrder, response_format: str) -> None:
        super().__init__(media_type=MEDIA_TYPES[response_format])
        # The length is not known, and of no use to a player that starts at once.
        del self.headers["content-length"]
        self._service, self._order, self._format = service, order, response_format
        self._is_started = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 (ASGI's)
        speaking = asyncio.ensure_future(self._speak_in_time(send))
        leaving = asyncio.ensure_future(_wait_until_left(receive))
        try:
            await asyncio.wait((speaking, leaving), return_when=asyncio.FIRST_COMPLETED)
            if speaking.done():
                speaking.result()
            else:
                self._count("left")
        finally:
            for task in (speaking, leaving):
                task.cancel()
                with suppress(asyncio.CancelledError, XttsError):
                    await task

    async def _speak_in_time(self, send: Send) -> None:
        limit = self._service.max_seconds
        try:
            async with asyncio.timeout(limit):
                await self._send_speech(send)
        except (TimeoutError, XttsError) as error:
            if isinstance(error, TimeoutError):
                error = RequestError(f"no sound within {limit:g} s: too many requests", status=429, retry_seconds=10)
            if not self._is_started:
                raise error from None
            # Without the end of the body the client knows that the sound is cut.
            self._count("cut")

    async def _send_speech(self, send: Send) -> None:
        with self._service.worker.speak(self._order) as speech:
            encoder = SoundEncoder(self._format, speech.sample_rate)
            # An error before the first sound still has a status of its own.
            wave = await anext(speech, None)
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            self._is_started = True
            while wave is not None:
                await send(_body(encoder.encode(wave), is_last=False))
                wave = await anext(speech, None)
            await send(_body(encoder.finish(), is_last=True))
            self._count("200")

    def _count(self, outcome: str) -> None:
        self._service.metrics.requests.labels("http", outcome).inc()


class _Gate:
    """Answers 401 to requests without the token; if there is none, 403 to those that name another host.

    A page can give its own name this machine's address, so that the browser takes the server for a part of the page.
    """

    def __init__(self, app: ASGIApp, token: str | None, metrics: ServerMetrics) -> None:
        self._app, self._metrics = app, metrics
        self._expected = None if token is None else f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        respond = self._app
        if scope["type"] == "http":
            headers = dict(scope["headers"])
            host = headers.get(b"host", b"localhost").decode("latin-1")
            if self._expected is None and not _is_local(host):
                respond = _error_response(403, f"Host: found {host[:80]!r}, expected localhost or an address; use that")
            elif self._expected is not None and scope["path"] not in OPEN_PATHS:
                found = headers.get(b"authorization", b"")
                if not hmac.compare_digest(found, self._expected):
                    message = "Authorization: expected `Bearer TOKEN` with the server's token"
                    respond = _error_response(401, message, headers={"www-authenticate": "Bearer"})
        if isinstance(respond, Response):
            self._metrics.requests.labels("http", str(respond.status_code)).inc()
        await respond(scope, receive, send)


def _is_local(host: str) -> bool:
    """Return whether a Host header has an address or the name localhost."""
    name = re.sub(r":\d+$", "", host)
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return name.lower() == "localhost" or name.lower().endswith(".localhost")
    return True


def _error_response(
    status: int, message: str, field: str | None = None, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    kind = "invalid_request_error" if status < HTTPStatus.INTERNAL_SERVER_ERROR else "server_error"
    line = " ".join(message.split())
    error = {"message": line, "type": kind, "param": field, "code": None}
    return JSONResponse({"error": error}, status, headers)


def _decode_clip(text: str) -> bytes:
    try:
        clip = base64.b64decode(text, validate=True)
    except ValueError:
        raise RequestError("reference: not base64; expected a sound file in base64", "reference") from None
    if not 0 < len(clip) <= MAX_CLIP_BYTES:
        raise RequestError(
            f"reference: {len(clip)} bytes, expected 1 to {MAX_CLIP_BYTES}", "reference", status=413 if clip else 400
        )
    return clip


def _body(content: bytes, *, is_last: bool) -> Message:
    return {"type": "http.response.body", "body": content, "more_body": not is_last}


async def _wait_until_left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
