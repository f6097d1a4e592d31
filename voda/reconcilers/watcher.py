"""The watcher: what the cluster shows becomes events.

Rule: an observation is recorded as it was seen; whether it was wished for is not the watcher's business.
"""

from collections.abc import Iterable

from voda.clock import Clock
from voda.cluster.port import Cluster, Notice
from voda.events.envelope import ANY_VERSION, Fact
from voda.log.store import EventStore


class Watcher:
    """Writes a cluster's notices to the log."""

    def __init__(self, *, store: EventStore, clock: Clock, actor: str = "watcher") -> None:
        self._store = store
        self._clock = clock
        self._actor = actor

    async def record(self, notices: Iterable[Notice]) -> int:
        """Append the notices in their order and return how many there were."""
        count = 0
        for notice in notices:
            await self.append(self.fact(notice))
            count += 1
        return count

    def fact(self, notice: Notice) -> Fact:
        """Return what is to be recorded of a notice; recorded again, it is in the log once."""
        return Fact(data=notice, event_id=self._clock.new_id(), recorded_at=self._clock.now(), actor=self._actor)

    async def append(self, fact: Fact) -> None:
        """Append one fact to the stream of what it tells."""
        await self._store.append(fact.data.stream, ANY_VERSION, [fact])

    async def run(self, cluster: Cluster) -> None:
        """Record what the cluster shows for as long as it shows anything."""
        async for notice in cluster.watch():
            await self.record([notice])
