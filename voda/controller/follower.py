"""Moves projections along the log, from a snapshot where there is one.

Rule: only the events of the log, in their order, change a projection.
"""

import logging
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import ClassVar, Protocol

import msgspec

from voda.domain.errors import LogDamaged
from voda.events.envelope import Event
from voda.log.store import EventStore, Snapshot

_PAGE = 1_000
"""An event may have a megabyte, so that a page of many more might not fit into the memory."""

_log = logging.getLogger(__name__)


class Foldable(Protocol):
    """A projection of the log."""

    def apply(self, event: Event) -> None:
        """Fold one event."""


class Restorable(Foldable, Protocol):
    """A projection whose state a snapshot can hold."""

    FORMAT: ClassVar[str]
    """Name and version of the dumped state."""

    def dump(self) -> bytes:
        """Return the whole state."""

    def load(self, state: bytes) -> None:
        """Replace the whole state."""


async def catch_up(
    store: EventStore,
    projections: Sequence[Foldable],
    *,
    after: int,
    until: int | None = None,
    on_event: Callable[[Event], None] | None = None,
) -> int:
    """Fold all events with `after` < position <= `until` (None = all) and return the position reached.

    The projections are at `after` and move in their order; `on_event` gets every folded event.
    """
    folds = [projection.apply for projection in projections]
    while until is None or after < until:
        limit = await store.page_size(after, _PAGE if until is None else min(_PAGE, until - after))
        events = await store.read(after, limit)
        for event in events:
            for fold in folds:
                fold(event)
            if on_event is not None:
                on_event(event)
        if events:
            after = events[-1].position
        if len(events) < limit:
            break
    return after


async def restore(store: EventStore, projection: Restorable, *, at_most: int | None = None) -> int:
    """Load the newest snapshot up to `at_most` that the empty projection can read; return its position, 0 = none.

    Raises:
        LogDamaged: the log ends before the snapshot, or the snapshot is damaged.
    """
    empty = projection.dump()
    while (snapshot := await store.snapshots.latest(projection.FORMAT, at_most=at_most)) is not None:
        await _check(store, snapshot)
        try:
            projection.load(snapshot.state)
        except msgspec.MsgspecError as error:
            # Its bytes are intact, so another version of voda wrote it: fold the log instead.
            _log.warning("snapshot skipped name=%s position=%d reason=%s", snapshot.name, snapshot.position, error)
            projection.load(empty)
            at_most = snapshot.position - 1
        else:
            return snapshot.position
    return 0


async def _check(store: EventStore, snapshot: Snapshot) -> None:
    if sha256(snapshot.state).hexdigest() != snapshot.state_hash:
        raise LogDamaged(f"snapshot {snapshot.name} at position {snapshot.position}: the checksum does not fit")
    if (end := await store.position()) < snapshot.position:
        raise LogDamaged(
            f"the log ends at position {end}, but a snapshot was taken at {snapshot.position}: its tail was cut",
            end + 1,
        )
