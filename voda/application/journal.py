"""The log as use cases work with it: what they record, and the state that is folded from it.

Rule: what was recorded is folded once `record` returns (read your writes).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from voda.auth.write_quota import WriteQuota, size_of
from voda.clock import Clock
from voda.domain.plan import ExpectedTimes
from voda.events.envelope import ANY_VERSION, Event, Fact
from voda.events.types import AnyFact
from voda.log.store import EventStore
from voda.projections.cluster.live_cluster import LiveCluster
from voda.projections.jobs.registry import JobRegistry


class JournalView(Protocol):
    """The state that is folded from the log as it grows, and the forecasts made from it."""

    cluster: LiveCluster
    job_registry: JobRegistry
    forecasts: Mapping[str, ExpectedTimes]
    """job id -> forecast; replaced as a whole."""
    forecast_at: float | None

    @property
    def position(self) -> int:
        """Of the last event that is folded."""

    def subscribe(self, seen: Callable[[Event], None]) -> None:
        """Call `seen` with every event that is appended from now on, once it is folded."""

    async def wait_for(self, position: int) -> None:
        """Return once the log is folded up to `position`; raises StoreUnavailable where it is not in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """The log, the view that follows it, and the clock of its facts."""

    store: EventStore
    clock: Clock
    view: JournalView
    quota: WriteQuota = field(default_factory=WriteQuota)

    async def record(
        self, *facts: AnyFact, actor: str, payer: str = "", version: int = ANY_VERSION, event_id: str = ""
    ) -> int:
        """Append facts of one stream, at least one, and return the position once the view has folded them.

        An `event_id` is that of a single fact; empty = a new one. `payer` is the user whom they are charged to; empty:
        nobody.

        Raises:
            QuotaExceeded: the user has written as much as one may.
            VersionConflict: the stream has another version.
            StoreUnavailable: the log does not answer.
            StoreNotWritable: the log cannot be written.
        """
        clock, known = self.clock, self.view.position
        with self.quota.charged(payer, sum(map(size_of, facts)) if payer else 0, clock.now()) as give_back:
            made = [
                Fact(data=fact, event_id=event_id or clock.new_id(), recorded_at=clock.now(), actor=actor)
                for fact in facts
            ]
            position = await self.store.append(facts[0].stream, version, made)
            if position <= known:
                # Of an event that was there already.
                give_back()
        await self.view.wait_for(position)
        return position

    async def catch_up(self) -> None:
        """Return once the view has folded the log to its present end."""
        await self.view.wait_for(await self.store.position())
