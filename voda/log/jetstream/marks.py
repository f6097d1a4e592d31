"""The records beside a log's stream: where the log begins, how far it once reached, snapshots and the index.

Rules: the record of the beginning is replaced only by the writer that has read it last. A large record is cut into
pieces, and is whole or absent: it appears with its last message, which has the hash of all pieces; until then, the
former record of the same key stays.
"""

import asyncio
from collections.abc import Sequence
from hashlib import sha256
from typing import NamedTuple

import msgspec
from msgspec import Struct

from voda.domain.errors import LogDamaged, LogTooNew
from voda.log.jetstream import settings
from voda.log.jetstream.state import LogState
from voda.log.jetstream.transport.client import translate_errors
from voda.log.jetstream.transport.connection import NatsConnection
from voda.log.jetstream.transport.stream import MessageStream
from voda.log.store import Base

CHECKPOINT, SEGMENT, BASE = "checkpoint", "segment", "base"
_RECORD_FORMAT = 1
_CHUNK_BYTES = 256 * 1024
_AT_ONCE = 16
"""Messages in flight."""
_OVERHEAD_BYTES = 1024


class _Manifest(Struct, frozen=True, array_like=True):
    chunks: int
    sha256: str


class BlobKey(NamedTuple):
    """The key of a record."""

    kind: str
    """A word of letters."""
    name: str
    position: int


class LogStart(Struct, frozen=True, array_like=True):
    """Where the log begins."""

    format: int = _RECORD_FORMAT
    base: int = 0
    """Position of the last archived event."""
    sequence: int = 1
    """Of the first message."""


class EndMark(Struct, frozen=True, array_like=True):
    """The log's end, as a writer saw it."""

    position: int
    sequence: int
    """Of the last message of the last group."""
    group: bytes
    """Its name."""


_encode = msgspec.msgpack.Encoder().encode
_decode_manifest = msgspec.msgpack.Decoder(_Manifest).decode
_decode_start = msgspec.msgpack.Decoder(LogStart).decode
_decode_end = msgspec.msgpack.Decoder(EndMark).decode
_decode_base = msgspec.msgpack.Decoder(Base).decode


