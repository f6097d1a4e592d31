"""A log in memory: the simulator's store, and the reference for the contract suite."""

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence

from voda.domain.errors import InvalidInput
from voda.events.codec import unseal
from voda.events.envelope import Event, Fact, Head, Sealed
from voda.events.group import Append, EventRow, GroupPlan, refuse_unstorable, seal_batch
from voda.events.store import Snapshot

_EMPTY = Head()
_TAIL_PAGE = 1000
_DIGEST_BYTES = 32
"""Of SHA-256."""


class MemoryStore:
    """An EventStore that forgets everything when the process ends."""

    def __init__(self) -> None:
        # Bodies and raw digests rather than sealed events: a simulation keeps a million of them.
        self._bodies: list[bytes] = []
        self._digests = bytearray()
        self._heads: dict[str, Head] = {}
        self._ids: dict[str, int] = {}
        self._in_stream: dict[str, list[int]] = {}
        self._snapshots: dict[str, list[Snapshot]] = {}
        self._grown = asyncio.Event()

    async def append(self, stream: str, expected_version: int, facts: Sequence[Fact], *, epoch: int = 0) -> int:
        """See EventStore.append."""
        head = self._heads.get(stream, _EMPTY)
        batch = Append(stream, expected_version, facts, epoch)
        refuse_unstorable(batch)
        rows, head = seal_batch(batch, head, position=len(self._bodies), recorded=self._ids)
        if rows:
            self._keep(rows)
            self._heads[stream] = head
            self._wake()
        return self._ids[facts[-1].event_id]

    async def restore(self, batches: Iterator[GroupPlan]) -> None:
        """Take over the events of another log, all or nothing.

        Raises:
            InvalidInput: this log is not empty.
        """
        if self._bodies:
            raise InvalidInput(f"the log is not empty: it has {len(self._bodies)} events")
        for batch in list(batches):
            self._keep(batch.rows)
            self._heads.update(batch.heads)
        self._wake()

    async def read(self, after: int, limit: int, *, stream: str | None = None) -> Sequence[Event]:
        """See EventStore.read."""
        if stream is None:
            return [unseal(sealed) for sealed in self._sealed(after, limit)]
        positions = self._in_stream.get(stream, [])
        first = bisect_right(positions, after)
        return [unseal(self._at(position)) for position in positions[first : first + limit]]

    async def read_sealed(self, after: int, limit: int) -> Sequence[Sealed]:
        """See EventStore.read_sealed."""
        return self._sealed(after, limit)

    async def tail(self, after: int) -> AsyncIterator[Event]:
        """See EventStore.tail."""
        while True:
            grown = self._grown
            for event in await self.read(after, _TAIL_PAGE):
                after = event.position
                yield event
            if after == len(self._bodies):
                await grown.wait()

    async def position(self) -> int:
        """See EventStore.position."""
        return len(self._bodies)

    async def head(self, stream: str) -> Head:
        """See EventStore.head."""
        return self._heads.get(stream, _EMPTY)

    async def heads(self) -> Mapping[str, Head]:
        """See EventStore.heads."""
        return dict(self._heads)

    async def save_snapshot(self, snapshot: Snapshot) -> None:
        """See EventStore.save_snapshot."""
        self._snapshots.setdefault(snapshot.name, []).append(snapshot)

    async def latest_snapshot(self, name: str, *, at_most: int | None = None) -> Snapshot | None:
        """See EventStore.latest_snapshot."""
        kept = self._snapshots.get(name, ())
        fitting = [snapshot for snapshot in kept if at_most is None or snapshot.position <= at_most]
        return max(fitting, key=lambda snapshot: snapshot.position, default=None)

    async def close(self) -> None:
        """See EventStore.close."""

    def _keep(self, rows: Iterable[EventRow]) -> None:
        for position, stream, _, event_id, _, _, body, digest in rows:
            self._bodies.append(body)
            self._digests += bytes.fromhex(digest)
            self._ids[event_id] = position
            self._in_stream.setdefault(stream, []).append(position)

    def _sealed(self, after: int, limit: int) -> list[Sealed]:
        return [self._at(position) for position in range(after + 1, min(after + limit, len(self._bodies)) + 1)]

    def _at(self, position: int) -> Sealed:
        digest = self._digests[(position - 1) * _DIGEST_BYTES : position * _DIGEST_BYTES]
        return Sealed(position, self._bodies[position - 1], digest.hex())

    def _wake(self) -> None:
        self._grown.set()
        self._grown = asyncio.Event()
