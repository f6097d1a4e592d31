"""The store of a log in NATS JetStream; made by `open_store`.

Rule: an append is answered once the stream has it, and a reader sees whole groups only.
"""

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Self

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import astuple
from nats.aio.msg import Msg

from voda.domain.errors import LogDamaged
from voda.events.codec import body_of, unseal
from voda.events.envelope import Event, Head, Sealed
from voda.log.append_plan import EventRow, row_of
from voda.log.group_commit import CommittedStore
from voda.log.jetstream import settings
from voda.log.jetstream.bounds import forget, refuse_cut
from voda.log.jetstream.marks import BlobKey, decoded
from voda.log.jetstream.reader import EventReader
from voda.log.jetstream.synced_log import SyncedLog
from voda.log.jetstream.transport.connection import NatsConnection
from voda.log.jetstream.transport.url import parse_url
from voda.log.jetstream.writer import JetStreamWriter
from voda.log.store import SNAPSHOTS_KEPT, Base, Snapshot, SnapshotHeads, SnapshotStore, load_heads
from voda.log.tail import TAIL_PAGE

_SNAPSHOT = "snapshot"
_POLL_S = 1.0
"""A tail reads at least so often, in case a notification is lost."""

_log = logging.getLogger(__name__)


class _SnapshotRecord(Struct, frozen=True, array_like=True):
    state: bytes
    state_hash: str
    heads: Raw


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_SnapshotRecord).decode
_decode_heads = msgspec.msgpack.Decoder(dict[str, tuple[int, str, int]]).decode


class JetStreamSnapshots(SnapshotStore):
    """A SnapshotStore in the records beside a log."""

    def __init__(self, log: SyncedLog) -> None:
        self._place = log.place
        self._blobs = log.marks.blobs

    async def save(self, snapshot: Snapshot) -> None:
        heads = {stream: astuple(head) for stream, head in snapshot.heads.items()}
        data = _encode(_SnapshotRecord(snapshot.state, snapshot.state_hash, Raw(_encode(heads))))
        await self._blobs.put(BlobKey(_SNAPSHOT, snapshot.name, snapshot.position), data)
        for key in (await self._blobs.keys(_SNAPSHOT, snapshot.name))[:-SNAPSHOTS_KEPT]:
            await self._blobs.drop(key)

    async def latest(self, name: str, *, at_most: int | None = None) -> Snapshot | None:
        for key in reversed(await self._blobs.keys(_SNAPSHOT, name)):
            if at_most is not None and key.position > at_most:
                continue
            try:
                if found := await self._load(key):
                    return found
            except LogDamaged as error:
                _log.warning("snapshot passed over place=%s reason=%s", self._place, error)
        return None

    async def all(self) -> AsyncIterator[Snapshot]:
        for key in await self._blobs.keys(_SNAPSHOT):
            # A writer may have deleted it meanwhile.
            if found := await self._load(key):
                yield load_heads(found)

    async def _load(self, key: BlobKey) -> Snapshot | None:
        data = await self._blobs.get(key)
        if data is None:
            return None
        where = f"snapshot {key.name} at position {key.position}"
        # Its checksum is that of the whole record.
        kept = decoded(_decode, data, where)
        heads = SnapshotHeads(lambda: _decode_heads(kept.heads), where)
        return Snapshot(name=key.name, position=key.position, state=kept.state, state_hash=kept.state_hash, heads=heads)


class JetStreamStore(CommittedStore):
    """A DurableStore over a connection, which it closes."""

    def __init__(self, connection: NatsConnection) -> None:
        self.connection = connection
        """A Lease beside the log uses it."""
        self._log = SyncedLog(connection)
        self.snapshots = JetStreamSnapshots(self._log)
        self._reader = EventReader(self._log)
        self._writer = JetStreamWriter(self._log, self._reader)
        super().__init__(connection.place, self._writer)
        self._is_listening = False
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
            settings.refuse_old_server(connection)
            await (settings.refuse_foreign if read_only else settings.refuse_unsafe)(connection)
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

    async def read_rows(self, after: int, limit: int) -> Sequence[EventRow]:
        """See DurableStore.read_rows. The stream has only hashes beside the bodies."""
        return [row_of(sealed, body_of(sealed)) for sealed in await self._reader.sealed(after, limit)]

    def tail(self, after: int) -> AsyncIterator[Event]:
        async def on_grown(_: Msg) -> None:
            self._growth.wake()

        async def following(after: int) -> Sequence[Event]:
            if not self._is_listening:
                await self.connection.subscribe(settings.grown_subject(self.connection.location.stream), on_grown)
                self._is_listening = True
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
        await refuse_cut(self._log, (_SNAPSHOT,))

    async def damage(self) -> str | None:
        """See DurableStore.damage. Damage that the servers find in their files shows as missing messages."""
        await self.refuse_cut()
        return None

    async def base(self) -> Base:
        return (await self._log.marks.read_start()).base

    async def forget(self, base: Base) -> None:
        await forget(self._log, self._reader.index, base)

    async def close(self) -> None:
        await self._commits.close()
        await self._writer.marks.close()
        await self.connection.close()
