"""The records beside a log's stream: where the log begins, how far it once reached, snapshots and the index.

Rule: the record of the beginning is replaced only by the writer that has read it last.
"""

import msgspec
from msgspec import Struct

from voda.domain.errors import LogDamaged, LogTooNew
from voda.log.durable_store import Base
from voda.log.jetstream import settings
from voda.log.jetstream.state import LogState
from voda.log.jetstream.transport.blobs import BlobKey, BlobStore
from voda.log.jetstream.transport.connection import NatsConnection
from voda.log.jetstream.transport.stream import MessageStream

CHECKPOINT, IDS, PLACES, BASE = "checkpoint", "ids", "places", "base"
_RECORD_FORMAT = 1


class LogStart(Struct, frozen=True, array_like=True):
    """Where the log begins."""

    format: int = _RECORD_FORMAT
    base: int = 0
    """Position of the last archived event."""
    sequence: int = 1
    """Of the first message."""
    importing: bytes = b""
    """Name of an import that is under way or was broken off; its events are not in the log yet."""
    imported: bytes = b""
    """Name of the import with which the log began."""


class EndMark(Struct, frozen=True, array_like=True):
    """The log's end, as a writer saw it."""

    position: int
    sequence: int
    """Of the last message of the last group."""
    group: bytes
    """Its name."""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(LogStart).decode
_decode_end = msgspec.msgpack.Decoder(EndMark).decode
_decode_base = msgspec.msgpack.Decoder(Base).decode


class LogMarks:
    """See the module; the connection is closed by its owner."""

    def __init__(self, connection: NatsConnection) -> None:
        name = settings.marks_of(connection.location.stream)
        self.place = connection.place
        self.stream = MessageStream(connection, name)
        self.blobs = BlobStore(
            self.stream, name, place=connection.place, max_payload_bytes=connection.max_payload_bytes
        )
        self.record = LogStart()
        self._record_subject = f"{name}.log"
        self._record_sequence = 0
        self._end_subject = f"{name}.reached"
        self._base: Base | None = None

    async def base(self) -> Base:
        """Return the log's base.

        Raises:
            LogDamaged: its record is missing or cannot be read.
        """
        await self.read_record()
        if self._base is None or self._base.position != self.record.base:
            self._base = Base()
            if self.record.base:
                data = await self.blobs.get(BlobKey(BASE, "", self.record.base))
                if data is None:
                    raise LogDamaged(f"{self.place}: the record of what was archived is missing")
                self._base = _decode_base(data)
        return self._base

    async def read_record(self) -> LogStart:
        """Read the record of the log's beginning anew, and return it."""
        found = await self.stream.last_of(self._record_subject)
        if found is None:
            self.record, self._record_sequence = LogStart(), 0
            return self.record
        try:
            self.record = _decode(found.data)
        except msgspec.MsgspecError as error:
            raise LogDamaged(f"{self.place}: the record of the log's beginning cannot be read ({error})") from error
        if self.record.format > _RECORD_FORMAT:
            raise LogTooNew(f"{self.place} was written by a newer voda: upgrade voda to open it")
        self._record_sequence = found.sequence
        return self.record

    async def write_record(self, record: LogStart) -> None:
        """Write another beginning, unless another writer has done so since it was read.

        Raises:
            StoreUnavailable: another writer has, or it is not known whether it was written.
        """
        sequence = await self.stream.publish_kept(self._record_subject, _encode(record), replaces=self._record_sequence)
        self.record, self._record_sequence = record, sequence

    async def end(self) -> EndMark | None:
        """Return the last end that a writer wrote down; None if there is none.

        Raises:
            LogDamaged: the note cannot be read.
        """
        found = await self.stream.last_of(self._end_subject)
        try:
            return _decode_end(found.data) if found else None
        except msgspec.MsgspecError as error:
            raise LogDamaged(f"{self.place}: the note of the log's end cannot be read ({error})") from error

    async def note_end(self, state: LogState) -> int:
        """Write down the log's end, durably, and return its position."""
        note = EndMark(state.position, state.sequence, state.group)
        await self.stream.publish(self._end_subject, _encode(note))
        return note.position
