"""The port to a log that outlives its process: what a production store offers beside EventStore.

Every adapter promises (tests/contract/test_durable_store.py):
1. A log copied event by event from another is the same log: bytes, hashes, heads.
2. Archived events are forgotten as a whole prefix; the remaining events prove that they follow the archived ones.
3. A store that can tell that its log was cut refuses before anything is appended.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol, runtime_checkable

from msgspec import Struct

from voda.domain.errors import LogArchived, VersionConflict
from voda.events.envelope import Head
from voda.log.append_plan import EventRow, GroupPlan
from voda.log.store import EventStore


class Base(Struct, frozen=True, kw_only=True):
    """The point at which a log begins; all events up to it are in the archive alone."""

    position: int = 0
    """Of the last archived event; 0 = the log is whole."""
    heads: Mapping[str, Head] = {}
    """Of every stream at that position."""
    folder: str = ""
    """Of the archive, when the log was archived; a hint for readers who look for it."""


def refuse_other_end(place: str, position: int, after: int) -> None:
    """Raise VersionConflict unless a log that ends at `position` can continue behind `after`."""
    if position != after:
        raise VersionConflict(
            f"{place}: expected its end at position {after}, got {position}: another process writes to it"
        )


def archived_error(place: str, base: Base, after: int) -> LogArchived:
    """Return the error for a read behind `after` where the log does not have all of these events any more."""
    where = f" to {base.folder}" if base.folder else ""
    return LogArchived(
        f"{place}: the events up to position {base.position} were archived{where} (asked for: {after + 1} and later);"
        " name that folder with --archive, or have VODA_ARCHIVE name it",
        base.position,
    )


@runtime_checkable
class DurableStore(EventStore, Protocol):
    """An EventStore that can be copied, verified and archived; see voda.log.factory."""

    place: str
    """Path or URL, without password."""

    # ---- proof

    async def read_rows(self, after: int, limit: int) -> Sequence[EventRow]:
        """Return up to `limit` events with the columns that the store has beside their bodies; gaps are not refused."""
        ...

    async def damage(self) -> str | None:
        """Return the damage that the store itself finds in its files; None = no damage."""
        ...

    async def refuse_cut(self) -> None:
        """Raise if the log once reached further than it does now.

        Raises:
            LogDamaged: it did.
        """
        ...

    # ---- copies

    async def restore(self, batches: Iterator[GroupPlan]) -> None:
        """Fill the empty log with the events of another, byte for byte; if the iterator raises, the log stays empty.

        Raises:
            InvalidInput: the log is not empty.
        """
        ...

    async def take_over(self, plan: GroupPlan, *, after: int) -> None:
        """Append events of another log behind position `after`, byte for byte, all or none, durably.

        Args:
            plan: rows from position `after + 1` on, and the heads they lead to.
            after: position of this log's last event.

        Raises:
            VersionConflict: this log ends elsewhere.
        """
        ...

    # ---- archive
    #
    # In a log with a base, read, read_sealed, read_rows and tail raise `archived_error(...)` for an `after` below it. A
    # stream that is not among the base's heads has no archived events: it can be read alone from any `after`.

    async def base(self) -> Base:
        """Return where the log begins."""
        ...

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
        ...
