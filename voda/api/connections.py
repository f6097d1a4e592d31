"""Limits connections: how many there are, and how slowly a caller may send a request or take an answer.

Rules: the head of a request arrives within a time limit, counted from its first byte or from the connection's
beginning; the caller takes an answer, also a stream, fast enough for the writer to go on within that limit. (A body
has its limit where it is read.)
"""

import asyncio
import logging
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler
from aiohttp.web_protocol import RequestHandler

from voda.api.problems import problem_response
from voda.application.backend import CallerLimits

_log = logging.getLogger(__name__)

_HEAD_BYTES: Final = 16_384
"""Longest line of a request's head."""
_HEADERS: Final = 100
_CHECKS: Final = 10
"""Checks per time limit."""
_PROBLEM: Final = (
    b'{"title":"Service Unavailable","status":503,"detail":"too many callers are connected to this server: try'
    b' again in a moment, or close idle connections"}'
)
_TOO_MANY: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/problem+json\r\nContent-Length: %d\r\n"
    b"Retry-After: 1\r\nConnection: close\r\n\r\n%b" % (len(_PROBLEM), _PROBLEM)
)
"""Sent before the request is read."""


class TimedConnection(RequestHandler):
    """One connection that knows for how long the other side has kept it waiting."""

    __slots__ = ("_asking_since", "_is_busy", "_most", "_stuck_since")

    def __init__(self, server: web.Server, loop: asyncio.AbstractEventLoop, limits: CallerLimits) -> None:
        super().__init__(
            server,
            loop=loop,
            keepalive_timeout=limits.idle_s,
            lingering_time=2.0,
            max_line_size=_HEAD_BYTES,
            max_field_size=_HEAD_BYTES,
            max_headers=_HEADERS,
            # A small body may unpack to a huge one, so compressed bodies are refused.
            auto_decompress=False,
            access_log=None,  # type: ignore[arg-type]  # none, which the signature forgets
            logger=_log,
        )
        self._most = limits.connections
        self._is_busy = False
        self._asking_since: float | None = None
        """When waiting for a request's head began; None while no head is due."""
        self._stuck_since: float | None = None
        """When the other side stopped taking bytes; None while it takes them."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self._asking_since = self._loop.time()
        super().connection_made(transport)
        if self._manager is not None and len(self._manager.connections) > self._most:
            # DEBUG, so that a caller who keeps connecting does not fill the log.
            _log.debug("too many connections peer=%s most=%d", self.peername, self._most)
            assert self.transport is not None, "it was just made"
            self.transport.write(_TOO_MANY)
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        if self._asking_since is None and not self._is_busy:
            self._asking_since = self._loop.time()
        super().data_received(data)

    def pause_writing(self) -> None:
        """See asyncio.Protocol."""
        self._stuck_since = self._loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        """See asyncio.Protocol."""
        self._stuck_since = None
        super().resume_writing()

    def begin(self) -> None:
        """Mark that a request's head has arrived."""
        self._is_busy, self._asking_since = True, None

    def end(self) -> None:
        """Mark that a request is answered."""
        self._is_busy = False

    def cut_off_if_slow(self, limit_s: float) -> None:
        """Close the connection if the other side takes too long."""
        waits = [since for since in (self._asking_since, self._stuck_since) if since is not None]
        # No check by the transport's class: uvloop has classes of its own.
        if waits and self._loop.time() - min(waits) > limit_s and self.transport is not None:
            _log.info("cut off peer=%s waited_s=%.0f", self.peername, self._loop.time() - min(waits))
            self.transport.abort()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer bytes that are no HTTP; logged at DEBUG, so that a caller cannot fill the log."""
        _log.debug("unreadable peer=%s status=%d", self.peername, status)
        first = (message or "the request cannot be read as HTTP").strip().splitlines()[0][:200]
        response = problem_response(status, first if status < 500 else "something went wrong inside voda")
        response.force_close()
        return response


@web.middleware
async def mark_busy(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Tell the connection when a request begins and ends; a middleware."""
    connection = request.protocol
    if not isinstance(connection, TimedConnection):
        return await handler(request)
    connection.begin()
    try:
        return await handler(request)
    finally:
        connection.end()


class SlowConnectionReaper:
    """Closes slow connections, checking all of them again and again."""

    def __init__(self, server: web.Server, loop: asyncio.AbstractEventLoop, limits: CallerLimits) -> None:
        self._server = server
        self._loop = loop
        self._limit_s = limits.request_s
        self._next: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Check all connections now, and again after a while."""
        for connection in self._server.connections:
            if isinstance(connection, TimedConnection):
                connection.cut_off_if_slow(self._limit_s)
        self._next = self._loop.call_later(self._limit_s / _CHECKS, self.begin)

    def end(self) -> None:
        """Stop checking."""
        if self._next is not None:
            self._next.cancel()
