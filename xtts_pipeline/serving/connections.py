"""Keep clients that ask for nothing from holding up others: deadlines, and accepting when no file can be opened.

Knows nothing of voices or requests.
"""

import asyncio
import errno
import math
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from xtts_pipeline.errors import first_line_of
from xtts_pipeline.system.terminal import echo_line

# How long a client may take to begin: far longer than any network, far shorter than a client that leaves it open.
BEGIN_SECONDS = 10.0
# A slow player takes what it has not read from its own and the system's buffers first.
UNREAD_SECONDS = 60.0
WARNING_SECONDS = 60.0
# When no file can be opened, asyncio tries this many times in vain, and each of them again later.
ACCEPTS_AT_ONCE = 1


class TimedHttp(H11Protocol):
    """HTTP of one connection. uvicorn has a deadline between two requests only, and a byte in time lifts it."""

    _timer: asyncio.TimerHandle

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Wait for the first request."""
        super().connection_made(transport)
        self._look_later(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the deadline, which would keep the connection in memory."""
        self._timer.cancel()
        super().connection_lost(exc)

    def _unsupported_upgrade_warning(self) -> None:
        """Say nothing: the request is answered as usual, and uvicorn would advise to install a WebSocket library.

        Java's client and `curl --http2` ask for HTTP/2 in each request.
        """

    def _look_later(self, last: object) -> None:
        self._timer = self.loop.call_later(BEGIN_SECONDS, self._close_if_idle, last)

    def _close_if_idle(self, last: object) -> None:
        """Close the connection if its last request is still `last`, which was answered when we last looked."""
        if self.transport.is_closing():
            self._abort_if_unread(self.transport.get_write_buffer_size(), self.loop.time())
        # Before the first request `cycle` is None.
        elif not getattr(self.cycle, "response_complete", True):
            self._look_later(None)
        elif self.cycle is not last:
            self._look_later(self.cycle)
        else:
            self.transport.close()
            self._look_later(last)

    def _abort_if_unread(self, unsent: int, since: float) -> None:
        """Abort a closing connection, which waits for its client, if no byte has left it for UNREAD_SECONDS."""
        now, left = self.loop.time(), self.transport.get_write_buffer_size()
        if left == unsent and now - since >= UNREAD_SECONDS:
            self.transport.abort()
        else:
            since = since if left == unsent else now
            self._timer = self.loop.call_later(BEGIN_SECONDS, self._abort_if_unread, left, since)


class LoopFaults:
    """Says what goes wrong in the loop itself, one line each; the handler of `loop.set_exception_handler`."""

    def __init__(self, *, debug: bool) -> None:
        self._is_debug = debug
        self._next_warning = -math.inf

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Print a fault, with its traceback if `debug`; but that no file can be opened, once in WARNING_SECONDS."""
        error = context.get("exception")
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            if loop.time() >= self._next_warning:
                self._next_warning = loop.time() + WARNING_SECONDS
                echo_line("warning: no more files can be opened, so new clients wait; raise the limit (ulimit -n)")
        elif self._is_debug:
            loop.default_exception_handler(context)
        else:
            what = f": {type(error).__name__}: {first_line_of(error)}" if error else ""
            echo_line(f"error: {context['message']}{what}")
