"""The ports to a log, and the base of stores that wrap another one. Adapters: memory, SQLite, PostgreSQL, JetStream.

Every EventStore promises (tests/contract/test_event_store.py):
1. An append to a stream succeeds only at the expected version; a batch is written whole or not at all.
2. Positions are a total order without gaps, and a reader never skips: a reader that has seen position p could see every
   event before it.
3. An event id is recorded once; a second append of it returns the position of the first.
4. A stream refuses epochs below the highest it has seen.

Every DurableStore promises besides (tests/contract/test_durable_store.py):
1. A log copied event by event from another is the same log: bytes, hashes, heads.
2. Archived events are forgotten as a whole prefix; the remaining events prove that they follow the archived ones.
3. A store that can tell that its log was cut refuses before anything is appended.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Generic, Protocol, TypeVar, runtime_checkable

import msgspec
from msgspec import Struct

from voda.domain.errors import InvalidInput, LogArchived, LogDamaged, VersionConflict
from voda.events.codec import body_of
from voda.events.envelope import Event, Fact, Head, Sealed
from voda.log.append_plan import Append, EventRow, GroupPlan, row_of

SNAPSHOTS_KEPT = 8
"""So many of the newest snapshots of each name a store keeps; older ones would only speed up travel to the far past."""


PAGE_BYTES = 8 * 1024 * 1024
"""Of the events that a reader of many has in memory at once: single ones may have a megabyte."""


class Snapshot(Struct, frozen=True, kw_only=True):
    """A projection's state at a position, with the head of every stream, so that a cut tail is noticed."""

    name: str
    """Name of the projection, with the version of its format, so that an old format is never loaded."""
    position: int
    state: bytes
    state_hash: str
    """SHA-256 of `state`."""
    heads: Mapping[str, Head]
    """All read at one instant, when the log was at `position` or further."""


def within_page(sizes: Sequence[int], limit: int) -> int:
    """Return how many events of these sizes, in bytes, make a page: `limit` where all do, else at least one."""
    fitting = sum(total <= PAGE_BYTES for total in accumulate(sizes))
    return limit if fitting == len(sizes) else max(1, fitting)


class SnapshotHeads(Mapping[str, Head]):
    """Stream -> head, as stored with a snapshot; decoded when first used.

    Proofs need them; a start needs the state alone, and a log of years has hundreds of thousands of streams.
    """

    def __init__(self, decode: Callable[[], Mapping[str, tuple[int, str, int]]], where: str) -> None:
        self._decode = decode
        self._where = where

    def __getitem__(self, stream: str) -> Head:
        return self._heads[stream]

    def __iter__(self) -> Iterator[str]:
        return iter(self._heads)

    def __len__(self) -> int:
        return len(self._heads)

    def __repr__(self) -> str:
        return repr(self._heads)

    @cached_property
    def _heads(self) -> dict[str, Head]:
        """Raises LogDamaged where the stored bytes are no heads."""
        try:
            return {stream: Head(*head) for stream, head in self._decode().items()}
        except msgspec.MsgspecError as error:
            raise LogDamaged(f"{self._where}: not the heads of streams ({error})") from error