class BlobStore:
    """Large records in a stream that keeps the last message of each subject; all subjects begin with its name."""

    def __init__(self, stream: MessageStream, connection: NatsConnection) -> None:
        self._stream = stream
        self._prefix = stream.name
        self._place = connection.place
        self._chunk_bytes = min(_CHUNK_BYTES, connection.max_payload_bytes - _OVERHEAD_BYTES)

    async def put(self, key: BlobKey, data: bytes) -> None:
        """Store a record, durably, in place of the former one of its key; after an error it may be stored or not."""
        name = sha256(data).hexdigest()
        before = await self._record(key)
        if before is not None and before.sha256 == name:
            return
        pieces = [data[first : first + self._chunk_bytes] for first in range(0, len(data), self._chunk_bytes)]
        turns = asyncio.Semaphore(_AT_ONCE)

        async def write(number: int, piece: bytes) -> None:
            async with turns:
                await self._stream.publish(self._piece(key, name, number), piece)

        # Covers the refusals by JetStream that `publish` leaves to its callers.
        async with translate_errors(self._place):
            await asyncio.gather(*(write(number, piece) for number, piece in enumerate(pieces)))
            await self._stream.publish(self._subject(key), _encode(_Manifest(len(pieces), name)))
        if before is not None:
            await self._drop(self._piece(key, before.sha256))

    async def get(self, key: BlobKey) -> bytes | None:
        """Return the record of a key, or None; raises LogDamaged if it is not what was written."""
        record = await self._record(key)
        if record is None:
            return None
        turns = asyncio.Semaphore(_AT_ONCE)

        async def read(number: int) -> bytes:
            subject = self._piece(key, record.sha256, number)
            async with turns:
                piece = await self._stream.near_last_of(subject)
                if piece is None:
                    found = await self._stream.last_of(subject)
                    piece = found.data if found else b""
                return piece

        data = b"".join(await asyncio.gather(*(read(number) for number in range(record.chunks))))
        if sha256(data).hexdigest() == record.sha256:
            return data
        if await self._record(key) != record:
            # Another process deleted or replaced it meanwhile.
            return await self.get(key)
        raise LogDamaged(f"{key.kind} {key.name} at position {key.position}: the checksum does not fit")

    async def keys(self, kind: str, name: str | None = None) -> Sequence[BlobKey]:
        """Return the keys of all records of a kind, and of a name where given; lowest position first."""
        prefix = f"{self._prefix}.{kind}."
        subjects = f"{prefix}{'*' if name is None else token(name)}.*"
        found: dict[str, int] = {}
        while True:
            body = {"subjects_filter": subjects, "offset": len(found)}
            answer = await self._stream.api("INFO", body)
            page = answer["state"].get("subjects") or {}
            found.update(page)
            if not page or len(found) >= int(answer.get("total", 0)):
                break
        parts = [subject.removeprefix(prefix).split(".") for subject in found]
        return sorted(
            (BlobKey(kind, name_of(part[0]), int(part[1])) for part in parts), key=lambda key: (key.position, key.name)
        )

    async def drop(self, key: BlobKey) -> None:
        await self._drop(self._subject(key))
        await self._drop(f"{self._pieces(key)}.>")

    async def _drop(self, subject: str) -> None:
        await self._stream.api("PURGE", {"filter": subject})

    async def _record(self, key: BlobKey) -> _Manifest | None:
        found = await self._stream.last_of(self._subject(key))
        if found is None:
            return None
        try:
            return _decode_manifest(found.data)
        except msgspec.MsgspecError as error:
            raise LogDamaged(
                f"{key.kind} {key.name} at position {key.position}: it cannot be read ({error})"
            ) from error

    def _subject(self, key: BlobKey) -> str:
        return f"{self._prefix}.{key.kind}.{token(key.name)}.{key.position}"

    def _pieces(self, key: BlobKey) -> str:
        return f"{self._prefix}.{key.kind}-pieces.{token(key.name)}.{key.position}"

    def _piece(self, key: BlobKey, content: str, number: int | None = None) -> str:
        return f"{self._pieces(key)}.{content[:16]}.{'*' if number is None else number}"


def token(name: str) -> str:
    """Return any name as one token of a subject."""
    return f"x{name.encode().hex()}"


def name_of(token: str) -> str:
    """Return the name that a token stands for."""
    return bytes.fromhex(token[1:]).decode()


class LogMarks:
    """See the module; the connection is closed by its owner."""

    def __init__(self, connection: NatsConnection) -> None:
        name = settings.marks_of(connection.location.stream)
        self.place = connection.place
        self.stream = MessageStream(connection, name)
        self.blobs = BlobStore(self.stream, connection)
        self.record = LogStart()
        self._record_subject = f"{name}.log"
        self._record_sequence = 0
        self._end_subject = f"{name}.reached"
        self._base: Base | None = None

    async def base(self) -> Base:
        """Return the log's base; raises LogDamaged if its record is missing or cannot be read."""
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
            self.record = _decode_start(found.data)
        except msgspec.MsgspecError as error:
            raise LogDamaged(f"{self.place}: the record of the log's beginning cannot be read ({error})") from error
        if self.record.format > _RECORD_FORMAT:
            raise LogTooNew(f"{self.place} was written by a newer voda: upgrade voda to open it")
        self._record_sequence = found.sequence
        return self.record

    async def write_record(self, record: LogStart) -> None:
        """Write another beginning; raises StoreUnavailable if another writer has done so since it was read."""
        sequence = await self.stream.publish_kept(self._record_subject, _encode(record), replaces=self._record_sequence)
        self.record, self._record_sequence = record, sequence

    async def end(self) -> EndMark | None:
        """Return the last end that a writer wrote down, or None; raises LogDamaged if the note cannot be read."""
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
