"""Moves the beginning of a log, and finds out whether its end was cut or it has holes.

Rules: one record says where the log begins, and it is durable before anything is deleted. Only a certain loss is
reported: if servers lose the end of the stream *and* the records written beside it since (a few times a second), the
log looks as if it was never longer; only a process that has read it knows better (see SyncedLog.sync).
"""

from collections.abc import Sequence
from typing import Any

from voda.domain.errors import LogDamaged
from voda.log.jetstream.marks import BASE, CHECKPOINT, SEGMENT
from voda.log.jetstream.reader import PositionIndex
from voda.log.jetstream.synced_log import SyncedLog
from voda.log.store import Base, tail_is_cut


async def forget(log: SyncedLog, index: PositionIndex, base: Base) -> None:
    """See DurableStore.forget."""
    base.refuse_beyond(log.place, (await log.sync()).position)
    begins = (await log.marks.read_start()).base.position
    if base.position < begins or not base.position:
        return
    # A second call finishes one that was broken off.
    if base.position > begins:
        boundary = await index.boundary(base.position)
        await log.marks.write_start(boundary.sequence, base)
    # Delete the messages before that of the first remaining event; nats-server 2.11 takes sequence 1 for all of them.
    if log.marks.start.sequence > 1:
        await log.stream.purge({"seq": log.marks.start.sequence})
    for kind, last in ((SEGMENT, base.position), (BASE, base.position - 1)):
        for key in await log.marks.blobs.keys(kind):
            if key.position <= last:
                await log.marks.blobs.drop(key)
    await log.begin_anew()


async def refuse_cut(log: SyncedLog, kinds: Sequence[str]) -> None:
    """See DurableStore.refuse_cut; `kinds` are further records whose positions the log once reached."""
    note = await log.marks.end()
    reached = note.position if note else 0
    for kind in (BASE, CHECKPOINT, SEGMENT, *kinds):
        reached = max([reached, *(key.position for key in await log.marks.blobs.keys(kind))])
    await _refuse_holes(log)
    position = (await log.sync()).position
    if reached > position:
        # A leader that was just elected may not know its own end yet.
        await log.stream.prove_led()
        position = (await log.sync()).position
    if reached > position:
        raise tail_is_cut(log.place, position, reached)
    # Another event may be where the log once ended.
    if note and note.sequence >= log.marks.start.sequence and not await log.has_at(note.sequence, note.group):
        raise LogDamaged(
            f"{log.place}: position {note.position}: the event here is not the one that was acknowledged:"
            " the log's tail was cut, and others were written since; restore it from a copy",
            note.position,
        )


async def _refuse_holes(log: SyncedLog) -> None:
    state = await log.stream.api("INFO", {"deleted_details": True})
    # Read afterwards: events archived meanwhile are not missing.
    start = await log.marks.read_start()
    found: dict[str, Any] = state["state"]
    first, last = int(found["first_seq"]), int(found["last_seq"])
    if first > start.sequence and last >= start.sequence:
        position = start.base.position + 1
        raise LogDamaged(
            f"{log.place}: position {position}: the event is missing: the stream begins at message {first}, expected"
            f" {start.sequence}: it was purged, or its files are damaged; restore it from a copy",
            position,
        )
    holes = [*(found.get("deleted") or ()), *((found.get("lost") or {}).get("msgs") or ())]
    if missing := [sequence for sequence in holes if sequence >= start.sequence]:
        position = await _position_at(log, min(missing))
        raise LogDamaged(
            f"{log.place}: position {position}: the event is missing: message {min(missing)} of the stream was deleted,"
            " or its file is damaged; restore it from a copy",
            position,
        )


async def _position_at(log: SyncedLog, sequence: int) -> int:
    """Return the position of the first event of a missing message."""
    position = log.marks.start.base.position
    async for group in log.groups(log.marks.start.sequence):
        if group.sequence >= sequence:
            break
        position = group.position + len(group.sealed) - 1
    return position + 1
