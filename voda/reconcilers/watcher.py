"""The watcher appends the cluster's notices to the log as events.

Rule: it records every observation, expected or not.
"""

from collections.abc import Iterable, Sequence

from voda.clock import Clock
from voda.cluster.port import Notice
from voda.events.envelope import ANY_VERSION, Fact
from voda.log.append_plan import Append
from voda.log.store import EventStore


class Watcher:
    """Writes down what a cluster shows.

    Args:
        store: the log.
        clock: of the service.
        actor: of the facts.
    """

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
        """Return the fact of a notice; the log takes it once, however often it is appended."""
        return Fact(data=notice, event_id=self._clock.new_id(), recorded_at=self._clock.now(), actor=self._actor)

    async def append(self, fact: Fact) -> None:
        await self._store.append(fact.data.stream, ANY_VERSION, [fact])

    async def append_all(self, facts: Sequence[Fact]) -> None:
        """Append facts of different streams, all or none."""
        await self._store.append_all([Append(fact.data.stream, ANY_VERSION, [fact], 0) for fact in facts])
