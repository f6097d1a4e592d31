"""Forgets the beginning of a log that is in its archive.

Rule: the record of where the log begins is durable before anything is gone; what it has come to say stays so.
"""

from msgspec import msgpack
from msgspec.structs import replace

from voda.domain.errors import InvalidInput
from voda.log.durable_store import Base
from voda.log.jetstream.log.lookup import PositionIndex
from voda.log.jetstream.log.synced_log import BASE, IDS, PLACES, SyncedLog
from voda.log.jetstream.transport.blobs import BlobKey


async def forget(log: SyncedLog, lookup: PositionIndex, base: Base) -> None:
    """See DurableStore.forget."""
    state = await log.sync()
    if base.position > state.position:
        raise InvalidInput(f"{log.place} ends at position {state.position}: it cannot forget up to {base.position}")
    begins = (await log.base()).position
    if base.position < begins or not base.position:
        return
    # The same again finishes what was broken off.
    if base.position > begins:
        spot = await lookup.spot(base.position)
        await log.blobs.put(BlobKey(BASE, "", base.position), msgpack.encode(base))
        await log.write_record(replace(log.record, base=base.position, sequence=spot.sequence))
    # Messages before that of the first event that is kept.
    await log.stream.api("PURGE", {"seq": log.record.sequence})
    for kind in (IDS, PLACES):
        for key in await log.blobs.keys(kind):
            if key.position <= base.position:
                await log.blobs.drop(key)
    for key in await log.blobs.keys(BASE):
        if key.position < base.position:
            await log.blobs.drop(key)
    await log.begin_anew()
