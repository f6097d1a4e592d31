"""The records beside a log's stream: where the log begins, how far it once reached, snapshots and the index.

Rules: the log begins where the record of the furthest beginning says. A large record is cut into pieces, and is whole
or absent: it appears with its last message, which has the hash of all pieces; until then, the former record of the
same key stays.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from hashlib import sha256
from typing import NamedTuple, TypeVar

import msgspec
from msgspec import Struct

from voda.domain.errors import LogDamaged, LogTooNew
from voda.log.jetstream import settings
from voda.log.jetstream.state import LogState
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
    sequence: int = 1
    """Of the first message."""
    base: Base = Base()


class EndMark(Struct, frozen=True, array_like=True):
    """The log's end, as a writer saw it."""

    position: int
    sequence: int
    """Of the last message of the last group."""
    group: bytes
    """Its name."""


T = TypeVar("T")
_encode = msgspec.msgpack.Encoder().encode
_decode_manifest = msgspec.msgpack.Decoder(_Manifest).decode
_decode_start = msgspec.msgpack.Decoder(LogStart).decode
_decode_end = msgspec.msgpack.Decoder(EndMark).decode


def decoded(decode: Callable[[bytes], T], data: bytes, what: str) -> T:
    """Return a decoded record; raises LogDamaged if it is none."""
    try:
        return decode(data)
    except msgspec.MsgspecError as error:
        raise LogDamaged(f"{what}: it cannot be read ({error})") from error


class BlobStore:
    """Large records in a stream that keeps the last message of each subject; all subjects begin with its name."""

    def __init__(self, stream: MessageStream, connection: NatsConnection) -> None:
        self._stream = stream
        self._prefix = stream.name
        self._chunk_bytes = min(_CHUNK_BYTES, connection.max_payload_bytes - _OVERHEAD_BYTES)

    async def put(self, key: BlobKey, data: bytes) -> None:
        """Store a record, durably, in place of the former one of its key; after an error it may be stored or not.

        Pieces of the former one stay until the key is dropped: somebody may be reading them.
        """
        name = sha256(data).hexdigest()
        before = await self._record(key)
        if before is not None and before.sha256 == name:
            # As another process has written it.
            return
        pieces = [data[first : first + self._chunk_bytes] for first in range(0, len(data), self._chunk_bytes)]
        await _few_at_once(lambda at: self._stream.publish(self._piece(key, name, at), pieces[at]), len(pieces))
        await self._stream.publish(self._subject(key), _encode(_Manifest(len(pieces), name)))

    async def get(self, key: BlobKey) -> bytes | None:
        """Return the record of a key, or None; raises LogDamaged if it is not what was written."""
        record = await self._record(key)
        if record is None:
            return None
        pieces = await _few_at_once(lambda at: self._stream.last_of(self._piece(key, record.sha256, at)), record.chunks)
        data = b"".join(piece.data for piece in pieces if piece)
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
            found |= page
            if not page or len(found) >= int(answer.get("total", 0)):
                break
        parts = [subject.removeprefix(prefix).split(".") for subject in found]
        return sorted(
            (BlobKey(kind, name_of(part[0]), int(part[1])) for part in parts), key=lambda key: (key.position, key.name)
        )

    async def drop(self, key: BlobKey) -> None:
        await self._stream.purge({"filter": self._subject(key)})
        await self._stream.purge({"filter": f"{self._pieces(key)}.>"})

    async def _record(self, key: BlobKey) -> _Manifest | None:
        found = await self._stream.last_of(self._subject(key))
        where = f"{key.kind} {key.name} at position {key.position}"
        return decoded(_decode_manifest, found.data, where) if found else None

    def _subject(self, key: BlobKey) -> str:
        return f"{self._prefix}.{key.kind}.{token(key.name)}.{key.position}"

    def _pieces(self, key: BlobKey) -> str:
        return f"{self._prefix}.{key.kind}-pieces.{token(key.name)}.{key.position}"

    def _piece(self, key: BlobKey, content: str, number: int) -> str:
        return f"{self._pieces(key)}.{content[:16]}.{number}"


async def _few_at_once(call: Callable[[int], Awaitable[T]], count: int) -> list[T]:
    """Return the answers to the calls with 0, 1, ..."""
    turns = asyncio.Semaphore(_AT_ONCE)

    async def answer(number: int) -> T:
        async with turns:
            return await call(number)

    return await asyncio.gather(*map(answer, range(count)))


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
        self.start = LogStart()
        """As read last; it only moves forwards."""
        self._end_subject = f"{name}.reached"

    async def read_start(self) -> LogStart:
        """Read anew where the log begins, and return it; raises LogDamaged or LogTooNew if that cannot be read."""
        while (keys := await self.blobs.keys(BASE)) and keys[-1].position > self.start.base.position:
            # None: another process has archived more meanwhile.
            if data := await self.blobs.get(keys[-1]):
                self.start = decoded(_decode_start, data, f"{self.place}: the record of the log's beginning")
                if self.start.format > _RECORD_FORMAT:
                    raise LogTooNew(f"{self.place} was written by a newer voda: upgrade voda to open it")
        return self.start

    async def write_start(self, sequence: int, base: Base) -> None:
        """Write another beginning, durably; those before it may be dropped then."""
        start = LogStart(sequence=sequence, base=base)
        await self.blobs.put(BlobKey(BASE, "", base.position), _encode(start))
        self.start = start

    async def end(self) -> EndMark | None:
        """Return the last end that a writer wrote down, or None; raises LogDamaged if the note cannot be read."""
        found = await self.stream.last_of(self._end_subject)
        return decoded(_decode_end, found.data, f"{self.place}: the note of the log's end") if found else None

    async def note_end(self, state: LogState) -> int:
        """Write down the log's end, durably, and return its position."""
        note = EndMark(state.position, state.sequence, state.group)
        await self.stream.publish(self._end_subject, _encode(note))
        return note.position
