"""Carries a log: to another store, to a folder of segments, to a single segment (an export), and back.

Rule: nothing is added to a copy before it is proven to be the beginning of the log, by hashes alone and without reading
what the copy has: the heads of all its streams, and the events that follow, lead to the heads of the log.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from voda.domain.errors import InvalidInput, LogArchived, LogDamaged
from voda.events.codec import body_of
from voda.events.envelope import Head, Sealed
from voda.log.append_plan import GroupPlan, row_of
from voda.log.archive.archive import SEGMENT_BYTES, SEGMENT_EVENTS, Archive, open_to_add
from voda.log.archive.segment import FORMAT_VERSION, SegmentHeader, encode_header, encode_line
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
    source: EventStore, target: DurableStore, *, follow: bool = False, progress: Progress | None = None
) -> CopyResult:
    """Copy the events that the target lacks; with `follow`, also new ones until cancelled.

    Others may append to the source meanwhile, but not to the target.

    Raises:
        InvalidInput: the target is not the beginning of the source.
        LogArchived: events that the target lacks are in the source's archive.
        LogDamaged: the source is not what was written, or the copy is not the source.
        VersionConflict: another process writes to the target.
    """
    position, heads = await target.ends()
    chain, begun = HashChain(position, heads), position
    end, wanted = await source.ends()
    await prove_prefix(source, chain, lambda position: event_at(target, position), end, wanted)
    while True:
        while chain.position < end:
            page = await page_of(source, chain.position, end)
            rows = [row_of(sealed, chain.step(sealed)) for sealed in page]
            plan = GroupPlan(rows, {row[1]: chain.heads[row[1]] for row in rows}, [])
            await target.take_over(plan, after=chain.position - len(rows))
            if progress:
                progress(chain.position, end)
        compare_heads(wanted, chain, "the source")
        end, wanted = await source.ends()
        if chain.position >= end:
            if not follow:
                break
            await asyncio.sleep(_LOOK_S)
    reached, found = await target.ends()
    compare_heads(found, chain, "the copy")
    assert reached == chain.position, "a copy whose heads are right ends where it should"
    snapshots = await _copy_snapshots(source, target, chain.position)
    last = await event_at(target, reached)
    return CopyResult(position=reached, events=reached - begun, hash=last.hash if last else "", snapshots=snapshots)


async def back_up(
    source: EventStore, folder: Path, *, until: int | None = None, progress: Progress | None = None
) -> CopyResult:
    """Add the events up to a position (None = the present end) that a folder of segments lacks; make the folder.

    Raises:
        InvalidInput: the segments are not the beginning of the log.
        LogArchived, LogDamaged: see copy_log.
        StoreNotWritable, StoreUnavailable: the folder cannot be written, or another process does.
    """
    with open_to_add(folder) as archive:
        # A killed run, or a program that copied them here, may have left them unflushed.
        await asyncio.to_thread(archive.secure)
        return await add_missing(source, archive, until=until, progress=progress)


async def restore_archive(
    archive: Archive, target: DurableStore, *, until: int | None = None, progress: Progress | None = None
) -> CopyResult:
    """Fill an empty log with the proven events of an archive or export, all up to a position (None = the end) or none.

    Raises:
        InvalidInput: the log is not empty, or the archive ends before the position.
        LogDamaged, LogTooNew: a segment is not what was written.
    """
    end = archive.position if until is None else until
    if end > archive.position:
        raise InvalidInput(f"{archive.path} ends at position {archive.position}, expected at least {end}")
    chain = HashChain()

    def groups() -> Iterator[GroupPlan]:
        for plan in archive.groups(chain, end):
            yield plan
            if progress:
                progress(chain.position, end)

    await target.restore(groups())
    _, heads = await target.ends()
    compare_heads(heads, chain, "the restored log")
    last = await event_at(target, end)
    return CopyResult(position=end, events=end, hash=last.hash if last else "")


async def export_log(source: EventStore, file: BinaryIO, *, progress: Progress | None = None) -> CopyResult:
    """Write the log as it is now as one segment; raises LogDamaged in its middle at an event that was changed."""
    end = await source.position()
    # Without heads: the log's list of streams may be damaged, and an export of its sound events repairs that.
    file.write(encode_header(SegmentHeader(version=FORMAT_VERSION, after=0, last=end, previous="", heads={})))
    chain, digest = HashChain(), ""
    while chain.position < end:
        for sealed in await page_of(source, chain.position, end):
            chain.step(sealed)
            file.write(encode_line(sealed))
            digest = sealed.hash
        if progress:
            progress(chain.position, end)
    return CopyResult(position=end, events=end, hash=digest)


async def add_missing(
    source: EventStore, archive: Archive, *, until: int | None = None, progress: Progress | None = None
) -> CopyResult:
    """Write the segments that an archive lacks; see back_up."""
    begun = archive.position
    chain = await asyncio.to_thread(archive.chain)
    position, heads = await source.ends()
    end = position if until is None else min(until, position)
    # The log may be damaged behind `until`; the events before are saved all the same.
    seen = min(max(end, chain.position), position)
    known = heads if until is None and seen == position else None
    await prove_prefix(source, chain, lambda at: asyncio.to_thread(archive.at, at), seen, known)
    waiting: list[Sealed] = []
    while (reached := chain.position + len(waiting)) < end:
        for sealed in await page_of(source, reached, end):
            waiting.append(sealed)
            if _is_full(waiting):
                await asyncio.to_thread(archive.add, waiting, chain)
                waiting = []
        if progress:
            progress(chain.position + len(waiting), end)
    if waiting:
        await asyncio.to_thread(archive.add, waiting, chain)
    if until is None and chain.position == position:
        compare_heads(heads, chain, "the log")
    last = await asyncio.to_thread(archive.at, archive.position)
    return CopyResult(position=archive.position, events=archive.position - begun, hash=last.hash if last else "")


def _is_full(events: Sequence[Sealed]) -> bool:
    return len(events) >= SEGMENT_EVENTS or (
        # Checked now and then only: bodies are small, as a rule.
        len(events) % 100 == 0 and sum(len(sealed.body) for sealed in events) >= SEGMENT_BYTES
    )


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
