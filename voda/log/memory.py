"""A log in memory: the store of simulations, and the reference for the contract suite."""

from bisect import bisect_right
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence

from voda.events.codec import unseal
from voda.events.envelope import Event, Head, Sealed
from voda.log.append_plan import Append, EventRow, GroupPlan, refuse_unstorable, seal_together, together
from voda.log.store import Base, DurableStore, Snapshot, SnapshotStore, refuse_other_end, within_page
from voda.log.tail import TAIL_PAGE, GrowthSignal

_EMPTY = Head()
_DIGEST_BYTES = 32
"""Of SHA-256."""


class MemorySnapshots(SnapshotStore):
    """A SnapshotStore that keeps every snapshot."""

    def __init__(self) -> None:
        self._snapshots: list[Snapshot] = []

    async def save(self, snapshot: Snapshot) -> None:
        self._snapshots.append(snapshot)

    async def latest(self, name: str, *, at_most: int | None = None) -> Snapshot | None:
        named = [snapshot for snapshot in self._snapshots if snapshot.name == name]
        fitting = [snapshot for snapshot in named if at_most is None or snapshot.position <= at_most]
        return max(fitting, key=lambda snapshot: snapshot.position, default=None)

    async def all(self) -> AsyncIterator[Snapshot]:
        for snapshot in sorted(self._snapshots, key=lambda snapshot: (snapshot.position, snapshot.name)):
            yield snapshot


class _SealedEvents:
    """Events by their positions: bodies and raw digests, because a simulation has a million of them."""

    def __init__(self) -> None:
        self._bodies: list[bytes] = []
        self._digests = bytearray()
        self._after = 0
        """Position of the last event forgotten."""

    @property
    def end(self) -> int:
        return self._after + len(self._bodies)

    def add(self, body: bytes, digest: str) -> None:
        self._bodies.append(body)
        self._digests += bytes.fromhex(digest)

    def at(self, position: int) -> Sealed:
        index = position - self._after - 1
        digest = self._digests[index * _DIGEST_BYTES : (index + 1) * _DIGEST_BYTES]
        return Sealed(position, self._bodies[index], digest.hex())

    def forget(self, until: int) -> None:
        count = until - self._after
        del self._bodies[:count], self._digests[: count * _DIGEST_BYTES]
        self._after = until


class MemoryStore(DurableStore):
    """A DurableStore in all but durability: it ends with the process."""

    place = "memory"

    def __init__(self) -> None:
        self.snapshots = MemorySnapshots()
        self._events = _SealedEvents()
        self._heads: dict[str, Head] = {}
        self._ids: dict[str, int] = {}
        self._in_stream: dict[str, list[int]] = {}
        self._growth = GrowthSignal()
        self._base = Base()

    async def append_all(self, appends: Sequence[Append]) -> int:
        whole = together(appends)
        refuse_unstorable(whole)
        rows, heads = seal_together(whole, lambda stream: self._heads.get(stream, _EMPTY), self._events.end, self._ids)
        if rows:
            self._keep(rows)
            self._heads.update(heads)
            self._growth.wake()
        return max(self._ids[append.facts[-1].event_id] for append in appends)

    async def read(self, after: int, limit: int, *, stream: str | None = None) -> Sequence[Event]:
        return [unseal(sealed) for sealed in self._page(after, limit, stream)]

    async def page_size(self, after: int, limit: int, *, stream: str | None = None) -> int:
        return within_page([len(sealed.body) for sealed in self._page(after, limit, stream)], limit)

    async def read_sealed(self, after: int, limit: int) -> Sequence[Sealed]:
        return self._page(after, limit)

    def tail(self, after: int) -> AsyncIterator[Event]:
        return self._growth.tail(after, lambda behind: self.read(behind, TAIL_PAGE), poll_s=None)

    async def position(self) -> int:
        return self._events.end

    async def head(self, stream: str) -> Head:
        return self._heads.get(stream, _EMPTY)

    async def ends(self) -> tuple[int, Mapping[str, Head]]:
        return self._events.end, dict(self._heads)

    async def refuse_cut(self) -> None:
        """See DurableStore.refuse_cut."""

    async def take_over(self, plan: GroupPlan, *, after: int) -> None:
        refuse_other_end(self.place, self._events.end, after)
        self._keep(plan.rows)
        self._heads.update(plan.heads)
        self._growth.wake()

    async def base(self) -> Base:
        return self._base

    async def forget(self, base: Base) -> None:
        base.refuse_beyond("the log", self._events.end)
        if base.position <= self._base.position:
            return
        self._events.forget(base.position)
        self._base = base
        self._ids = {event_id: position for event_id, position in self._ids.items() if position > base.position}
        for positions in self._in_stream.values():
            del positions[: bisect_right(positions, base.position)]

    async def close(self) -> None:
        """See EventStore.close."""

    def _page(self, after: int, limit: int, stream: str | None = None) -> Sequence[Sealed]:
        self._base.refuse_archived(self.place, after, stream)
        if stream is None:
            positions: Sequence[int] = range(after + 1, min(after + limit, self._events.end) + 1)
        else:
            positions = self._in_stream.get(stream, [])
            positions = positions[(first := bisect_right(positions, after)) : first + limit]
        return [self._events.at(position) for position in positions]

    def _keep(self, rows: Iterable[EventRow]) -> None:
        for position, stream, _, event_id, _, _, body, digest in rows:
            self._events.add(body, digest)
            self._ids[event_id] = position
            self._in_stream.setdefault(stream, []).append(position)
