"""Stages for the controller and the loop of a pool: a log, a clock, and what is built on both."""

from collections.abc import Callable, Sequence
from typing import Any

from tests.virtual_time import now_s
from voda.clock import Clock
from voda.cluster.port import Cluster
from voda.controller.controller import Controller
from voda.controller.pool_loop import PoolLoop
from voda.events.envelope import ANY_VERSION, Event, Fact
from voda.events.types import AnyFact
from voda.log.store import EventStore
from voda.placement import PLACERS
from voda.policies import POLICIES, Policy
from voda.reconcilers.watcher import Watcher


class LoopClock:
    """The loop's own time."""

    def __init__(self) -> None:
        self._ids = 0

    def now(self) -> float:
        return round(now_s(), 6)

    def time_of_day(self) -> float:
        return self.now()

    def new_id(self) -> str:
        self._ids += 1
        return f"{self._ids:x}"


class LogStage:
    """A log that a test adds facts to."""

    store: EventStore
    clock: Clock

    async def add(self, *facts: AnyFact) -> None:
        """Record facts at the clock's instant, one after the other."""
        for data in facts:
            fact = Fact(data=data, event_id=self.clock.new_id(), recorded_at=self.clock.now())
            await self.store.append(data.stream, ANY_VERSION, [fact])

    async def recorded(self, *kinds: type) -> Sequence[Event]:
        """Return the events of these types of facts."""
        return [event for event in await self.store.read(0, 10_000) if isinstance(event.data, kinds)]

    def a_controller(
        self, *, pool: str = "default", policies: Callable[[str], Policy] = POLICIES.choose, **fields: Any
    ) -> Controller:
        """Return a controller on this log."""
        return Controller(
            pool=pool, store=self.store, clock=self.clock, policies=policies, placers=PLACERS.choose, **fields
        )

    def a_loop(
        self, cluster: Cluster, *, policies: Callable[[str], Policy] = POLICIES.choose, **fields: Any
    ) -> PoolLoop:
        """Return the loop of the pool `default` on this log and a cluster."""
        return PoolLoop(
            clock=self.clock,
            cluster=cluster,
            controller=self.a_controller(policies=policies),
            watcher=Watcher(store=self.store, clock=self.clock),
            **fields,
        )
