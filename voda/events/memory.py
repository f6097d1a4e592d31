"""A log in memory: the simulator's store, and the reference for the contract suite."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence

from voda.domain.errors import Fenced, VersionConflict
from voda.events.codec import seal, unseal
from voda.events.envelope import ANY_VERSION, Event, Fact, Head, Sealed
from voda.events.store import Snapshot

_EMPTY = Head()
_TAIL_PAGE = 1000


def check_append(stream: str, head: Head, expected_version: int, epoch: int) -> None:
    """Raise unless a writer of `epoch`, who expects `expected_version`, may append after `head`.

    Raises:
        Fenced: the stream has seen a higher epoch.
        VersionConflict: the stream is at another version.
    """
    if epoch < head.epoch:
        raise Fenced(f"stream {stream}: epoch {epoch} was followed by epoch {head.epoch}; this leader must stop")
    if expected_version not in (ANY_VERSION, head.version):
        raise VersionConflict(f"stream {stream}: expected version {expected_version}, got {head.version}")


class MemoryStore:
    """An EventStore that forgets everything when the process ends."""

    def __init__(self) -> None:
        self._log: list[Sealed] = []
        self._heads: dict[str, Head] = {}
        self._ids: dict[str, int] = {}
        self._in_stream: dict[str, list[int]] = {}
        self._snapshots: dict[str, list[Snapshot]] = {}
        self._grown = asyncio.Event()

    async def append(self, stream: str, expected_version: int, facts: Sequence[Fact], *, epoch: int = 0) -> int:
        """See EventStore.append."""
        new = [fact for fact in facts if fact.event_id not in self._ids]
        if not new:
            return self._ids[facts[-1].event_id]
        head = self._heads.get(stream, _EMPTY)
        check_append(stream, head, expected_version, epoch)
        batch: list[Sealed] = []
        for fact in new:
            sealed = seal(fact, stream=stream, head=head, epoch=epoch, position=len(self._log) + len(batch) + 1)
            head = Head(head.version + 1, sealed.hash, max(epoch, head.epoch))
            batch.append(sealed)
        self._log += batch
        self._heads[stream] = head
        self._ids.update((fact.event_id, sealed.position) for fact, sealed in zip(new, batch, strict=True))
        self._in_stream.setdefault(stream, []).extend(sealed.position for sealed in batch)
        self._wake()
        return self._ids[facts[-1].event_id]

    async def read(self, after: int, limit: int, *, stream: str | None = None) -> Sequence[Event]:
        """See EventStore.read."""
        if stream is None:
            return [unseal(sealed) for sealed in self._log[after : after + limit]]
        positions = [position for position in self._in_stream.get(stream, ()) if position > after]
        return [unseal(self._log[position - 1]) for position in positions[:limit]]

    async def read_sealed(self, after: int, limit: int) -> Sequence[Sealed]:
        """See EventStore.read_sealed."""
        return self._log[after : after + limit]

    async def tail(self, after: int) -> AsyncIterator[Event]:
        """See EventStore.tail."""
        while True:
            grown = self._grown
            for event in await self.read(after, _TAIL_PAGE):
                after = event.position
                yield event
            if after == len(self._log):
                await grown.wait()

    async def position(self) -> int:
        """See EventStore.position."""
        return len(self._log)

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

    def _wake(self) -> None:
        self._grown.set()
        self._grown = asyncio.Event()
