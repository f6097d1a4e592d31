"""The store of a log in NATS JetStream; made by `open_store`.

Rule: an append is answered once the stream has it, and a reader sees whole groups only.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Self

from nats.aio.msg import Msg

from voda.domain.errors import LogDamaged
from voda.events.codec import unseal
from voda.events.envelope import Event, Head, Sealed
from voda.log.group_commit import CommittedStore
from voda.log.jetstream import settings
from voda.log.jetstream.marks import BASE, CHECKPOINT, SEGMENT, BlobKey, LogMarks
from voda.log.jetstream.reader import EventReader
from voda.log.jetstream.synced_log import SyncedLog
from voda.log.jetstream.transport.connection import NatsConnection
from voda.log.jetstream.transport.url import parse_url
from voda.log.jetstream.writer import JetStreamWriter
from voda.log.snapshot_record import record_of, snapshot_of
from voda.log.store import SNAPSHOTS_KEPT, Base, Snapshot, SnapshotStore, load_heads, tail_is_cut
from voda.log.tail import TAIL_PAGE

_SNAPSHOT = "snapshot"
_POLL_S = 1.0
"""A tail reads at least so often, in case a notification is lost."""


class JetStreamSnapshots(SnapshotStore):
    """A SnapshotStore in the records beside a log."""

    def __init__(self, marks: LogMarks) -> None:
        self._marks = marks

    async def save(self, snapshot: Snapshot) -> None:
        record = await asyncio.to_thread(record_of, snapshot)
        await self._marks.put(BlobKey(_SNAPSHOT, snapshot.name, snapshot.position), record, keep=SNAPSHOTS_KEPT)

    async def latest(self, name: str, *, at_most: int | None = None) -> Snapshot | None:
        return await anext(self._marks.newest(_SNAPSHOT, _snapshot_of, name=name, at_most=at_most), None)

    async def all(self) -> AsyncIterator[Snapshot]:
        for key in await self._marks.keys(_SNAPSHOT):
            # A writer may have deleted it meanwhile.
            if data := await self._marks.get(key):
                yield load_heads(_snapshot_of(key, data))


def _snapshot_of(key: BlobKey, data: bytes) -> Snapshot:
    # Its checksum is that of the whole record.
    return snapshot_of(key.name, key.position, data)


class JetStreamStore(CommittedStore):
    """A DurableStore over a connection, which it closes."""

    def __init__(self, connection: NatsConnection) -> None:
        self.connection = connection
        """A Lease beside the log uses it."""
        self._log = SyncedLog(connection)
        self.snapshots = JetStreamSnapshots(self._log.marks)
        self._reader = EventReader(self._log)
        self._writer = JetStreamWriter(self._log, self._reader)
        super().__init__(connection.place, self._writer)
        connection.on_reconnect(self._growth.wake)

    @classmethod
    async def open(cls, url: str, *, read_only: bool = False, timeout_s: float = 10.0) -> Self:
        """Connect to a log; where it is only read, the servers need not be safe to write to.

        Raises:
            NotALog: there is none; only `voda log migrate` makes one.
            InvalidInput: the servers may lose events, or refuse the user.
        """
        connection = await NatsConnection.open(parse_url(url), timeout_s=timeout_s, read_only=read_only)
        try:
            await settings.check(connection, read_only=read_only)
        except BaseException:
            await connection.close()
            raise
        return cls(connection)

    @staticmethod
    async def migrate(url: str, *, timeout_s: float = 60.0) -> None:
        async with await NatsConnection.open(parse_url(url), timeout_s=timeout_s) as connection:
            await settings.migrate(connection)

    # ---- events

    async def read(self, after: int, limit: int, *, stream: str | None = None) -> Sequence[Event]:
        if stream is None:
            found: Sequence[Sealed] = await self._reader.sealed(after, limit)
        else:
            found = await self._reader.of_stream(stream, after, limit)
        return [unseal(sealed) for sealed in found]

    async def read_sealed(self, after: int, limit: int) -> Sequence[Sealed]:
        return await self._reader.sealed(after, limit)

    def tail(self, after: int) -> AsyncIterator[Event]:
        async def on_grown(_: Msg) -> None:
            self._growth.wake()

        async def following(after: int) -> Sequence[Event]:
            await self.connection.subscribe(settings.grown_subject(self.connection.location.stream), on_grown)
            # First the events that the nearest server has; if none, those that the leader knows.
            reader = self._reader
            found = await reader.sealed(after, TAIL_PAGE, to_end=False) or await reader.sealed(after, TAIL_PAGE)
            return [unseal(sealed) for sealed in found]

        return self._growth.tail(after, following, poll_s=_POLL_S, full_page=1)

    async def position(self) -> int:
        return (await self._log.sync()).position

    async def head(self, stream: str) -> Head:
        return (await self._log.sync()).heads.get(stream, Head())

    async def ends(self) -> tuple[int, Mapping[str, Head]]:
        state = await self._log.sync()
        return state.position, dict(state.heads)

    # ---- proof, copies, archive

    async def refuse_cut(self) -> None:
        await _refuse_cut(self._log)

    async def base(self) -> Base:
        return (await self._log.marks.read_start()).base

    async def forget(self, base: Base) -> None:
        await _forget(self._log, self._reader, base)

    async def close(self) -> None:
        await self._commits.close()
        await self._writer.marks.close()
        await self.connection.close()


async def _forget(log: SyncedLog, reader: EventReader, base: Base) -> None:
    """See DurableStore.forget. One record says where the log begins; it is durable before anything is deleted."""
    base.refuse_beyond(log.place, (await log.sync()).position)
    begins = (await log.marks.read_start()).base.position
    if base.position < begins or not base.position:
        return
    # A second call finishes one that was broken off.
    if base.position > begins:
        await log.marks.write_start(await reader.sequence_behind(base.position), base)
    # Delete the messages before that of the first remaining event; nats-server 2.11 takes sequence 1 for all of them.
    if log.marks.start.sequence > 1:
        await log.stream.purge({"seq": log.marks.start.sequence})
    for kind, last in ((SEGMENT, base.position), (BASE, base.position - 1)):
        for key in await log.marks.keys(kind):
            if key.position <= last:
                await log.marks.drop(key)
    await log.begin_anew()


async def _refuse_cut(log: SyncedLog) -> None:
    """Raise LogDamaged if the log's end was cut or it has holes.

    Only a certain loss is reported: if servers lose the end of the stream *and* the records written beside it since (a
    few times a second), the log looks as if it was never longer; only a process that has read it knows better (see
    SyncedLog.sync).
    """
    note = await log.marks.end()
    reached = note.position if note else 0
    for kind in (BASE, CHECKPOINT, SEGMENT, _SNAPSHOT):
        reached = max([reached, *(key.position for key in await log.marks.keys(kind))])
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
