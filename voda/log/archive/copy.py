"""Copies a log to another store, and to a folder of segments.

Rule: nothing is added to a copy before it is proven to be the beginning of the log: the heads of all its streams, and
the events that come next, lead to the heads of the log.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from msgspec import Struct

from voda.domain.errors import InvalidInput, LogDamaged
from voda.events.envelope import Sealed
from voda.log.append_plan import GroupPlan, row_of
from voda.log.archive.archive import SEGMENT_BYTES, SEGMENT_EVENTS, Archive, adding
from voda.log.archive.common_prefix import event_at, page_of, prove_beginning
from voda.log.archive.verify import HashChain, Progress, compare_heads, ends_of
from voda.log.durable_store import DurableStore
from voda.log.store import EventStore, Snapshot

_LOOK_S = 0.2
"""How often a copy that follows looks for more."""


class CopyResult(Struct, frozen=True, kw_only=True):
    """What a copy has come to."""

    position: int
    """Of the copy's last event."""
    events: int
    """Of these, how many this run added."""
    hash: str
    """Of the last event; empty in an empty log."""
    snapshots: int = 0
    """Copied as well."""


async def copy_log(
    source: EventStore, target: DurableStore, *, follow: bool = False, progress: Progress | None = None
) -> CopyResult:
    """Bring the target level with the source; what an earlier copy brought is kept.

    Args:
        source: any log; others may append to it meanwhile.
        target: empty, or with the first events of the source. Nobody else may write to it.
        follow: go on for ever, until cancelled.
        progress: called once per page.

    Raises:
        InvalidInput: the target is not the beginning of the source.
        LogArchived: events that the target lacks are in the source's archive.
        LogDamaged: the source is not what was written, or the copy is not the source.
        VersionConflict: somebody else writes to the target.
    """
    position, heads = await target.ends()
    walk, begun = HashChain(position, heads), position
    end, wanted = await ends_of(source)
    await prove_beginning(source, walk, lambda position: event_at(target, position), end, wanted)
    while True:
        while walk.position < end:
            page = await page_of(source, walk.position, end)
            rows = [row_of(sealed, walk.step(sealed)) for sealed in page]
            plan = GroupPlan(rows, {row[1]: walk.heads[row[1]] for row in rows}, [])
            await target.take_over(plan, after=walk.position - len(rows))
            if progress:
                progress(walk.position, end)
        compare_heads(wanted, walk, "the source")
        end, wanted = await ends_of(source)
        if walk.position >= end:
            if not follow:
                break
            await asyncio.sleep(_LOOK_S)
    reached, found = await target.ends()
    compare_heads(found, walk, "the copy")
    assert reached == walk.position, "a copy whose heads are right ends where it should"
    snapshots = await _copy_snapshots(source, target, walk.position)
    last = await event_at(target, reached)
    return CopyResult(position=reached, events=reached - begun, hash=last.hash if last else "", snapshots=snapshots)


async def back_up(
    source: EventStore, folder: Path, *, until: int | None = None, progress: Progress | None = None
) -> CopyResult:
    """Bring a folder of segments level with the log as it is now; segments that are there are kept.

    Args:
        source: any log; others may append to it meanwhile.
        folder: of segments; made where there is none.
        until: position to stop at; None = the end.
        progress: called once per page.

    Raises:
        InvalidInput: the segments are not the beginning of the log.
        LogArchived, LogDamaged: see copy_log.
        StoreNotWritable, StoreUnavailable: the folder cannot be written, or another process does.
    """
    with adding(folder) as archive:
        # A run that was killed may have left them to the kernel, and so may whoever copied them here.
        await asyncio.to_thread(archive.secure)
        return await add_missing(source, archive, until=until, progress=progress)


async def restore_archive(
    archive: Archive, target: DurableStore, *, until: int | None = None, progress: Progress | None = None
) -> None:
    """Fill an empty log with the events of an archive, all up to a position or nothing.

    Args:
        archive: each event of it is proven.
        target: an empty log.
        until: last position to take; None = all.
        progress: called once per page.

    Raises:
        InvalidInput: the log is not empty, or the archive ends before the position.
        LogDamaged, LogTooNew: a segment is not what was written.
    """
    end = archive.position if until is None else until
    if end > archive.position:
        raise InvalidInput(f"{archive.folder} ends at position {archive.position}, expected at least {end}")
    walk = HashChain()

    def groups() -> Iterator[GroupPlan]:
        for plan in archive.groups(walk, end):
            yield plan
            if progress:
                progress(walk.position, end)

    await target.restore(groups())
    _, heads = await target.ends()
    compare_heads(heads, walk, "the restored log")


async def add_missing(
    source: EventStore, archive: Archive, *, until: int | None = None, progress: Progress | None = None
) -> CopyResult:
    """Write the segments that an archive lacks; see back_up."""
    begun = archive.position
    walk = await asyncio.to_thread(archive.walk)
    position, heads = await ends_of(source)
    end = position if until is None else min(until, position)
    # Beyond, the log may be damaged: what comes before is saved all the same.
    seen = min(max(end, walk.position), position)
    known = heads if until is None and seen == position else None
    await prove_beginning(source, walk, lambda at: asyncio.to_thread(archive.at, at), seen, known)
    waiting: list[Sealed] = []
    while (reached := walk.position + len(waiting)) < end:
        for sealed in await page_of(source, reached, end):
            waiting.append(sealed)
            if _is_full(waiting):
                await asyncio.to_thread(archive.add, waiting, walk)
                waiting = []
        if progress:
            progress(walk.position + len(waiting), end)
    if waiting:
        await asyncio.to_thread(archive.add, waiting, walk)
    if until is None and walk.position == position:
        compare_heads(heads, walk, "the log")
    last = await asyncio.to_thread(archive.at, archive.position)
    return CopyResult(position=archive.position, events=archive.position - begun, hash=last.hash if last else "")


def _is_full(events: Sequence[Sealed]) -> bool:
    return len(events) >= SEGMENT_EVENTS or (
        # Looked at now and then only: bodies are small, as a rule.
        len(events) % 100 == 0 and sum(len(sealed.body) for sealed in events) >= SEGMENT_BYTES
    )


async def _copy_snapshots(source: EventStore, target: DurableStore, position: int) -> int:
    """Copy the snapshots that fit, so that whoever opens the copy need not fold all of it; a damaged one ends it."""
    if not isinstance(source, _Keeper):
        return 0
    copied = 0
    try:
        async for snapshot in source.snapshots():
            if snapshot.position <= position and sum(head.version for head in snapshot.heads.values()) <= position:
                await target.save_snapshot(snapshot)
                copied += 1
    except LogDamaged:
        # The log has it all; who needs a snapshot takes another.
        return copied
    return copied


@runtime_checkable
class _Keeper(Protocol):
    """A store that shows its snapshots."""

    def snapshots(self) -> AsyncIterator[Snapshot]:
        """Yield every snapshot, lowest position first."""
        ...
