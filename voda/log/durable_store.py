"""The port to a log that outlives its process: what every production store has beside EventStore.

What every adapter promises (tests/contract/test_durable_store.py):
1. A log taken over event by event from another is the same log: bytes, hashes, heads.
2. What was archived is forgotten as a whole prefix; what is left proves that it follows what was archived.
3. Whatever can tell that the log was cut, tells so before anything is appended.
"""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from voda.domain.errors import LogArchived, VersionConflict
from voda.events.envelope import Head
from voda.log.append_plan import EventRow, GroupPlan
from voda.log.store import EventStore, Snapshot


class Base(Struct, frozen=True, kw_only=True):
    """Where a log begins: what came before is in its archive."""

    position: int = 0
    """Of the last event that was archived; 0 = the log is whole."""
    heads: Mapping[str, Head] = {}
    """Of every stream at that position."""
    folder: str = ""
    """Where the archive lay when the log was archived; a hint for those who look for it."""


def refuse_other_end(place: str, position: int, after: int) -> None:
    """Raise VersionConflict unless a log that ends at `position` can take over events behind `after`."""
    if position != after:
        raise VersionConflict(
            f"{place}: expected its end at position {after}, got {position}: somebody else writes to it"
        )


def archived_error(place: str, base: Base, after: int) -> LogArchived:
    """Return the error of a reader who asks for events behind `after`, which are not all in the log any more."""
    where = f" to {base.folder}" if base.folder else ""
    return LogArchived(
        f"{place}: the events up to position {base.position} were archived{where} (asked for: {after + 1} and later);"
        " name that folder with --archive, or have VODA_ARCHIVE name it",
        base.position,
    )


class DurableStore(EventStore, Protocol):
    """An EventStore that is copied, proven, archived and led; see voda.log.factory."""

    @property
    def place(self) -> str:
        """Path or URL, without password."""
        ...

    # ---- proof

    async def ends(self) -> tuple[int, Mapping[str, Head]]:
        """Return the position of the last event and every stream's head, both seen at one instant."""
        ...

    async def read_rows(self, after: int, limit: int) -> Sequence[EventRow]:
        """Return up to `limit` events with what stands beside their bodies, gaps and all."""
        ...

    def snapshots(self) -> AsyncIterator[Snapshot]:
        """Yield every snapshot kept, lowest position first.

        Raises:
            LogDamaged: one is not what was written.
        """
        ...

    async def damage(self) -> str | None:
        """Return what the store itself finds wrong with its files; None where it finds nothing."""
        ...

    async def refuse_cut(self) -> None:
        """Raise if the log once reached further than it does now.

        Raises:
            LogDamaged: it did.
        """
        ...

    # ---- copies

    async def restore(self, batches: Iterator[GroupPlan]) -> None:
        """Fill the empty log with events of another, byte for byte; whatever the iterator raises leaves it empty.

        Raises:
            InvalidInput: the log is not empty.
        """
        ...

    async def take_over(self, plan: GroupPlan, *, after: int) -> None:
        """Add events of another log behind position `after`, byte for byte, all or none, durably.

        Args:
            plan: rows from position `after + 1` on, and the heads they lead to.
            after: position of this log's last event.

        Raises:
            VersionConflict: this log ends elsewhere.
        """
        ...

    # ---- archive
    #
    # In a log with a base, read, read_sealed, read_rows and tail raise `archived(...)` for an `after` below it. A
    # stream that is not among the base's heads has nothing archived: read alone, it is read from any `after`.

    async def base(self) -> Base:
        """Return where the log begins."""
        ...

    async def forget(self, base: Base) -> None:
        """Forget the events up to the base's position, durably; a base below that of the log changes nothing.

        Once `base` tells the new one it stays so, whatever becomes of the process; what is read until all is gone is
        still what was written. Ids of what is forgotten are not known any more. A store may keep a few events more
        than it is asked to: `base` tells.

        Args:
            base: with a position at which the log may be parted, and the heads there. The caller has proven that
                archive and snapshots hold what is forgotten here.

        Raises:
            InvalidInput: the position is beyond the last event.
        """
        ...
