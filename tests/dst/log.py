"""The log that all replicas share, and each one's faulty way to it.

Rule: what is recorded is recorded at one instant, whole or not at all, by the rules that the real stores follow
(voda.log.append_plan); what its writer is told of it is another matter.
"""

import asyncio
import contextvars
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import Final

from tests.dst.wire import Trouble, Wire
from voda.domain.errors import StoreNotWritable, StoreUnavailable
from voda.events.codec import unseal
from voda.events.envelope import Event, Fact, Head, Sealed
from voda.log import append_plan
from voda.log.memory import MemoryStore
from voda.log.store import Snapshot, SnapshotStore, within_page

_TAIL_PAGE: Final = 1_000
_TOLD_S: Final = 0.02
"""Longest time until a reader hears that the log has grown."""
_LATE_S: Final = 15.0
"""The same, where tails lag."""
_EMPTY: Final = Head()

Committed = Callable[[Sequence[Event], str], None]


class SharedLog:
    """What is really recorded.

    Args:
        committed: is told of every append that changed something, at that instant, and by whom it was.
    """

    def __init__(self, committed: Committed) -> None:
        self.events: list[Event] = []
        self.sealed: list[Sealed] = []
        self.heads: dict[str, Head] = {}
        self.snapshots: list[Snapshot] = []
        self.ids: dict[str, int] = {}
        self.streams: dict[str, list[int]] = {}
        self.readers: list[Callable[[], None]] = []
        self._committed = committed

    @property
    def position(self) -> int:
        """Position of the last event."""
        return len(self.events)

    def commit(self, append: append_plan.Append, by: str) -> int:
        """Record an append; see EventStore.append."""
        parts = list(append_plan.parts_of([append]))
        ids = [fact.event_id for part in parts for fact in part.facts]
        known = {event_id: self.ids[event_id] for event_id in ids if event_id in self.ids}
        heads = {part.stream: self.heads[part.stream] for part in parts if part.stream in self.heads}
        plan = append_plan.plan_group([append], position=self.position, heads=heads, known=known)
        [outcome] = plan.outcomes
        if isinstance(outcome, Exception):
            raise outcome
        if plan.rows:
            self._keep(plan)
            self._committed(self.events[-len(plan.rows) :], by)
            for told in self.readers:
                told()
        return outcome

    def reader(self) -> MemoryStore:
        """Return a copy of the log that can be read by whoever proves it."""
        store = MemoryStore()
        # It waits for nothing, so it needs no loop.
        with suppress(StopIteration):
            store.take_over(append_plan.plan_copy(self.sealed), after=0).send(None)
        return store

    def _keep(self, plan: append_plan.GroupPlan) -> None:
        self.heads.update(plan.heads)
        for position, stream, _, event_id, _, _, body, digest in plan.rows:
            sealed = Sealed(position, body, digest)
            self.sealed.append(sealed)
            # Put into words once: events are frozen, and every reader would make the same of the bytes.
            self.events.append(unseal(sealed))
            self.ids[event_id] = position
            self.streams.setdefault(stream, []).append(position)


class _SnapshotsBeyondWire(SnapshotStore):
    def __init__(self, kept: list[Snapshot], wire: Wire) -> None:
        self._kept = kept
        self._wire = wire

    async def save(self, snapshot: Snapshot) -> None:
        await self._wire.ask(lambda: self._kept.append(snapshot), is_change=True)

    async def latest(self, name: str, *, at_most: int | None = None) -> Snapshot | None:
        def latest() -> Snapshot | None:
            named = [snapshot for snapshot in self._kept if snapshot.name == name]
            fitting = [snapshot for snapshot in named if at_most is None or snapshot.position <= at_most]
            return max(fitting, key=lambda snapshot: snapshot.position, default=None)

        return await self._wire.ask(latest)

    async def all(self) -> AsyncIterator[Snapshot]:
        for snapshot in await self._wire.ask(lambda: list(self._kept)):
            yield snapshot


