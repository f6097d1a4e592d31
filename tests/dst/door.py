"""HTTP without sockets: requests to a replica's real server, connection and application, byte for byte.

Rule: a caller learns the answer that came whole, or that the outcome is unknown; nothing else.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from aiohttp import web

from tests.dst.loop import SeededLoop
from tests.service import Answer
from voda.api.admission import CallerLimits, ConnectionTable
from voda.api.listener import TimedConnection

_HEAD_END: Final = b"\r\n\r\n"


class Unanswered(Exception):
    """The outcome of a request is unknown."""


class _Line(asyncio.Transport):
    """The server's end of one connection."""

    def __init__(self, answered: "asyncio.Future[bytes]") -> None:
        super().__init__()
        self.forgotten: Callable[[], object] = lambda: None
        self._answered = answered
        self._said = bytearray()
        self._protocol: asyncio.BaseProtocol | None = None
        self._is_closing = False

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """See asyncio.Transport."""
        self._protocol = protocol

    def is_closing(self) -> bool:
        """See asyncio.Transport."""
        return self._is_closing

    def write(self, data: Any) -> None:
        """See asyncio.Transport."""
        if not self._is_closing:
            self._said += data

    def close(self) -> None:
        """See asyncio.Transport."""
        if not self._is_closing:
            self._is_closing = True
            assert self._protocol is not None, "set before it is used"
            self._answered.get_loop().call_soon(self._protocol.connection_lost, None)
            self.hang_up()

    def abort(self) -> None:
        """See asyncio.Transport."""
        self.close()

    def hang_up(self) -> None:
        """Let the caller know that no more is said."""
        self.forgotten()
        if not self._answered.done():
            self._answered.set_result(bytes(self._said))

    def pause_reading(self) -> None:
        """See asyncio.Transport; a request is there as a whole."""

    def resume_reading(self) -> None:
        """See asyncio.Transport."""


class Door:
    """The way in to one life of one replica.

    Args:
        loop: of the world.
        runner: of the replica's application, set up.
        limits: of the application.
    """

    def __init__(self, loop: SeededLoop, runner: web.AppRunner, limits: CallerLimits) -> None:
        self._loop = loop
        self._runner = runner
        self._table = ConnectionTable[TimedConnection](limits)
        self._lines: dict[int, _Line] = {}
        self._calls = 0

    def enter(self, request: bytes, answered: "asyncio.Future[bytes]") -> None:
        """Let a request in; to be called in the replica's context.

        Args:
            request: head and body.
            answered: is given what was said once the connection is closed.
        """
        assert self._runner.server is not None, "set up before"
        line, connection = _Line(answered), TimedConnection(self._runner.server, self._loop, self._table)
        line.set_protocol(connection)
        self._calls += 1
        number = self._calls
        self._lines[number] = line
        line.forgotten = lambda: self._lines.pop(number, None)
        connection.connection_made(line)
        connection.data_received(request)

    def shut(self) -> None:
        """Break all connections: the replica is dead."""
        for line in list(self._lines.values()):
            line.hang_up()


def request_of(method: str, path: str, *, body: Any = None, headers: Mapping[str, str] | None = None) -> bytes:
    """Return a request's bytes.

    Args:
        method: of HTTP.
        path: with the query, as it is sent.
        body: bytes as they are; anything else as JSON.
        headers: beside those that every request has.
    """
    told = {"host": "voda", "connection": "close"}
    if body is not None:
        if not isinstance(body, bytes):
            body = msgspec.json.encode(body)
            told["content-type"] = "application/json"
        told["content-length"] = str(len(body))
    told |= {name.lower(): value for name, value in (headers or {}).items()}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in told.items())]
    return "\r\n".join(lines).encode() + _HEAD_END + (body or b"")


def answer_of(said: bytes) -> Answer:
    """Return what was answered; its headers by name in lower case.

    Raises:
        Unanswered: it is not whole.
    """
    head, end, body = said.partition(_HEAD_END)
    if not end:
        raise Unanswered("the connection was closed before an answer")
    status, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if len(body) != int(headers.get("content-length", 0)):
        raise Unanswered("the answer is cut off, or is a stream")
    return Answer(int(status.split()[1]), headers, body)
