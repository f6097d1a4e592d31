"""Listens where the application meets the network, and limits how slow connections may be.

Rules: voda.api.admission decides how many there are at a time, and which gives way. The head of a request arrives
within a time limit, counted from its first byte or from the connection's beginning, and the caller takes an answer,
also a stream, fast enough for the writer to go on within it. The listener ends in order: no new connection, streams
end, requests in progress are answered, the rest is cut off.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext, suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler
from aiohttp.web_protocol import RequestHandler
from msgspec import json

from voda.api.admission import SHARED, CallerLimits, ConnectionTable
from voda.api.origin_check import LISTEN_HOST
from voda.api.problems import problem_response
from voda.api.sockets import PortListener, bound_socket, context_of, listen, peer_of
from voda.auth.callers import Caller
from voda.auth.local_users import Peer

_log = logging.getLogger(__name__)

_SOCKET_BACKLOG: Final = 128
"""Of the Unix socket, where who connects can wait for a place: behind a flood a request waits for all in the line."""
_ENDING_S: Final = 5.0
"""For requests in progress, once it ends."""
_HEAD_BYTES: Final = 16_384
"""Longest line of a request's head."""
_HEADERS: Final = 100
_UNFINISHED_BYTES: Final = 65_536
"""Most that is kept of a head that has not ended: of all connections together no more than a service can bear."""
_CHECKS: Final = 10


def _refusal(status: int, title: str, detail: str, more: str = "") -> bytes:
    problem = json.encode({"title": title, "status": status, "detail": detail})
    head = f"HTTP/1.1 {status} {title}\r\nContent-Type: application/problem+json\r\nContent-Length: {len(problem)}\r\n"
    return f"{head}{more}Connection: close\r\n\r\n".encode() + problem


_TOO_MANY: Final = _refusal(
    503,
    "Service Unavailable",
    "too many callers are connected to this server: try again in a moment, or close idle connections",
    "Retry-After: 1\r\n",
)
_TOO_LONG: Final = _refusal(
    431,
    "Request Header Fields Too Large",
    f"the head of the request is longer than {_UNFINISHED_BYTES:,} bytes: send fewer or shorter headers",
)


class TimedConnection(RequestHandler):
    """One connection that knows for how long the other side has kept it waiting."""

    __slots__ = ("_asking_since", "_head_bytes", "_is_busy", "_stuck_since", "_table", "lost", "peer")

    def __init__(
        self, server: web.Server, loop: asyncio.AbstractEventLoop, table: "ConnectionTable[TimedConnection]"
    ) -> None:
        super().__init__(
            server,
            loop=loop,
            keepalive_timeout=table.limits.idle_s,
            lingering_time=2.0,
            max_line_size=_HEAD_BYTES,
            max_field_size=_HEAD_BYTES,
            max_headers=_HEADERS,
            # A small body may unpack to a huge one, so compressed bodies are refused.
            auto_decompress=False,
            access_log=None,  # type: ignore[arg-type]  # none, which the signature forgets
            logger=_log,
        )
        self._table = table
        self.lost = asyncio.Event()
        """Set once the connection is closed."""
        self.peer: Peer | None = None
        """The process that asks over the Unix socket; None over TCP."""
        self._is_busy = False
        self._head_bytes = 0
        """That came of a head which has not ended."""
        self._asking_since: float | None = None
        """When waiting for a request's head began; None while no head is due."""
        self._stuck_since: float | None = None
        """When the other side stopped taking bytes; None while it takes them."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._asking_since = self._loop.time()
        self.peer = peer_of(transport)
        super().connection_made(transport)
        if (leaving := self._table.enter(self, _peer(transport, self.peer))) is not None:
            leaving.give_way()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._table.leave(self)
        self.lost.set()
        super().connection_lost(exc)

    def give_way(self) -> None:
        """Close the connection, as its place is needed; one that has asked nothing in full yet is told so."""
        self._table.leave(self)
        # DEBUG, so that a caller who keeps connecting does not fill the log.
        _log.debug("too many connections: closed peer=%s", self.peername)
        if self.transport is None:
            return
        if self._asking_since is None:
            self.transport.abort()
        else:
            self._refuse(_TOO_MANY)

    def _refuse(self, answer: bytes) -> None:
        """Close the connection with an answer, if the other side takes it at once."""
        if self.transport is None:
            return
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.transport.write(answer)
            self.transport.close()

    def held(self, *, is_admin: bool) -> AbstractContextManager[None]:
        """Hold the connection for a known caller's request; see ConnectionTable."""
        return self._table.held(self, is_admin=is_admin)

    def data_received(self, data: bytes) -> None:
        if self._asking_since is None and not self._is_busy:
            self._asking_since = self._loop.time()
        super().data_received(data)
        # It waits for a head alone: behind one come its body, also of a request that is answered, and other requests.
        is_due = self._waiter is not None and not self._waiter.done()
        self._head_bytes = self._head_bytes + len(data) if is_due else 0
        if self._head_bytes > _UNFINISHED_BYTES:
            self._refuse(_TOO_LONG)

    def pause_writing(self) -> None:
        self._stuck_since = self._loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._stuck_since = None
        super().resume_writing()

    @property
    def has_more(self) -> bool:
        """Whether other requests came behind the one that is answered."""
        return bool(self._messages)

    def begin(self) -> None:
        """Mark that a request's head has arrived."""
        self._is_busy, self._asking_since = True, None

    def end(self) -> None:
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
        # The parser goes on with what it read, as Python writes it, which tells nobody anything.
        reason = (message or "").strip().partition("\n")[0].partition(" when reading")[0].rstrip(":")
        sentence = ": ".join(filter(None, ["the request cannot be read as HTTP", reason[:200]]))
        response = problem_response(status, sentence if status < 500 else "something went wrong inside voda")
        response.force_close()
        return response


