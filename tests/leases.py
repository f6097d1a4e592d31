"""Leases without a server, with its compare-and-swap; and an API server that is away for some.

Rule: what is promised of it is what tests/integration/kubernetes/test_lease.py proves of the real one.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from voda.domain.errors import ClusterUnavailable
from voda.kubernetes_client.api import Api, ObjectList, WatchEvent
from voda.kubernetes_client.errors import Conflict

T = TypeVar("T")
LATENCY_S = 0.01


class Objects:
    """What the API servers of a cluster share: objects by path, and whoever watches them."""

    def __init__(self) -> None:
        self.kept: dict[str, dict[str, Any]] = {}
        self.history: list[tuple[str, str, Mapping[str, Any]]] = []
        """(kind of change, path, object) by resource version, from 1 on."""
        self._grown = asyncio.Event()

    @property
    def version(self) -> int:
        return len(self.history)

    def put(self, path: str, body: Mapping[str, Any]) -> None:
        """Set an object, as anybody with the rights may do by hand."""
        kind = "MODIFIED" if path in self.kept else "ADDED"
        metadata = {**body.get("metadata", {}), "resourceVersion": str(self.version + 1)}
        self.kept[path] = {**body, "metadata": metadata}
        self._tell(kind, path)

    def remove(self, path: str) -> None:
        """Delete an object by hand."""
        if path in self.kept:
            self._tell("DELETED", path)
            del self.kept[path]

    async def grown(self, beyond: int) -> None:
        while self.version <= beyond:
            await self._grown.wait()

    def _tell(self, kind: str, path: str) -> None:
        self.history.append((kind, path, dict(self.kept[path])))
        self._grown.set()
        self._grown = asyncio.Event()


class MemoryApi(Api):
    """One candidate's way to the objects."""

    def __init__(self, objects: Objects) -> None:
        self.objects = objects
        self.is_away = False
        """Whether requests hang, and watches tell nothing."""
        self.is_deaf = False
        """Whether watches tell nothing, though all else works."""
        self.loses_answers = False
        """Whether requests are heeded, but the answers never arrive."""
        self.answered: Callable[[str], None] = lambda verb: None

    async def get(self, path: str, kind: type[T]) -> T | None:
        await self._travel()
        found = self.objects.kept.get(path)
        return await self._return("get", None if found is None else msgspec.convert(found, kind))

    async def list(self, path: str, kind: type[T], query: Mapping[str, str] | None = None) -> ObjectList[T]:
        await self._travel()
        items = [msgspec.convert(body, kind) for key, body in self.objects.kept.items() if key.startswith(path)]
        return await self._return("list", ObjectList(items=items, resource_version=str(self.objects.version)))

    async def watch(
        self,
        path: str,
        kind: type[T],
        *,
        after: str,
        query: Mapping[str, str] | None = None,
        opened: Callable[[], None] | None = None,
    ) -> AsyncGenerator[WatchEvent[T], None]:
        reached = int(after)
        while True:
            await self.objects.grown(reached)
            await self._travel()
            while self.is_deaf:  # noqa: ASYNC110 - on virtual time
                await asyncio.sleep(0.1)
            for version in range(reached + 1, self.objects.version + 1):
                change, key, body = self.objects.history[version - 1]
                if key.startswith(path):
                    # Old news come one by one, so that whoever believes them acts on them.
                    await asyncio.sleep(LATENCY_S)
                    yield WatchEvent(type=change, object=msgspec.convert(body, kind), resource_version=str(version))  # type: ignore[arg-type]
                reached = version

    async def create(self, path: str, body: Mapping[str, Any], kind: type[T]) -> T:
        await self._travel()
        key = f"{path}/{body['metadata']['name']}"
        if key in self.objects.kept:
            raise Conflict(f"{key} is there already")
        self.objects.put(key, body)
        return await self._return("create", msgspec.convert(self.objects.kept[key], kind))

    async def patch(self, path: str, body: Mapping[str, Any], kind: type[T]) -> T | None:
        await self._travel()
        found = self.objects.kept.get(path)
        if found is None:
            return None
        if body["metadata"]["resourceVersion"] != found["metadata"]["resourceVersion"]:
            raise Conflict(f"{path} changed")
        self.objects.put(path, {**found, "spec": {**found["spec"], **body["spec"]}})
        return await self._return("patch", msgspec.convert(self.objects.kept[path], kind))

    async def _travel(self) -> None:
        if self.is_away:
            # Longer than anybody waits for an answer; what is sent on then is not heeded any more.
            await asyncio.sleep(3600.0)
            raise ClusterUnavailable("the server is away")
        await asyncio.sleep(LATENCY_S)

    async def _return(self, verb: str, answer: T) -> T:
        await asyncio.sleep(LATENCY_S)
        if self.loses_answers:
            await asyncio.sleep(3600.0)
        self.answered(verb)
        return answer


async def ended(task: "asyncio.Task[Any]") -> None:
    """Cancel a task and wait for it."""
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
