"""Catching up: keeps projections level with the log, from a snapshot where there is one.

Rule: a projection is only ever moved by the events of the log, in their order.
"""

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import ClassVar, Protocol

from voda.domain.errors import LogDamaged
from voda.events.envelope import Event
from voda.events.store import EventStore, Snapshot

_PAGE = 5_000


class Projection(Protocol):
    """What a follower moves along the log."""

    FORMAT: ClassVar[str]
    """Name and version of the dumped state."""

    def apply(self, event: Event) -> None:
        """Fold one event."""
        ...

    def dump(self) -> bytes:
        """Return the whole state."""
        ...

    def load(self, state: bytes) -> None:
        """Replace the whole state."""
        ...


async def catch_up(
    store: EventStore,
    projections: Sequence[Projection],
    *,
    after: int,
    until: int | None = None,
    seen: Callable[[Event], None] | None = None,
) -> int:
    """Fold all events with `after` < position <= `until` and return the position reached.

    Args:
        store: the log.
        projections: moved in this order.
        after: position they are at.
        until: position to stop at; None = the end of the log.
        seen: called with every event once it is folded.
    """
    folds = [projection.apply for projection in projections]
    while until is None or after < until:
        limit = _PAGE if until is None else min(_PAGE, until - after)
        events = await store.read(after, limit)
        for event in events:
            for fold in folds:
                fold(event)
            if seen is not None:
                seen(event)
        if events:
            after = events[-1].position
        if len(events) < limit:
            break
    return after


async def restore(store: EventStore, projection: Projection, *, at_most: int | None = None) -> int:
    """Load the newest snapshot of the projection and return its position; 0 where there is none.

    Raises:
        LogDamaged: the log ends before the snapshot, or the snapshot's bytes are not what was written.
    """
    snapshot = await store.latest_snapshot(projection.FORMAT, at_most=at_most)
    if snapshot is None:
        return 0
    if sha256(snapshot.state).hexdigest() != snapshot.state_hash:
        raise LogDamaged(f"snapshot {snapshot.name} at position {snapshot.position}: the checksum does not fit")
    if (end := await store.position()) < snapshot.position:
        raise LogDamaged(
            f"the log ends at position {end}, but a snapshot was taken at {snapshot.position}: its tail was cut",
            end + 1,
        )
    projection.load(snapshot.state)
    return snapshot.position


async def take_snapshot(store: EventStore, projection: Projection, position: int) -> Snapshot:
    """Keep the state of a projection that is at `position`, with the head of every stream."""
    state = projection.dump()
    snapshot = Snapshot(
        name=projection.FORMAT,
        position=position,
        state=state,
        state_hash=sha256(state).hexdigest(),
        heads=await store.heads(),
    )
    await store.save_snapshot(snapshot)
    return snapshot
