"""Changes where a log begins: fills an empty stream with a whole log, and forgets events that are in the archive.

Rule: one record says where the log begins, and it is durable before anything is deleted. The events of a restored log
count from the moment that the record says so; until then, and if anything fails, the log is empty.
"""

from collections.abc import Iterator

from msgspec import msgpack
from msgspec.structs import replace
from nats.nuid import NUID

from voda.domain.errors import InvalidInput, LogDamaged
from voda.log.append_plan import GroupPlan
from voda.log.durable_store import Base
from voda.log.jetstream.log.index import GroupBoundary
from voda.log.jetstream.log.marks import BASE, IDS, PLACES, LogStart
from voda.log.jetstream.log.messages import NO_GROUP, is_appended_behind
from voda.log.jetstream.log.reader import PositionIndex
from voda.log.jetstream.log.state import ClosedSegment, LogState
from voda.log.jetstream.log.synced_log import SyncedLog
from voda.log.jetstream.log.writer import JetStreamWriter
from voda.log.jetstream.transport.blobs import BlobKey


async def restore(log: SyncedLog, writer: JetStreamWriter, batches: Iterator[GroupPlan]) -> None:
    """See DurableStore.restore."""
    state = await log.sync()
    if not state.position and ((await log.marks.read_record()).importing or log.is_importing):
        # An import was broken off: its process is gone, or fails now. If it wrote nothing, others may have appended.
        if log.is_importing:
            await _refuse_appended(log)
        await _empty(log, log.marks.record, purge=log.is_importing)
        state = await log.sync()
    if state.position:
        raise InvalidInput(f"{log.place} is not empty: it has {state.position} events")
    origin = bytes(NUID().next())
    await log.marks.write_record(replace(log.marks.record, importing=origin))
    grown = LogState(GroupBoundary(0, log.assembler.sequence + 1), {})
    closed: list[ClosedSegment] = []
    try:
        for batch in batches:
            group = await writer.write_import(batch, after=grown.sequence, prev=grown.group, origin=origin)
            last = group.after + len(group.parts)
            if segment := grown.write(group.name, group.after + 1, last, batch.rows, batch.heads):
                closed.append(segment)
        await log.marks.write_record(
            replace(log.marks.record, importing=b"", imported=origin if grown.position else b"")
        )
    except BaseException as error:
        # Only this import is undone: not a later one, nor this one if it counts although its answer was lost.
        if (await log.marks.read_record()).importing == origin:
            # Nobody else can have written behind the first group of an import; without one there is nothing to undo.
            await _empty(log, log.marks.record, purge=grown.group != NO_GROUP)
        if log.marks.record.imported != origin or not isinstance(error, Exception):
            raise
    await log.begin_anew()
    log.closed.extend(closed)
    await writer.marks.save()


async def _refuse_appended(log: SyncedLog) -> None:
    """Raise if the import was complete: other writers, who knew that, have appended behind it."""
    page = await log.stream.all_behind(await log.stream.last_sequence(), messages=1, most_bytes=1)
    if page and is_appended_behind(*page[0]):
        raise LogDamaged(
            f"{log.place}: events were appended behind an import, but the record that it was complete is missing: the"
            f" stream {log.marks.stream.name} has lost what it had acknowledged; restore the log from a copy"
        )


async def _empty(log: SyncedLog, record: LogStart, *, purge: bool) -> None:
    """Undo an import that is not complete."""
    sequence = record.sequence
    if purge:
        sequence = await log.stream.last_sequence() + 1
        # The record first: messages before the beginning do not count, whether they are deleted or not.
    await log.marks.write_record(replace(record, importing=b"", sequence=sequence))
    if purge:
        await log.stream.api("PURGE", {"seq": sequence})
    await log.begin_anew()


async def forget(log: SyncedLog, index: PositionIndex, base: Base) -> None:
    """See DurableStore.forget."""
    state = await log.sync()
    if base.position > state.position:
        raise InvalidInput(f"{log.place} ends at position {state.position}: it cannot forget up to {base.position}")
    begins = (await log.marks.base()).position
    if base.position < begins or not base.position:
        return
    # A second call finishes one that was broken off.
    if base.position > begins:
        boundary = await index.boundary(base.position)
        await log.marks.blobs.put(BlobKey(BASE, "", base.position), msgpack.encode(base))
        await log.marks.write_record(replace(log.marks.record, base=base.position, sequence=boundary.sequence))
    # Delete the messages before that of the first remaining event.
    await log.stream.api("PURGE", {"seq": log.marks.record.sequence})
    for kind in (IDS, PLACES):
        for key in await log.marks.blobs.keys(kind):
            if key.position <= base.position:
                await log.marks.blobs.drop(key)
    for key in await log.marks.blobs.keys(BASE):
        if key.position < base.position:
            await log.marks.blobs.drop(key)
    await log.begin_anew()