@web.middleware
async def mark_busy(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Tell the connection when a request begins and ends; a middleware.

    Who sends requests without waiting for answers gets the first one's, and the connection is closed: no client of
    voda does, and some hundred such connections would make others wait for seconds.
    """
    connection = request.protocol
    if not isinstance(connection, TimedConnection):
        return await handler(request)
    connection.begin()
    try:
        response = await handler(request)
    finally:
        connection.end()
    if connection.has_more and not response.prepared:
        response.force_close()
    return response


_CONNECTION: Final[web.AppKey[Callable[[], TimedConnection]]] = web.AppKey("CONNECTION")
"""Makes the connections of an application that is served."""


def holding_connection(request: web.Request, caller: Caller) -> AbstractContextManager[None]:
    """Return what holds the request's connection while it is answered; raises ServerBusy on entry."""
    connection = request.protocol
    return (
        connection.held(is_admin=caller.role == "admin") if isinstance(connection, TimedConnection) else nullcontext()
    )


def _peer(transport: asyncio.BaseTransport, process: Peer | None) -> str:
    """Return what tells callers apart before they say who they are: at the Unix socket the user, else the address;
    SHARED for an address of this machine.
    """
    if process is not None:
        return f"user id {process.uid}"
    address = transport.get_extra_info("peername")
    if not isinstance(address, tuple) or not address:
        return SHARED
    with suppress(ValueError):
        found = ip_address(str(address[0]).partition("%")[0])
        plain = getattr(found, "ipv4_mapped", None) or found
        return SHARED if plain.is_loopback else str(plain)
    return SHARED


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
        if self._next is not None:
            self._next.cancel()


def local_peer(request: web.Request) -> Peer | None:
    """Return the process that sent the request over the Unix socket; None where it came over TCP."""
    connection = request.protocol
    return connection.peer if isinstance(connection, TimedConnection) else None


@asynccontextmanager
async def serving(
    app: web.Application,
    host: str,
    port: int,
    *,
    tls: tuple[Path, Path] | None = None,
    limits: CallerLimits | None = None,
) -> AsyncIterator[str]:
    """Answer requests for the length of the block, and yield the address to ask.

    Args:
        host: name or address to listen at; empty, 0.0.0.0 or ::, for all.
        port: 0 = any that is free.
        tls: files of the certificate (with its chain) and of its key, PEM.

    Raises:
        AlreadyExists: somebody else listens there.
        InvalidInput: there is no such address, or the certificate cannot be used.
    """
    async with answering(app, host, port, tls=tls, limits=limits) as listener:
        await listener.open()
        yield listener.url


@asynccontextmanager
async def answering(
    app: web.Application,
    host: str,
    port: int,
    *,
    tls: tuple[Path, Path] | None = None,
    limits: CallerLimits | None = None,
) -> AsyncIterator[PortListener]:
    """Answer requests for the length of the block, and yield the listener of the port, which is not open yet; see
    `serving`.
    """
    limits, loop = limits or CallerLimits(), asyncio.get_running_loop()
    context = context_of(*tls) if tls else None
    runner, table = web.AppRunner(app, shutdown_timeout=_ENDING_S), ConnectionTable[TimedConnection](limits)

    def connection() -> TimedConnection:
        assert runner.server is not None, "made by setup"
        return TimedConnection(runner.server, loop, table)

    app[LISTEN_HOST], app[_CONNECTION] = host, connection
    await runner.setup()
    assert runner.server is not None, "made by setup"
    sweeper = SlowConnectionReaper(runner.server, loop, limits)
    listener = PortListener(lambda: listen(connection, host, port, context), host, is_secure=context is not None)
    try:
        sweeper.begin()
        try:
            yield listener
        finally:
            listener.close()
    finally:
        await runner.cleanup()
        sweeper.end()


@asynccontextmanager
async def serving_socket(app: web.Application, path: Path) -> AsyncIterator[None]:
    """Answer requests over a Unix socket too, for the length of the block, inside that of `serving`.

    Raises:
        AlreadyExists: somebody else listens there.
        InvalidInput: there can be no socket at the path.
    """
    with bound_socket(path) as bound:
        loop = asyncio.get_running_loop()
        listener = await loop.create_unix_server(app[_CONNECTION], sock=bound, backlog=_SOCKET_BACKLOG)
        try:
            yield
        finally:
            listener.close()
