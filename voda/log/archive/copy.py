"""Copies a log to another store or to a folder of segments, or goes on with such a copy.

Rule: nothing is added to a copy before it is proven to be the beginning of the log, by hashes alone and without reading
what the copy has: the heads of all its streams, and the events that follow, lead to the heads of the log.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from voda.domain.errors import InvalidInput, LogArchived, LogDamaged
from voda.events.codec import body_of
from voda.events.envelope import Head, Sealed
from voda.log.append_plan import GroupPlan, row_of
from voda.log.archive.archive import SEGMENT_BYTES, SEGMENT_EVENTS, Archive, open_to_add
from voda.log.archive.verify import PAGE, HashChain, Progress, compare_heads
from voda.log.store import DurableStore, EventStore

_LOOK_S = 0.2
"""Interval at which a copy that follows looks for new events."""


class CopyResult(Struct, frozen=True, kw_only=True):
    """What one run of copying did."""

    position: int
    """Of the copy's last event."""
    events: int
    """Number of events that this run added."""
    hash: str
    """Of the last event; empty in an empty log."""
    snapshots: int = 0
    """Number of snapshots copied."""


async def copy_log(
    source: EventStore,
    target: DurableStore,
    *,
    until: int | None = None,
    follow: bool = False,
    progress: Progress | None = None,
) -> CopyResult:
    """Add the events up to a position (None = the present end) that the target lacks, and the snapshots.

    Others may append to the source meanwhile, but not to the target.

    Args:
        follow: go on with new events until cancelled.
        progress: gets the position that the copy has reached.

    Raises:
        InvalidInput: the target is not the beginning of the source, or the source ends before the position.
        LogArchived: events that the target lacks are in the source's archive.
        LogDamaged: the source is not what was written, or the copy is not the source.
        VersionConflict: another process writes to the target.
    """
    copy = StoreCopy(target, HashChain(*await target.ends()))
    copied = await add_missing(source, copy, until=until, follow=follow, progress=progress)
    return replace(copied, snapshots=await _copy_snapshots(source, target, copied.position))


async def copy_to_folder(
    source: EventStore, folder: Path, *, until: int | None = None, progress: Progress | None = None
) -> CopyResult:
    """Add the events up to a position (None = the present end) that a folder of segments lacks; make the folder.

    Raises:
        InvalidInput, LogArchived, LogDamaged: see copy_log.
        StoreNotWritable, StoreUnavailable: the folder cannot be written, or another process does.
    """
    with open_to_add(folder) as archive:
        # A killed run, or a program that copied them here, may have left them unflushed.
        await asyncio.to_thread(archive.secure)
        return await add_missing(source, await folder_copy(archive), until=until, progress=progress)


class Copy(Protocol):
    """The place that a log is copied to."""

    chain: HashChain
    """Through all events of the copy."""

    async def at(self, position: int) -> Sealed | None:
        """Return the copy's event at a position; None if it has none, or has archived it."""

    async def add(self, events: Sequence[Sealed]) -> None:
        """Prove and take the events that follow; raises LogDamaged if they do not."""

    async def flush(self) -> None:
        """Bring all that was added to the disk."""


class StoreCopy(Copy):
    """A copy in a store."""

    def __init__(self, store: DurableStore, chain: HashChain) -> None:
        self.chain = chain
        self._store = store

    async def at(self, position: int) -> Sealed | None:
        return await event_at(self._store, position)

    async def add(self, events: Sequence[Sealed]) -> None:
        rows = [row_of(sealed, self.chain.step(sealed)) for sealed in events]
        plan = GroupPlan(rows, {row[1]: self.chain.heads[row[1]] for row in rows}, [])
        await self._store.take_over(plan, after=self.chain.position - len(rows))

    async def flush(self) -> None:
        _, heads = await self._store.ends()
        compare_heads(heads, self.chain, "the copy")


class FolderCopy(Copy):
    """A copy in a folder of segments."""

    def __init__(self, archive: Archive, chain: HashChain) -> None:
        self.chain = chain
        self._archive = archive
        self._waiting: list[Sealed] = []
        self._waiting_bytes = 0

    async def at(self, position: int) -> Sealed | None:
        return await asyncio.to_thread(self._archive.at, position)

    async def add(self, events: Sequence[Sealed]) -> None:
        for sealed in events:
            self._waiting.append(sealed)
            self._waiting_bytes += len(sealed.body)
            if len(self._waiting) >= SEGMENT_EVENTS or self._waiting_bytes >= SEGMENT_BYTES:
                await self.flush()

    async def flush(self) -> None:
        if self._waiting:
            await asyncio.to_thread(self._archive.add, self._waiting, self.chain)
            self._waiting, self._waiting_bytes = [], 0


async def folder_copy(archive: Archive) -> FolderCopy:
    """Return the copy in a folder that was opened to add segments; the headers of its segments are believed."""
    return FolderCopy(archive, await asyncio.to_thread(archive.chain))


