"""A log in memory: the store of simulations, and the reference for the contract suite."""

from bisect import bisect_right
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence

from voda.domain.errors import InvalidInput
from voda.events.codec import body_of, unseal
from voda.events.envelope import Event, Fact, Head, Sealed
from voda.log.append_plan import Append, EventRow, GroupPlan, refuse_unstorable, row_of, seal_batch
from voda.log.durable_store import Base, DurableStore, archived_error, refuse_other_end
from voda.log.store import Snapshot
from voda.log.tail import TAIL_PAGE, GrowthSignal

_EMPTY = Head()
_DIGEST_BYTES = 32
"""Of SHA-256."""


class MemoryStore(DurableStore):
    """A DurableStore in all but durability: it ends with the process."""

    place = "memory"

    def __init__(self) -> None:
        # Bodies and raw digests rather than sealed events: a simulation keeps a million of them.
        self._bodies: list[bytes] = []
        self._digests = bytearray()
        self._heads: dict[str, Head] = {}
        self._ids: dict[str, int] = {}
        self._in_stream: dict[str, list[int]] = {}
        self._snapshots: dict[str, list[Snapshot]] = {}
        self._growth = GrowthSignal()
        self._base = Base()

    async def append(self, stream: str, expected_version: int, facts: Sequence[Fact], *, epoch: int = 0) -> int:
        head = self._heads.get(stream, _EMPTY)
        batch = Append(stream, expected_version, facts, epoch)
        refuse_unstorable(batch)
        rows, head = seal_batch(batch, head, position=self._end, recorded=self._ids)
        if rows:
            self._keep(rows)
            self._heads[stream] = head
            self._growth.wake()
        return self._ids[facts[-1].event_id]

    async def restore(self, batches: Iterator[GroupPlan]) -> None:
        """Take over the events of another log, all or nothing.

        Raises:
            InvalidInput: this log is not empty.
        """
        if self._end:
            raise InvalidInput(f"the log is not empty: it has {self._end} events")
        for batch in list(batches):
            self._keep(batch.rows)
            self._heads.update(batch.heads)
        self._growth.wake()

    async def read(self, after: int, limit: int, *, stream: str | None = None) -> Sequence[Event]:
        if stream is None:
            return [unseal(sealed) for sealed in self._sealed(after, limit)]
        self._refuse_archived(after, stream)
        positions = self._in_stream.get(stream, [])
        first = bisect_right(positions, after)
        return [unseal(self._at(position)) for position in positions[first : first + limit]]

    async def read_sealed(self, after: int, limit: int) -> Sequence[Sealed]:
        return self._sealed(after, limit)

    def tail(self, after: int) -> AsyncIterator[Event]:
        return self._growth.tail(after, lambda behind: self.read(behind, TAIL_PAGE), poll_s=None)

    async def position(self) -> int:
        return self._end

    async def head(self, stream: str) -> Head:
        return self._heads.get(stream, _EMPTY)

    async def heads(self) -> Mapping[str, Head]:
        return dict(self._heads)

    async def save_snapshot(self, snapshot: Snapshot) -> None:
        self._snapshots.setdefault(snapshot.name, []).append(snapshot)

    async def latest_snapshot(self, name: str, *, at_most: int | None = None) -> Snapshot | None:
        kept = self._snapshots.get(name, ())
        fitting = [snapshot for snapshot in kept if at_most is None or snapshot.position <= at_most]
        return max(fitting, key=lambda snapshot: snapshot.position, default=None)

    async def ends(self) -> tuple[int, Mapping[str, Head]]:
        return self._end, dict(self._heads)

    async def read_rows(self, after: int, limit: int) -> Sequence[EventRow]:
        return [row_of(sealed, body_of(sealed)) for sealed in self._sealed(after, limit)]

    async def snapshots(self) -> AsyncIterator[Snapshot]:
        kept = [snapshot for snapshots in self._snapshots.values() for snapshot in snapshots]
        for snapshot in sorted(kept, key=lambda snapshot: (snapshot.position, snapshot.name)):
            yield snapshot

    async def damage(self) -> None:
        """See DurableStore.damage."""

    async def refuse_cut(self) -> None:
        """See DurableStore.refuse_cut."""

    async def take_over(self, plan: GroupPlan, *, after: int) -> None:
        refuse_other_end(self.place, self._end, after)
        self._keep(plan.rows)
        self._heads.update(plan.heads)
        self._growth.wake()

    async def base(self) -> Base:
        return self._base

    async def forget(self, base: Base) -> None:
        if base.position > self._end:
            raise InvalidInput(f"the log ends at position {self._end}: it cannot forget up to {base.position}")
        if (count := base.position - self._base.position) <= 0:
            return
        del self._bodies[:count], self._digests[: count * _DIGEST_BYTES]
        self._base = base
        self._ids = {event_id: position for event_id, position in self._ids.items() if position > base.position}
        for positions in self._in_stream.values():
            del positions[: bisect_right(positions, base.position)]

    async def close(self) -> None:
        """See EventStore.close."""

    def _keep(self, rows: Iterable[EventRow]) -> None:
        for position, stream, _, event_id, _, _, body, digest in rows:
            self._bodies.append(body)
            self._digests += bytes.fromhex(digest)
            self._ids[event_id] = position
            self._in_stream.setdefault(stream, []).append(position)

    @property
    def _end(self) -> int:
        return self._base.position + len(self._bodies)

    def _refuse_archived(self, after: int, stream: str | None = None) -> None:
        if after < self._base.position and (stream is None or stream in self._base.heads):
            raise archived_error(self.place, self._base, after)

    def _sealed(self, after: int, limit: int) -> list[Sealed]:
        self._refuse_archived(after)
        return [self._at(position) for position in range(after + 1, min(after + limit, self._end) + 1)]

    def _at(self, position: int) -> Sealed:
        index = position - self._base.position - 1
        digest = self._digests[index * _DIGEST_BYTES : (index + 1) * _DIGEST_BYTES]
        return Sealed(position, self._bodies[index], digest.hex())
