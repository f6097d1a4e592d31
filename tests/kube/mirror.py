"""What the API server holds of one resource, kept up to date by list and watch, and a queue of what to look at.

Rule: whoever uses both acts on what is there now, never on the event that told of it; a server that is away
for a while is asked again.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable

import aiohttp

from tests.kube.client import Client, Key, Object, Refused, Resource, key_of

_AGAIN_S = 0.05
FIRST_DELAY_S = 0.005
LONGEST_DELAY_S = 1_000.0
"""Of the failures in a row of a key, as client-go limits them."""
TRANSIENT = (Refused, aiohttp.ClientError, TimeoutError, OSError)
"""What may be otherwise the next time."""


class Mirror:
    """See the module.

    Args:
        client: the API server's.
        resource: which.
        labels: label selector.
        fields: field selector.
        group: tells what an object belongs to (see `of`), None = nothing.
    """

    def __init__(
        self,
        client: Client,
        resource: Resource,
        *,
        labels: str = "",
        fields: str = "",
        group: Callable[[Object], Key | None] = lambda thing: None,
    ) -> None:
        self._client = client
        self._resource = resource
        self._query = {name: value for name, value in (("labelSelector", labels), ("fieldSelector", fields)) if value}
        self._group = group
        self._groups: dict[Key, dict[Key, Object]] = defaultdict(dict)
        self.objects: dict[Key, Object] = {}
        self.on_change: Callable[[Object, bool], None] = lambda thing, is_there: None
        self.is_synced = asyncio.Event()

    def get(self, key: Key) -> Object | None:
        """Return an object as it was last heard of."""
        return self.objects.get(key)

    def of(self, group: Key) -> list[Object]:
        """Return the objects that belong to something."""
        return list(self._groups[group].values()) if group in self._groups else []

    async def run(self) -> None:
        """Follow the API server for ever."""
        while True:
            try:
                await self._follow(await self._list())
            except TRANSIENT:
                await asyncio.sleep(_AGAIN_S)

    async def _list(self) -> str:
        listed = await self._client.request("GET", self._resource.path(), self._query)
        items = {key_of(item): item for item in listed["items"]}
        for key in self.objects.keys() - items.keys():
            self._drop(self.objects[key])
        for key, item in items.items():
            if self.objects.get(key) != item:
                self._keep(item)
        self.is_synced.set()
        return str(listed["metadata"]["resourceVersion"])

    async def _follow(self, version: str) -> None:
        while True:
            async for kind, thing in self._client.watch(self._resource, version, **self._query):
                version = thing["metadata"]["resourceVersion"]
                if kind == "DELETED":
                    self._drop(thing)
                elif kind != "BOOKMARK":
                    self._keep(thing)

    def _keep(self, thing: Object) -> None:
        key, group = key_of(thing), self._group(thing)
        self.objects[key] = thing
        if group is not None:
            self._groups[group][key] = thing
        self.on_change(thing, True)

    def _drop(self, thing: Object) -> None:
        key, group = key_of(thing), self._group(thing)
        self.objects.pop(key, None)
        if group is not None and group in self._groups:
            self._groups[group].pop(key, None)
            if not self._groups[group]:
                del self._groups[group]
        self.on_change(thing, False)


class Queue:
    """Keys to look at: each once however often it is added, and by one worker at a time.

    A key is delayed for twice as long with each failure in a row, as by the work queues of client-go.

    Args:
        limits_events: whether each event counts as a failure does until the next success, as in mpi-operator: after a
            burst of events one failure costs minutes.
        longest_s: longest delay.
    """

    def __init__(self, *, limits_events: bool = False, longest_s: float = LONGEST_DELAY_S) -> None:
        self._limits_events = limits_events
        self._longest_s = longest_s
        self._ready: asyncio.Queue[Key] = asyncio.Queue()
        self._waiting: set[Key] = set()
        self._active: set[Key] = set()
        self._failures: dict[Key, int] = {}
        self._timers: dict[Key, asyncio.TimerHandle] = {}

    def see(self, key: Key) -> None:
        """Have a key looked at because of an event."""
        if self._limits_events:
            self.add_delayed(key)
        else:
            self.add(key)

    def add_delayed(self, key: Key) -> None:
        """Have a key looked at, the later the more often this was asked for since it was looked at with success."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        self.add_after(key, min(self._longest_s, FIRST_DELAY_S * 2.0 ** min(failures, 64)))

    def add(self, key: Key) -> None:
        """Have a key looked at."""
        if key in self._waiting:
            return
        self._waiting.add(key)
        if key not in self._active:
            self._ready.put_nowait(key)

    def add_after(self, key: Key, delay_s: float) -> None:
        """Have a key looked at in a while; of several delays of a key the one that is over first counts."""
        loop, timer = asyncio.get_running_loop(), self._timers.get(key)
        if timer is not None and timer.when() <= loop.time() + delay_s:
            return
        if timer is not None:
            timer.cancel()

        def due() -> None:
            del self._timers[key]
            self.add(key)

        self._timers[key] = loop.call_later(delay_s, due)

    async def run(self, look: Callable[[Key], Awaitable[None]], workers: int) -> None:
        """Look at what is added, for ever; what fails for a transient reason is looked at again."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(workers):
                    tasks.create_task(self._work(look))
        finally:
            for timer in self._timers.values():
                timer.cancel()

    async def _work(self, look: Callable[[Key], Awaitable[None]]) -> None:
        while True:
            key = await self._ready.get()
            self._waiting.discard(key)
            self._active.add(key)
            try:
                await look(key)
                self._failures.pop(key, None)
            except TRANSIENT:
                self.add_delayed(key)
            self._active.discard(key)
            if key in self._waiting:
                self._ready.put_nowait(key)
