"""The stream of a pool's decisions, as its leader writes it.

Rule: one writer; its epoch makes the store refuse the leaders before it.
"""

from collections.abc import Sequence
from typing import Final

from voda.clock import Clock
from voda.domain.errors import Fenced, VersionConflict
from voda.events import types as facts
from voda.events.envelope import ANY_VERSION, Event, Fact
from voda.log.append_plan import Append
from voda.log.store import EventStore

_BATCH: Final = 500
"""Jobs whose facts are one append."""


class DecisionStream:
    """Appends what the controller of one pool decides."""

    def __init__(self, pool: str, store: EventStore, clock: Clock) -> None:
        self.name = f"decisions.{pool}"
        self.epoch = 0
        self._pool = pool
        self._store = store
        self._clock = clock
        self._version = 0
        self._election: Fact | None = None
        """The fact that begins the epoch; the same one again after a lost answer."""

    async def elect(self, leader: str, epoch: int | None) -> None:
        """Begin an epoch, None = the next one, or go on in the present one.

        Raises:
            Fenced: another leader has led the pool in this epoch, or in a later one.
            VersionConflict: another candidate was faster.
        """
        head = await self._store.head(self.name)
        if epoch is None or epoch != self.epoch:
            if epoch is not None and head.epoch >= epoch:
                raise Fenced(
                    f"pool {self._pool}: {leader} was to lead in epoch {epoch}, but epoch {head.epoch} has begun"
                )
            self.epoch = head.epoch + 1 if epoch is None else epoch
            self._election = self._fact(facts.LeaderElected(pool=self._pool, leader=leader))
        assert self._election is not None, "an epoch begins with an election"
        # If an answer is lost, append the same fact again: the log takes it once.
        try:
            await self._store.append(self.name, head.version, [self._election], epoch=self.epoch)
        except VersionConflict:
            self.epoch = 0
            raise
        head = await self._store.head(self.name)
        if head.epoch != self.epoch:
            raise Fenced(f"pool {self._pool}: epoch {self.epoch} was followed by epoch {head.epoch}")
        self._version = head.version

    def see(self, event: Event) -> None:
        """Note an event of the stream: after a lost answer only the log says that the append succeeded."""
        if event.epoch == self.epoch:
            self._version = event.version

    async def append(self, data: Sequence[facts.AnyFact], *, at: float | None = None) -> None:
        """Append decisions of one instant, by default now; raises Fenced where another leader took over."""
        records = [self._fact(one, at=at) for one in data]
        await self._store.append(self.name, self._version, records, epoch=self.epoch)
        self._version += len(records)

    async def append_to_jobs(self, data: Sequence[tuple[facts.AnyFact, str]]) -> None:
        """Append one fact to each of several jobs, many at a time; those of a batch all or none.

        With each comes its event's id, empty = a new one.
        """
        appends = [Append(one.stream, ANY_VERSION, [self._fact(one, event_id)], 0) for one, event_id in data]
        for begin in range(0, len(appends), _BATCH):
            await self._store.append_all(appends[begin : begin + _BATCH])

    def _fact(self, data: facts.AnyFact, event_id: str = "", *, at: float | None = None) -> Fact:
        event_id, at = event_id or self._clock.new_id(), self._clock.now() if at is None else at
        return Fact(data=data, event_id=event_id, recorded_at=at, actor=f"controller/{self._pool}")