class LogConnection:
    """An EventStore: one life of one replica's way to the log."""

    def __init__(
        self, log: SharedLog, loop: asyncio.AbstractEventLoop, chance: Random, trouble: Trouble, by: str
    ) -> None:
        self.wire = Wire(loop, chance, trouble, "store", lambda why: StoreUnavailable(f"the log: {why}"))
        self.snapshots: SnapshotStore = _SnapshotsBeyondWire(log.snapshots, self.wire)
        self._log = log
        self._loop = loop
        self._chance = chance
        self._trouble = trouble
        self._by = by
        self._grown = asyncio.Event()
        self._is_told = False
        self._nobody = contextvars.Context()
        log.readers.append(self._tell)

    async def append(self, stream: str, expected_version: int, facts: Sequence[Fact], *, epoch: int = 0) -> int:
        """See EventStore.append."""
        return await self.append_all([append_plan.Append(stream, expected_version, tuple(facts), epoch)])

    async def append_all(self, appends: Sequence[append_plan.Append]) -> int:
        """See EventStore.append_all."""
        append = append_plan.together(appends)
        append_plan.refuse_unstorable(append)
        return await self.wire.ask(lambda: self._commit(append), is_change=True, what=append.stream)

    async def read(self, after: int, limit: int, *, stream: str | None = None) -> Sequence[Event]:
        """See EventStore.read."""
        if stream is None:
            return await self.wire.ask(lambda: self._log.events[after : after + limit])
        return await self.wire.ask(lambda: self._of(stream, after, limit))

    async def page_size(self, after: int, limit: int, *, stream: str | None = None) -> int:
        """See EventStore.page_size."""
        positions = range(1, len(self._log.sealed) + 1) if stream is None else self._log.streams.get(stream, [])
        next_ones = positions[bisect_right(positions, after) :][:limit]
        return within_page([len(self._log.sealed[position - 1].body) for position in next_ones], limit)

    async def read_sealed(self, after: int, limit: int) -> Sequence[Sealed]:
        """See EventStore.read_sealed."""
        return await self.wire.ask(lambda: self._log.sealed[after : after + limit])

    async def tail(self, after: int) -> AsyncIterator[Event]:
        """See EventStore.tail; as the real ones do, it goes on by itself once the log is back."""
        while True:
            grown = self._grown
            events: Sequence[Event] = ()
            try:
                events = await self.read(after, _TAIL_PAGE)
            except StoreUnavailable:
                await asyncio.sleep(1.0)
                continue
            for event in events:
                after = event.position
                yield event
            if len(events) < _TAIL_PAGE:
                await grown.wait()

    async def position(self) -> int:
        """See EventStore.position."""
        return await self.wire.ask(lambda: self._log.position)

    async def head(self, stream: str) -> Head:
        """See EventStore.head."""
        return await self.wire.ask(lambda: self._log.heads.get(stream, _EMPTY))

    async def heads(self) -> Mapping[str, Head]:
        """See EventStore.heads."""
        return await self.wire.ask(lambda: dict(self._log.heads))

    async def ends(self) -> tuple[int, Mapping[str, Head]]:
        """Return the position of the last event and every stream's head, both seen at one instant."""
        return await self.wire.ask(lambda: (self._log.position, dict(self._log.heads)))

    async def close(self) -> None:
        """See EventStore.close."""
        self.sever()

    def sever(self) -> None:
        """Let nothing pass any more, in neither direction; what is under way to the log still arrives."""
        self.wire.is_dead = True
        if self._tell in self._log.readers:
            self._log.readers.remove(self._tell)

    def _commit(self, append: append_plan.Append) -> int:
        share = self._trouble.share("store_full")
        if share and self._chance.random() < share:
            raise StoreNotWritable("the log: its disk is full")
        return self._log.commit(append, self._by)

    def _of(self, stream: str, after: int, limit: int) -> Sequence[Event]:
        positions = self._log.streams.get(stream, [])
        first = bisect_right(positions, after)
        return [self._log.events[position - 1] for position in positions[first : first + limit]]

    def _tell(self) -> None:
        """Have the tails look, a moment later."""
        if not self._is_told:
            self._is_told = True
            late = self._chance.random() < self._trouble.share("tail_lag")
            span_s = (_LATE_S if late else _TOLD_S) * self._chance.random()
            self._loop.call_later(span_s, self._hear, context=self._nobody)

    def _hear(self) -> None:
        self._is_told = False
        self._grown.set()
        # Another one for what comes next: there are several tails, of which none may take the word from the others.
        self._grown = asyncio.Event()
