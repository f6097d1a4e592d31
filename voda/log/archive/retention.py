"""Trims a log: copies its old events to segments, proves the segments, then has the log forget the events.

Rule: an event is in the log, or in a segment on the disk that was read back and compared with it; a crash between any
two lines loses nothing, and a second run is harmless.
"""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct

from voda.domain.errors import InvalidInput, LogDamaged
from voda.events.codec import body_of
from voda.log.archive.archive import Archive, open_to_add
from voda.log.archive.archive_backed_store import ArchiveBackedStore
from voda.log.archive.copy import add_missing, event_at, folder_copy
from voda.log.archive.verify import HashChain, Progress
from voda.log.store import Base, DurableStore

LoadState = Callable[[bytes], None]
"""Loads a snapshot's state; raises any error if it cannot."""


class ArchiveResult(Struct, frozen=True, kw_only=True):
    """What one run of trimming did."""

    base: int
    """Position of the last event that is only in the archive."""
    events: int
    """Forgotten by this run."""
    position: int
    """Of the log's last event."""


async def archive_log(
    store: DurableStore, folder: Path, *, until: int, progress: Progress | None = None
) -> ArchiveResult:
    """Move the events up to a position to a folder of segments, made as needed, and have the log forget them.

    Others may append meanwhile. The log's last event stays in any case.

    Raises:
        InvalidInput: the segments are not the beginning of the log.
        LogArchived: the events archived before are in another folder, which is not there.
        LogDamaged: the log, or a segment that was read back, is not what was written.
        StoreNotWritable, StoreUnavailable: the folder cannot be written, or another process does.
    """
    before = await store.base()
    # The last event stays: at a start its time is the earliest possible now.
    until = min(until, await store.position() - 1)
    if until > before.position:
        with open_to_add(folder) as archive:
            # Events that another archive folder holds are copied from there.
            await add_missing(ArchiveBackedStore(store), await folder_copy(archive), until=until, progress=progress)
            await asyncio.to_thread(archive.secure, before.position)
            chain = await _proven(store, archive, before, until)
            await store.forget(Base(position=until, heads=chain.heads, folder=archive.place))
    else:
        # A killed run may have left events to delete.
        await store.forget(before)
    base = (await store.base()).position
    return ArchiveResult(base=base, events=base - before.position, position=await store.position())


async def _proven(store: DurableStore, archive: Archive, base: Base, until: int) -> HashChain:
    """Return the chain through the archive up to a position, after comparing each event with the log's."""
    chain = await asyncio.to_thread(archive.chain, base.position)
    if chain.heads != base.heads:
        raise InvalidInput(f"{archive.path} is not the archive of {store.place}: expected other heads at its base")
    pages = archive.groups(chain, until)
    while page := await asyncio.to_thread(next, pages, None):
        kept = await store.read_sealed(page.rows[0][0] - 1, len(page.rows))
        if [(row[0], row[6], row[7]) for row in page.rows] != [(one.position, one.body, one.hash) for one in kept]:
            first = page.rows[0][0]
            raise LogDamaged(f"{archive.path}: positions from {first} on are not those of {store.place}", first)
    if chain.position != until:
        raise LogDamaged(f"{archive.path} ends at position {chain.position}, expected {until}", chain.position + 1)
    return chain


async def behind_snapshots(store: DurableStore, needed: Mapping[str, LoadState]) -> int:
    """Return the last position whose events a start on the log does not need: the oldest of the newest snapshots.

    Args:
        store: the log.
        needed: name of a snapshot -> loads its state.

    Raises:
        InvalidInput: a snapshot is missing, or its newest cannot be loaded.
    """
    return min([await _usable(store, name, load) for name, load in needed.items()])


async def _usable(store: DurableStore, name: str, load: LoadState) -> int:
    snapshot = await store.snapshots.latest(name)
    if snapshot is None:
        raise InvalidInput(
            f"{store.place} has no snapshot {name}, without which nothing can start on what is left: run"
            f" 'voda log snapshot {store.place}' first"
        )
    try:
        await asyncio.to_thread(load, snapshot.state)
    except Exception as error:
        raise InvalidInput(
            f"{store.place}: the newest snapshot {name}, at position {snapshot.position}, cannot be loaded ({error}):"
            f" run 'voda log snapshot {store.place}' first"
        ) from error
    return snapshot.position


async def older_than(store: DurableStore, instant: float) -> int:
    """Return the position of the last event recorded before an instant (Unix time), at least the base's."""
    low, high = (await store.base()).position, await store.position()
    while low < high:
        middle = (low + high + 1) // 2
        sealed = await event_at(store, middle)
        is_older = sealed is None or body_of(sealed).recorded_at.timestamp() < instant
        low, high = (middle, high) if is_older else (low, middle - 1)
    return low
