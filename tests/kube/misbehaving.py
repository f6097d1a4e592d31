"""An API server on loopback that answers as it is told to: for what a healthy one does not do on demand.

Rule: it knows nothing of Kubernetes but how answers look; what a real server says is proven with a real one.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import msgspec
from aiohttp import web
from kubernetes_asyncio.client import Configuration

from voda.kubernetes_client.api import Api

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
TOKEN = "a-secret-token"


class Misbehaving:
    """See the module.

    Args:
        answers: verb (list, watch, get, create, patch, update, delete) -> its answers in their order; the last one
            is given again and again.
    """

    def __init__(self, **answers: Sequence[Answer]) -> None:
        self.answers = answers
        self.asked: Counter[str] = Counter()
        self.requests: list[Mapping[str, str]] = []
        """The queries, in their order."""
        app = web.Application(client_max_size=16 << 20)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        verb = _verb(request)
        number = self.asked[verb]
        self.asked[verb] += 1
        self.requests.append(dict(request.query))
        answers = self.answers[verb]
        return await answers[min(number, len(answers) - 1)](request)


class Speaking:
    """An Api of a server, closed when the block ends."""

    def __init__(self, url: str, **options: Any) -> None:
        self._url = url
        self._options = options

    async def __aenter__(self) -> Api:
        configuration = Configuration(host=self._url)
        configuration.api_key["BearerToken"] = f"Bearer {TOKEN}"
        self._api = Api(configuration, **self._options)
        return self._api

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._api.close()


def thing(name: str, version: int | str, **metadata: Any) -> Mapping[str, Any]:
    """Return an object."""
    uid = metadata.pop("uid", f"uid-{name}")
    return {"metadata": {"name": name, "uid": uid, "resourceVersion": str(version), **metadata}}


def listed(version: int | str, *things: Mapping[str, Any], more: str = "") -> Answer:
    """Answer a list."""
    return said({"metadata": {"resourceVersion": str(version), "continue": more}, "items": things})


def said(body: Any, code: int = 200, **headers: str) -> Answer:
    """Answer with JSON, or with bytes as they are."""

    async def answer(request: web.Request) -> web.StreamResponse:
        content = body if isinstance(body, bytes) else msgspec.json.encode(body)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.Response(body=content, status=code, headers=named, content_type="application/json")

    return answer


def refused(code: int, message: str = "no", *, about: str = "", **headers: str) -> Answer:
    """Answer with a Status; `about` = the object's name."""
    details = {"details": {"name": about}} if about else {}
    return said({"kind": "Status", "code": code, "message": message, "reason": "Why", **details}, code, **headers)


def line(kind: str, body: Mapping[str, Any]) -> bytes:
    """Return an event of a watch."""
    return msgspec.json.encode({"type": kind, "object": body}) + b"\n"


def watched(*pieces: bytes | float | asyncio.Event, cut: bool = False) -> Answer:
    """Answer a watch piece by piece, and end it; a number = so many seconds of silence; an event = until it is set.

    Args:
        pieces: bytes as they are to be sent.
        cut: end it by closing the connection in the middle.
    """

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for piece in pieces:
            match piece:
                case bytes():
                    await response.write(piece)
                case asyncio.Event():
                    await piece.wait()
                case seconds:
                    await asyncio.sleep(seconds)
        if cut and request.transport is not None:
            request.transport.abort()
        return response

    return answer


async def silence(request: web.Request) -> web.StreamResponse:
    """Answer nothing at all."""
    await asyncio.sleep(3600.0)
    return web.Response()


def _verb(request: web.Request) -> str:
    if request.method == "GET":
        if request.query.get("watch") == "true":
            return "watch"
        return "list" if "limit" in request.query else "get"
    return {"POST": "create", "PATCH": "patch", "PUT": "update", "DELETE": "delete"}[request.method]