def load_heads(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot with its heads decoded; raises LogDamaged if the stored heads cannot be decoded."""
    dict(snapshot.heads)
    return snapshot


class SnapshotStore(Protocol):
    """The snapshots beside a log."""

    async def save(self, snapshot: Snapshot) -> None:
        """Store the snapshot; the store may drop an older one of the same name."""

    async def latest(self, name: str, *, at_most: int | None = None) -> Snapshot | None:
        """Return the newest snapshot of that name at a position <= `at_most`, or None; a damaged one is skipped."""

    def all(self) -> AsyncIterator[Snapshot]:
        """Yield every stored snapshot, lowest position first; raises LogDamaged at one that is not what was written."""


class EventStore(Protocol):
    """An append-only log of events in many streams."""

    snapshots: SnapshotStore

    async def append(self, stream: str, expected_version: int, facts: Sequence[Fact], *, epoch: int = 0) -> int:
        """Record the facts at the end of the stream, all or none, and return the last one's position.

        Args:
            stream: `family.key`.
            expected_version: version of the stream's last event (0 = empty), or ANY_VERSION.
            facts: at least one. A fact whose event id is in the log already is not written again.
            epoch: leadership epoch of a decision; 0 for all other facts.

        Raises:
            VersionConflict: the stream is at another version.
            Fenced: the stream has seen a higher epoch.
            InvalidInput: a name, a number or a time cannot be stored.
            StoreUnavailable: try again.
            StoreNotWritable: disk full or read-only.
        """
        return await self.append_all([Append(stream, expected_version, facts, epoch)])

    async def append_all(self, appends: Sequence[Append]) -> int:
        """Record facts of several streams, all or none, and return the last one's position; see `append`."""

    async def read(self, after: int, limit: int, *, stream: str | None = None) -> Sequence[Event]:
        """Return up to `limit` events with position > `after`, in order; of one stream where given.

        Raises:
            LogDamaged: an event's bytes are not what was written.
            LogTooNew: an event's schema is unknown to this version.
        """

    async def page_size(self, after: int, limit: int, *, stream: str | None = None) -> int:
        """Return how many of the next events to read at once so that they have up to PAGE_BYTES in all, or are one.

        It is `limit` where so many, or all that follow, have no more, and where the store cannot tell.
        """
        return limit

    async def read_sealed(self, after: int, limit: int) -> Sequence[Sealed]:
        """Return up to `limit` stored events with position > `after`, in order, bytes as stored."""

    def tail(self, after: int) -> AsyncIterator[Event]:
        """Yield every event with position > `after`, then wait for new ones, for ever."""

    async def position(self) -> int:
        """Return the position of the last event; 0 in an empty log."""

    async def head(self, stream: str) -> Head:
        """Return the last event's version, hash and epoch of one stream."""

    async def heads(self) -> Mapping[str, Head]:
        """Return the head of every stream, all read at one instant."""
        return (await self.ends())[1]

    async def ends(self) -> tuple[int, Mapping[str, Head]]:
        """Return the position of the last event and the head of every stream, both read at one instant."""

    async def close(self) -> None:
        """Release all connections and files. Safe to call twice."""


StoreT = TypeVar("StoreT", bound=EventStore)


class DelegatingStore(EventStore, Generic[StoreT]):
    """An EventStore that passes every call to another one; a wrapper overrides the calls that it changes."""

    def __init__(self, store: StoreT) -> None:
        self._store = store
        self.snapshots = store.snapshots

    async def append_all(self, appends: Sequence[Append]) -> int:
        return await self._store.append_all(appends)

    async def read(self, after: int, limit: int, *, stream: str | None = None) -> Sequence[Event]:
        return await self._store.read(after, limit, stream=stream)

    async def page_size(self, after: int, limit: int, *, stream: str | None = None) -> int:
        return await self._store.page_size(after, limit, stream=stream)

    async def read_sealed(self, after: int, limit: int) -> Sequence[Sealed]:
        return await self._store.read_sealed(after, limit)

    def tail(self, after: int) -> AsyncIterator[Event]:
        return self._store.tail(after)

    async def position(self) -> int:
        return await self._store.position()

    async def head(self, stream: str) -> Head:
        return await self._store.head(stream)

    async def ends(self) -> tuple[int, Mapping[str, Head]]:
        return await self._store.ends()

    async def close(self) -> None:
        await self._store.close()


class Base(Struct, frozen=True, kw_only=True):
    """The point at which a log begins; all events up to it are in the archive alone."""

    position: int = 0
    """Of the last archived event; 0 = the log is whole."""
    heads: Mapping[str, Head] = {}
    """Of every stream at that position."""
    folder: str = ""
    """Of the archive, when the log was archived; a hint for readers who look for it."""

    def refuse_beyond(self, place: str, end: int) -> None:
        """Raise InvalidInput if a log that ends at `end` has not got so far."""
        if self.position > end:
            raise InvalidInput(f"{place} ends at position {end}: it cannot forget up to {self.position}")

    def refuse_archived(self, place: str, after: int, stream: str | None = None) -> None:
        """Raise LogArchived for a read behind `after` where the log does not have all of these events any more."""
        if after >= self.position or (stream is not None and stream not in self.heads):
            return
        where = f" to {self.folder}" if self.folder else ""
        raise LogArchived(
            f"{place}: the events up to position {self.position} were archived{where} (asked for: {after + 1} and"
            " later); name that folder with --archive, or have VODA_ARCHIVE name it",
            self.position,
        )


def tail_is_cut(place: str, position: int, reached: int, hint: str = "") -> LogDamaged:
    """Return the error of a log that ends at `position`, but once reached further."""
    return LogDamaged(
        f"{place}: position {position + 1}: the log ends at {position} but once reached {reached}:"
        f" its tail is cut; restore it from a copy{hint}",
        position + 1,
    )


def refuse_other_end(place: str, position: int, after: int) -> None:
    """Raise VersionConflict unless a log that ends at `position` can continue behind `after`."""
    if position != after:
        raise VersionConflict(
            f"{place}: expected its end at position {after}, got {position}: another process writes to it"
        )


@runtime_checkable
class DurableStore(EventStore, Protocol):
    """An EventStore that can be copied, verified and archived; see voda.log.factory."""

    place: str
    """Path or URL, without password."""

    # ---- proof

    async def read_rows(self, after: int, limit: int) -> Sequence[EventRow]:
        """Return up to `limit` events with the columns that the store has beside their bodies; gaps are not refused.

        By default it has none.
        """
        return [row_of(sealed, body_of(sealed)) for sealed in await self.read_sealed(after, limit)]

    async def damage(self) -> str | None:
        """Return the damage that the store itself finds in its files; None = no damage, or only reads show it."""
        await self.refuse_cut()
        return None

    async def refuse_cut(self) -> None:
        """Raise LogDamaged if the log once reached further than it does now, as far as the store can tell."""

    # ---- copies

    async def take_over(self, plan: GroupPlan, *, after: int) -> None:
        """Append events of another log behind position `after`, byte for byte, durably.

        All or none; what is too large for a store at once lands in parts, in order.

        Raises:
            VersionConflict: this log ends elsewhere.
        """

    # ---- archive
    # In a log with a base, read, read_sealed, read_rows and tail raise LogArchived for an `after` below it. A
    # stream that is not among the base's heads has no archived events: it can be read alone from any `after`.

    async def base(self) -> Base:
        """Return where the log begins."""

    async def forget(self, base: Base) -> None:
        """Forget the events up to the base's position, durably; a base below that of the log changes nothing.

        Once `base` returns the new base it stays so, even if the process is killed; until all events are deleted,
        reads still return what was written. Ids of forgotten events are not known any more. A store may keep a few
        events more than asked for: see `base`.

        Args:
            base: the position, and the heads there. The caller has proven that the archive holds these events and
                that the snapshots do not need them.

        Raises:
            InvalidInput: the position is beyond the last event.
        """
