"""The ways to an API server in memory: voda's own Api, and the client of the stand-ins.

Rules: both are the real classes, of which only the wire is another; what the wire does (how long a request takes, what
is lost, what the server refuses because it is busy) is drawn from a seed.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from types import TracebackType
from typing import Any, Self, cast

import msgspec
from aiohttp import ClientResponse

from tests.kube.client import Client, Object, Refused, Resource
from tests.kube.memory_server import MemoryServer, refusal_body
from voda.domain.errors import ClusterUnavailable
from voda.domain.rng import rng_at
from voda.kubernetes_client.api import Api
from voda.kubernetes_client.errors import Unreachable, error_of, parse_status
from voda.kubernetes_client.transport import Request, Transport


@dataclass
class Wire:
    """How requests travel."""

    seed: int = 0
    longest_s: float = 0.0
    """Of each way."""
    loses: float = 0.0
    """Share of requests that fail: before the server sees them, or after."""
    throttles: float = 0.0
    """Share of requests that are answered 429."""
    asks_for_s: int = 1
    """How long they are to wait."""
    is_down: bool = False
    """Whether nobody answers."""
    is_down_for: str = ""
    """Method of the requests that nobody answers, such as DELETE."""
    slow_s: Mapping[str, float] = field(default_factory=dict)
    """Last part of a path -> how long such a request takes besides."""
    asked: list[tuple[str, str]] = field(default_factory=list)
    """Method and path of each request that came to the server."""
    most_at_once: int = 0
    """Requests that were under way together, at most."""
    under_way: int = 0

    def __post_init__(self) -> None:
        self.chance: Random = rng_at(self.seed, "wire")

    async def travel(self) -> None:
        """Take the time of one way."""
        if self.longest_s:
            await asyncio.sleep(self.chance.uniform(0.0, self.longest_s))

    def fails(self, share: float) -> bool:
        """Say whether this one fails."""
        return bool(share) and self.chance.random() < share


class MemoryApi(Api):
    """Voda's Api of a server in memory."""

    def __init__(self, server: MemoryServer, wire: Wire | None = None, *, timeout_s: float = 15.0) -> None:
        self.host = "memory"
        self.wire = wire or Wire()
        self._transport = _MemoryTransport(server, self.wire, timeout_s)


class MemoryClient(Client):
    """The stand-ins' client of a server in memory."""

    def __init__(self, server: MemoryServer, wire: Wire | None = None) -> None:
        self._server = server
        self.wire = wire or Wire()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return

    async def watch(self, resource: Resource, version: str, **query: str) -> AsyncIterator[tuple[str, Object]]:
        """See Client.watch."""
        async with aclosing(self._server.watch(resource.path(), version, query)) as changes:
            async for change in changes:
                await self.wire.travel()
                yield change.type, _copy(change.object)

    async def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
    ) -> Object:
        """See Client.request."""
        await self.wire.travel()
        answer = self._server.answer(method, path, query or {}, None if body is None else _copy(body))
        await self.wire.travel()
        return _copy(answer)


class _MemoryTransport(Transport):
    """Answers from memory; tries again as the real one does."""

    def __init__(self, server: MemoryServer, wire: Wire, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._server = server
        self._wire = wire

    @property
    def server_time(self) -> float | None:
        """See Transport."""
        return self._server.now()

    async def close(self) -> None:
        """Close nothing."""

    @asynccontextmanager
    async def opened(
        self, request: Request, *, total_s: float | None = None, silence_s: float | None = None
    ) -> AsyncGenerator[ClientResponse, None]:
        """See Transport.opened."""
        try:
            async with asyncio.timeout(self.timeout_s):
                pieces = await self._pieces(request)
        except TimeoutError as late:
            raise ClusterUnavailable(f"cannot {request.text}: it takes too long") from late
        except Refused as refused:
            raise error_of(
                request.text, parse_status(refused.status, msgspec.json.encode(refusal_body(refused)))
            ) from refused
        answer = _Answer(pieces)
        try:
            yield cast(ClientResponse, answer)
        except ConnectionError as broken:
            raise ClusterUnavailable(f"cannot {request.text}: the answer broke off ({broken})") from broken
        finally:
            await pieces.aclose()

    async def _pieces(self, request: Request) -> AsyncGenerator[bytes, None]:
        wire = self._wire
        wire.under_way += 1
        wire.most_at_once = max(wire.most_at_once, wire.under_way)
        try:
            return await self._answered(request)
        finally:
            wire.under_way -= 1

    async def _answered(self, request: Request) -> AsyncGenerator[bytes, None]:
        wire, query = self._wire, request.query
        self._refuse_down(request)
        await wire.travel()
        await asyncio.sleep(wire.slow_s.get(request.path.rpartition("/")[2], 0.0))
        self._refuse_down(request)
        if wire.fails(wire.throttles):
            raise error_of(request.text, parse_status(429, b""), str(wire.asks_for_s))
        if wire.fails(wire.loses):
            raise ClusterUnavailable(f"cannot {request.text}: lost on its way")
        wire.asked.append((request.method, request.path))
        if request.verb == "watch":
            return self._told(request)
        body = None if request.body is None else _copy(request.body)
        try:
            answer = msgspec.json.encode(self._server.answer(request.method, request.path, query, body))
        finally:
            # A refusal is under way for as long as any answer.
            await wire.travel()
        if wire.fails(wire.loses):
            raise ClusterUnavailable(f"cannot {request.text}: its answer was lost")
        return _whole(answer)

    async def _told(self, request: Request) -> AsyncGenerator[bytes, None]:
        query = request.query
        try:
            async with aclosing(self._server.watch(request.path, query["resourceVersion"], query)) as changes:
                async for change in changes:
                    await self._wire.travel()
                    yield msgspec.json.encode({"type": change.type, "object": change.object}) + b"\n"
        except Refused as refused:
            yield msgspec.json.encode({"type": "ERROR", "object": refusal_body(refused)}) + b"\n"

    def _refuse_down(self, request: Request) -> None:
        if self._wire.is_down or self._wire.is_down_for == request.method:
            raise Unreachable(f"cannot {request.text}: nobody answers")


class _Answer:
    """As much of an answer as is read."""

    def __init__(self, pieces: AsyncGenerator[bytes, None]) -> None:
        self.content = self
        self._pieces = pieces

    def iter_any(self) -> AsyncGenerator[bytes, None]:
        """Return the pieces."""
        return self._pieces


async def _whole(text: bytes) -> AsyncGenerator[bytes, None]:
    yield text


def _copy(value: Mapping[str, Any]) -> Object:
    copied: Object = msgspec.json.decode(msgspec.json.encode(value))
    return copied
