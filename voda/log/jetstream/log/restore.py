"""Takes a whole log over into an empty stream.

Rule: the events count from the moment that one record says so; until then, and if anything fails, the log is empty.
"""

from collections.abc import Iterator

from msgspec.structs import replace
from nats.nuid import NUID

from voda.domain.errors import InvalidInput, LogDamaged
from voda.log.append_plan import GroupPlan
from voda.log.jetstream.log.index import GroupBoundary
from voda.log.jetstream.log.messages import NO_GROUP, is_appended_behind
from voda.log.jetstream.log.state import ClosedSegment, LogState
from voda.log.jetstream.log.synced_log import LogStart, SyncedLog
from voda.log.jetstream.log.writer import JetStreamWriter


async def restore(log: SyncedLog, writer: JetStreamWriter, batches: Iterator[GroupPlan]) -> None:
    """See DurableStore.restore."""
    state = await log.sync()
    if not state.position and ((await log.read_record()).importing or log.is_importing):
        # Broken off: whoever began it is gone, or loses now. Where it wrote nothing, nobody is kept from appending.
        if log.is_importing:
            await _refuse_appended(log)
        await _empty(log, log.record, purge=log.is_importing)
        state = await log.sync()
    if state.position:
        raise InvalidInput(f"{log.place} is not empty: it has {state.position} events")
    origin = bytes(NUID().next())
    await log.write_record(replace(log.record, importing=origin))
    grown = LogState(GroupBoundary(0, log.sequence + 1), {})
    closed: list[ClosedSegment] = []
    try:
        for batch in batches:
            group = await writer.write_import(batch, after=grown.sequence, prev=grown.group, origin=origin)
            last = group.after + len(group.parts)
            if segment := grown.write(group.name, group.after + 1, last, batch.rows, batch.heads):
                closed.append(segment)
        await log.write_record(replace(log.record, importing=b"", imported=origin if grown.position else b""))
    except BaseException as error:
        # Not another's import, which has taken this one's place, nor one that counts although nobody answered.
        if (await log.read_record()).importing == origin:
            # Nobody else can have written behind the first group of an import; without one nothing is to be undone.
            await _empty(log, log.record, purge=grown.group != NO_GROUP)
        if log.record.imported != origin or not isinstance(error, Exception):
            raise
    await log.begin_anew()
    log.closed.extend(closed)
    await writer.save()


async def _refuse_appended(log: SyncedLog) -> None:
    """Refuse to undo an import that was complete: others, who knew it, have appended behind it."""
    page = await log.stream.all_behind(await log.stream.last_sequence(), messages=1, most_bytes=1)
    if page and is_appended_behind(*page[0]):
        raise LogDamaged(
            f"{log.place}: events were appended behind an import, but the record that it was complete is missing: the"
            f" stream {log.marks.name} has lost what it had acknowledged; restore the log from a copy"
        )


async def _empty(log: SyncedLog, record: LogStart, *, purge: bool) -> None:
    """Undo an import that is not complete."""
    sequence = record.sequence
    if purge:
        sequence = await log.stream.last_sequence() + 1
        # First where the log begins: what is before it does not count, whether it is gone or not.
    await log.write_record(replace(record, importing=b"", sequence=sequence))
    if purge:
        await log.stream.api("PURGE", {"seq": sequence})
    await log.begin_anew()
