"""The port to the log. Adapters: memory, SQLite and PostgreSQL (sql), later NATS JetStream.

What every adapter promises (tests/contract/test_event_store.py):
1. Appends to one stream succeed only at the expected version; a batch is written whole or not at all.
2. Positions are a total order without gaps, and a reader never skips: whoever has seen position p has been
   able to see all before it.
3. The same event id is recorded once; appending it again returns the position it got the first time.
4. A stream refuses epochs lower than the highest it has seen.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from voda.events.envelope import Event, Fact, Head, Sealed


class Snapshot(Struct, frozen=True, kw_only=True):
    """A projection's state at a position, with the head of every stream, so that a cut tail is noticed."""

    name: str
    """Whose state it is; with the version of its format, so that an old format is never loaded."""
    position: int
    state: bytes
    state_hash: str
    """SHA-256 of `state`."""
    heads: Mapping[str, Head]
    """All seen at one instant, when the log was at `position` or further."""


class EventStore(Protocol):
    """An append-only log of events in many streams."""

    async def append(self, stream: str, expected_version: int, facts: Sequence[Fact], *, epoch: int = 0) -> int:
        """Record the facts at the end of the stream, all or none, and return the last one's position.

        Args:
            stream: `family.key`.
            expected_version: version of the stream's last event (0 = empty), or ANY_VERSION.
            facts: at least one. Those whose event id is in the log already are not written again.
            epoch: leadership epoch of a decision; 0 for everybody else.

        Raises:
            VersionConflict: the stream is at another version.
            Fenced: the stream has seen a higher epoch.
            InvalidInput: a name, a number or a time cannot be stored.
            StoreUnavailable: try again.
            StoreNotWritable: disk full or read-only.
        """
        ...

    async def read(self, after: int, limit: int, *, stream: str | None = None) -> Sequence[Event]:
        """Return up to `limit` events with position > `after`, in order; of one stream where given.

        Raises:
            LogDamaged: an event's bytes are not what was written.
            LogTooNew: an event's schema is unknown to this version.
        """
        ...

    async def read_sealed(self, after: int, limit: int) -> Sequence[Sealed]:
        """Return up to `limit` stored events with position > `after`, in order, bytes as stored."""
        ...

    def tail(self, after: int) -> AsyncIterator[Event]:
        """Yield every event with position > `after`, then wait for new ones, for ever."""
        ...

    async def position(self) -> int:
        """Return the position of the last event; 0 in an empty log."""
        ...

    async def head(self, stream: str) -> Head:
        """Return the last event's version, hash and epoch of one stream."""
        ...

    async def heads(self) -> Mapping[str, Head]:
        """Return the head of every stream, all seen at one instant."""
        ...

    async def save_snapshot(self, snapshot: Snapshot) -> None:
        """Keep the snapshot; an older one of the same name may be dropped."""
        ...

    async def latest_snapshot(self, name: str, *, at_most: int | None = None) -> Snapshot | None:
        """Return the newest snapshot of that name at a position <= `at_most`, or None."""
        ...

    async def close(self) -> None:
        """Release what the store holds. Safe to call twice."""
        ...
