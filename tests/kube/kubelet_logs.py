"""The parts of a kubelet that the API server asks for logs and commands: HTTPS on loopback, one for all nodes that name
its port.

Rule: it serves what a kubelet would, of containers whose output the test writes.
"""

import asyncio
import ssl
from collections import defaultdict
from pathlib import Path
from types import TracebackType
from typing import Self

from aiohttp import web


class Container:
    """What one container has printed so far."""

    def __init__(self) -> None:
        self.printed = b""
        self.is_over = False
        self._moved = asyncio.Condition()

    async def print(self, text: bytes) -> None:
        """Print."""
        self.printed += text
        async with self._moved:
            self._moved.notify_all()

    async def end(self) -> None:
        """End."""
        self.is_over = True
        await self.print(b"")

    async def moved(self) -> None:
        """Return once it prints or ends."""
        async with self._moved:
            await self._moved.wait()


class KubeletLogs:
    """See the module.

    Args:
        certificates: a folder with apiserver.crt and apiserver.key, good enough for loopback.
    """

    def __init__(self, certificates: Path) -> None:
        self.containers: dict[str, Container] = defaultdict(Container)
        """pod/container, and pod/container/previous."""
        self.asked: list[dict[str, str]] = []
        self._transports: set[asyncio.Transport] = set()
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._context.load_cert_chain(certificates / "apiserver.crt", certificates / "apiserver.key")
        app = web.Application()
        app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._context).start()
        self.port = int(self._runner.addresses[0][1])
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()
        # Their farewells of TLS would outlive the loop.
        for transport in self._transports:
            transport.abort()
        await asyncio.sleep(0)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if request.transport is not None:
            self._transports.add(request.transport)
        query = dict(request.query)
        self.asked.append(query)
        name = f"{request.match_info['pod']}/{request.match_info['container']}"
        name += "/previous" if query.get("previous") == "true" else ""
        if name not in self.containers:
            return web.Response(status=400, text=f'container "{name}" is waiting to start: ContainerCreating')
        container = self.containers[name]
        response = web.StreamResponse()
        response.content_type = "text/plain"
        await response.prepare(request)
        at = _beginning(container.printed, query.get("tailLines"))
        while True:
            is_over = container.is_over or query.get("follow") != "true"
            text, at = container.printed[at:], len(container.printed)
            if text:
                await response.write(text)
            if is_over:
                return response
            if at == len(container.printed) and not container.is_over:
                await container.moved()


def _beginning(text: bytes, lines: str | None) -> int:
    if lines is None:
        return 0
    whole = text.splitlines(keepends=True)
    return len(text) - sum(map(len, whole[max(0, len(whole) - int(lines)) :]))