async def add_missing(
    source: EventStore,
    copy: Copy,
    *,
    until: int | None = None,
    follow: bool = False,
    progress: Progress | None = None,
) -> CopyResult:
    """Add the events that a copy lacks; see copy_log."""
    begun, (position, heads) = copy.chain.position, await source.ends()
    if until is not None and until > position:
        raise InvalidInput(f"the log ends at position {position}, expected at least {until}")
    end = position if until is None else until
    # The log may be damaged behind `until`; the events before are saved all the same.
    seen = min(max(end, begun), position)
    await prove_prefix(source, copy.chain, copy.at, seen, heads if until is None else None)
    while True:
        await _add_until(source, copy, end, progress)
        if until is None:
            compare_heads(heads, copy.chain, "the log")
        if not follow:
            break
        await asyncio.sleep(_LOOK_S)
        end, heads = await source.ends()
    reached = copy.chain.position
    last = await copy.at(reached)
    return CopyResult(position=reached, events=reached - begun, hash=last.hash if last else "")


async def _add_until(source: EventStore, copy: Copy, end: int, progress: Progress | None) -> None:
    reached = copy.chain.position
    while reached < end:
        page = await page_of(source, reached, end)
        await copy.add(page)
        reached += len(page)
        if progress:
            progress(reached, end)
    await copy.flush()


async def _copy_snapshots(source: EventStore, target: DurableStore, position: int) -> int:
    """Copy the snapshots up to a position, so that a start on the copy is quick; stop at a damaged one."""
    copied = 0
    try:
        async for snapshot in source.snapshots.all():
            if snapshot.position <= position and sum(head.version for head in snapshot.heads.values()) <= position:
                await target.snapshots.save(snapshot)
                copied += 1
    except LogDamaged:
        # A new snapshot can always be taken from the events.
        return copied
    return copied


EventAt = Callable[[int], Awaitable[Sealed | None]]
"""Returns a copy's event at a position; None if it has none."""


async def page_of(source: EventStore, after: int, end: int) -> Sequence[Sealed]:
    """Return the next page of events behind a position, up to another; raises LogDamaged if there are none."""
    page = await source.read_sealed(after, min(PAGE, end - after))
    if not page:
        raise LogDamaged(f"position {after + 1}: the event is missing", after + 1)
    return page


async def event_at(store: EventStore, position: int) -> Sealed | None:
    """Return the event at a position; None if there is none, or it is archived."""
    try:
        found = await store.read_sealed(position - 1, 1) if position else ()
    except LogArchived:
        return None
    return found[0] if found else None


async def prove_prefix(
    source: EventStore, copy: HashChain, at: EventAt, end: int, heads: Mapping[str, Head] | None
) -> None:
    """Prove that the events of a copy, and the events that follow in the log up to `end`, lead to the log's heads.

    Args:
        source: the log.
        copy: the chain at the copy's end; it is not moved.
        at: reads an event of the copy.
        end: a position of the log.
        heads: of the log at `end`; None = not known, so nothing is proven of streams that have no later events.

    Raises:
        InvalidInput: the copy is not the beginning of the log; names the first position that differs.
        LogDamaged: the log is not what was written.
    """
    if copy.position == 0:
        return
    if copy.position > end:
        raise InvalidInput(
            f"the copy is at position {copy.position}, but the log ends at {end}: it is a copy of another log, or the"
            " log was restored from an older copy since; choose a new place"
        )
    if await _differ(source, at, copy.position):
        raise await _difference(source, at, copy.position)
    chain = HashChain(copy.position, copy.heads)
    while chain.position < end:
        for sealed in await page_of(source, chain.position, end):
            if not sealed.is_intact:
                raise LogDamaged(f"position {sealed.position}: the checksum does not fit the event", sealed.position)
            try:
                chain.step(sealed)
            except LogDamaged as error:
                raise _not_a_prefix(copy.position, str(error)) from error
    try:
        if heads is not None:
            compare_heads(heads, chain, "the log")
    except LogDamaged as error:
        raise _not_a_prefix(copy.position, str(error)) from error


async def _differ(source: EventStore, at: EventAt, position: int) -> bool:
    here, there = await event_at(source, position), await at(position)
    return bool(here and there and here.hash != there.hash)


async def _difference(source: EventStore, at: EventAt, differs: int) -> InvalidInput:
    """Return the error that names the first position at which log and copy differ, found by bisection."""
    same = 0
    while differs - same > 1:
        middle = (same + differs) // 2
        if await _differ(source, at, middle):
            differs = middle
        else:
            same = middle
    here, there = await event_at(source, differs), await at(differs)
    return _not_a_prefix(differs, f"the log has {_described(here)} there, the copy {_described(there)}")


def _described(sealed: Sealed | None) -> str:
    if sealed is None:
        return "nothing"
    body = body_of(sealed)
    return f"version {body.version} of stream {body.stream} ({sealed.hash[:12]})"


def _not_a_prefix(position: int, what: str) -> InvalidInput:
    return InvalidInput(
        f"the copy is not the beginning of the log: by position {position} they have parted ({what});"
        " it is a copy of another log, or another process wrote to it; choose a new place"
    )
