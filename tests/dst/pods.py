"""The pods that share GPUs: what the API server really has, and a replica's way to it and late sight of it.

Rules: the server is the strict one of tests.kube, which answers at one instant; whatever delays or loses something is
the replica's wire. A sight is late, never out of order, and stands still while the wire is cut.
"""

import asyncio
import contextvars
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import Any, Final, cast

import msgspec
from aiohttp import ClientResponse

from tests.dst.wire import Trouble, Wire
from tests.kube.client import PODS, Key, Object, Refused, key_of
from tests.kube.memory_server import Change, MemoryServer, refusal_body
from voda.cluster.kubernetes.objects import Pod
from voda.cluster.kubernetes.state.shared_gpus import SHARE_RESOURCES
from voda.cluster.kubernetes.state.sharing_pods import GpuPods
from voda.domain.errors import ClusterUnavailable
from voda.kubernetes_client.api import Api
from voda.kubernetes_client.errors import error_of, parse_status
from voda.kubernetes_client.transport import Request, Transport

_TOLD_S: Final = 0.05
_LAG_S: Final = 8.0
_AGAIN_S: Final = 1.0
_TIMEOUT_S: Final = 15.0
NAMESPACE: Final = "ns"


class TruePods:
    """The API server of a world, as far as pods are concerned."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.server = MemoryServer(now, [])
        self.listeners: list[Callable[[Change], None]] = []
        self.server.on_change = self._tell

    @property
    def all(self) -> Mapping[Key, Object]:
        """Return the pods that are there."""
        return self.server.objects[PODS]

    def ask(self, method: str, name: str = "", body: Any = None, *, subresource: str = "") -> None:
        """Change a pod for somebody who is not voda; what is refused changes nothing."""
        try:
            self.server.answer(method, PODS.path(NAMESPACE, name, subresource), {}, body)
        except Refused:
            return

    def _tell(self, change: Change) -> None:
        for listener in list(self.listeners):
            listener(change)


class PodConnection:
    """One life of one replica: voda's own Api over its wire, and what it has seen of the pods."""

    def __init__(self, truth: TruePods, loop: asyncio.AbstractEventLoop, chance: Random, trouble: Trouble) -> None:
        self.wire = Wire(loop, chance, trouble, "cluster", lambda why: ClusterUnavailable(f"the API server: {why}"))
        self.api: Api = _WiredApi(truth.server, self.wire)
        self.sight = GpuPods(SHARE_RESOURCES)
        self._truth = truth
        self._loop = loop
        self._chance = chance
        self._trouble = trouble
        self._coming: deque[Change] = deque()
        self._due_s = 0.0
        self._seen: dict[Key, Pod] = {}
        self._nobody = contextvars.Context()
        for pod in truth.all.values():
            self._see(pod, is_there=True)
        truth.listeners.append(self._hear)

    def sever(self) -> None:
        """Let nothing pass any more; what is under way to the server still arrives."""
        self.wire.is_dead = True
        if self._hear in self._truth.listeners:
            self._truth.listeners.remove(self._hear)

    def _hear(self, change: Change) -> None:
        if change.resource != PODS:
            return
        is_late = self._chance.random() < self._trouble.share("cluster_lag")
        lag_s = _TOLD_S + (_LAG_S * self._chance.random() if is_late else 0.0)
        self._due_s = max(self._due_s, self._loop.time() + lag_s)
        self._coming.append(change)
        self._loop.call_at(self._due_s, self._arrive, context=self._nobody)

    def _arrive(self) -> None:
        if self.wire.is_dead:
            return
        if self.wire.is_cut:
            self._loop.call_later(_AGAIN_S, self._arrive, context=self._nobody)
            return
        change = self._coming.popleft()
        self._see(change.object, is_there=change.type != "DELETED")

    def _see(self, pod: Object, *, is_there: bool) -> None:
        now = msgspec.convert(pod, Pod) if is_there else None
        self.sight.put(self._seen.pop(key_of(pod), None), now)
        if now is not None:
            self._seen[key_of(pod)] = now


class _WiredApi(Api):
    """Voda's Api of the world's server."""

    def __init__(self, server: MemoryServer, wire: Wire) -> None:
        self.host = "world"
        self._transport = _WiredTransport(server, wire)


class _WiredTransport(Transport):
    """Every request is one of the wire's."""

    def __init__(self, server: MemoryServer, wire: Wire) -> None:
        self.timeout_s = _TIMEOUT_S
        self._server = server
        self._wire = wire

    @asynccontextmanager
    async def opened(
        self, request: Request, *, total_s: float | None = None, silence_s: float | None = None
    ) -> AsyncGenerator[ClientResponse, None]:
        """See Transport.opened."""
        del total_s, silence_s
        try:
            async with asyncio.timeout(self.timeout_s):
                text = await self._wire.ask(lambda: self._answer(request), is_change=request.method != "GET")
        except TimeoutError as late:
            raise ClusterUnavailable(f"cannot {request.text}: it takes too long") from late
        yield cast(ClientResponse, _Body(text))

    def _answer(self, request: Request) -> bytes:
        body = None if request.body is None else msgspec.json.decode(msgspec.json.encode(request.body))
        try:
            return msgspec.json.encode(self._server.answer(request.method, request.path, request.query, body))
        except Refused as refused:
            said = parse_status(refused.status, msgspec.json.encode(refusal_body(refused)))
            raise error_of(request.text, said) from refused


class _Body:
    """The answer, in one piece."""

    def __init__(self, text: bytes) -> None:
        self.content = self
        self._text = text

    async def iter_any(self) -> AsyncGenerator[bytes, None]:
        """Return it."""
        yield self._text
