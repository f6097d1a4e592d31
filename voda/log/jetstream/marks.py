"""The records beside a log's stream: where the log begins, how far it once reached, snapshots and the index.

Rules: the log begins where the record of the furthest beginning says. A record is cut into pieces, and is whole or
absent: it appears with its last message, which has the hash of all pieces; until then, the former record of the same
key stays.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import NamedTuple, TypeVar

import msgspec
from msgspec import Struct

from voda.domain.errors import LogDamaged, LogTooNew, StoreUnavailable
from voda.events.envelope import hash_of
from voda.log.jetstream import settings
from voda.log.jetstream.state import LogState
from voda.log.jetstream.transport.connection import NatsConnection
from voda.log.jetstream.transport.stream import MessageStream, StoredMessage
from voda.log.store import Base

CHECKPOINT, SEGMENT, BASE = "checkpoint", "segment", "base"
_PIECE_BYTES = 256 * 1024
_PAGE_MESSAGES, _PAGE_BYTES = 64, 16 * 1024 * 1024
_OVERHEAD_BYTES = 1024

_log = logging.getLogger(__name__)


class _Manifest(Struct, frozen=True, array_like=True):
    pieces: int
    first: int
    """Sequence of the first piece."""
    sha256: str


class BlobKey(NamedTuple):
    """The key of a record."""

    kind: str
    """A word of letters."""
    name: str
    position: int

    def __str__(self) -> str:
        return f"{self.kind} {self.name} at position {self.position}"


class LogStart(Struct, frozen=True, array_like=True):
    """Where the log begins."""

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


def decoded(kind: type[T], data: bytes, what: object) -> T:
    """Return a decoded record; raises LogDamaged if it is none."""
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except msgspec.MsgspecError as error:
        raise LogDamaged(f"{what}: it cannot be read ({error})") from error


class LogMarks:
    """See the module; the stream keeps the last message of each subject. The connection is closed by its owner."""

    def __init__(self, connection: NatsConnection) -> None:
        self.place = connection.place
        self.stream = MessageStream(connection, settings.marks_of(connection.location.stream))
        self.start = LogStart()
        """As read last; it only moves forwards."""
        self._end_subject = f"{self.stream.name}.reached"
        self._piece_bytes = min(_PIECE_BYTES, connection.max_payload_bytes - _OVERHEAD_BYTES)

    # ---- where the log begins and ends

    async def read_start(self) -> LogStart:
        """Read anew where the log begins, and return it; raises LogDamaged if that cannot be read."""
        while (keys := await self.keys(BASE)) and keys[-1].position > self.start.base.position:
            # None: another process has archived more meanwhile.
            if data := await self.get(keys[-1]):
                self.start = decoded(LogStart, data, f"{self.place}: the record of the log's beginning")
        return self.start

    async def write_start(self, sequence: int, base: Base) -> None:
        """Write another beginning, durably; those before it may be dropped then."""
        start = LogStart(sequence=sequence, base=base)
        await self.put(BlobKey(BASE, "", base.position), _encode(start))
        self.start = start

    async def end(self) -> EndMark | None:
        """Return the last end that a writer wrote down, or None; raises LogDamaged if the note cannot be read."""
        found = await self.stream.last_of(self._end_subject)
        return decoded(EndMark, found.data, f"{self.place}: the note of the log's end") if found else None

    async def note_end(self, state: LogState) -> int:
        """Write down the log's end, durably, and return its position."""
        note = EndMark(state.position, state.sequence, state.group)
        await self.stream.publish(self._end_subject, _encode(note))
        return note.position

    # ---- records by their keys

    async def put(self, key: BlobKey, data: bytes, *, keep: int | None = None) -> None:
        """Store a record, durably, in place of the former one of its key; after an error it may be stored or not.

        It has at least one byte. Pieces of the former one stay until the key is dropped: somebody may be reading them.

        Args:
            keep: so many records of the kind and name are kept, those of the highest positions; None = all.
        """
        name = await asyncio.to_thread(hash_of, data)
        before = await self._manifest(key)
        # Otherwise another process has written it.
        if before is None or before.sha256 != name:
            sequences: list[int] = []
            for begin in range(0, len(data), self._piece_bytes):
                subject = self._piece(key, name, len(sequences))
                sequences.append(await self.stream.publish(subject, data[begin : begin + self._piece_bytes]))
            await self.stream.publish(self._subject(key), _encode(_Manifest(len(sequences), sequences[0], name)))
        if keep is not None:
            for old in (await self.keys(key.kind, key.name))[:-keep]:
                await self.drop(old)

    async def get(self, key: BlobKey) -> bytes | None:
        """Return the record of a key, or None; raises LogDamaged if it is not what was written."""
        while manifest := await self._manifest(key):
            # The nearest server may lag behind the leader, or have the pieces in another order.
            for read in (self._near, self._led):
                data = b"".join([piece.data for piece in await read(key, manifest)])
                if await asyncio.to_thread(hash_of, data) == manifest.sha256:
                    return data
            # Another process may have deleted or replaced it meanwhile.
            if await self._manifest(key) == manifest:
                raise LogDamaged(f"{key}: the checksum does not fit")
        return None

    async def newest(
        self, kind: str, load: Callable[[BlobKey, bytes], T], *, name: str = "", at_most: int | None = None
    ) -> AsyncIterator[T]:
        """Yield the records of a kind and name, the highest position first, up to one; damaged ones are passed over."""
        for key in reversed(await self.keys(kind, name)):
            try:
                if (at_most is None or key.position <= at_most) and (data := await self.get(key)):
                    yield load(key, data)
            except (LogDamaged, LogTooNew) as error:
                _log.warning("%s passed over place=%s reason=%s", kind, self.place, error)

    async def keys(self, kind: str, name: str | None = None) -> Sequence[BlobKey]:
        """Return the keys of all records of a kind, and of a name where given; lowest position first."""
        prefix = f"{self.stream.name}.{kind}."
        subjects = f"{prefix}{'*' if name is None else token(name)}.*"
        found: dict[str, int] = {}
        while True:
            answer = await self.stream.api("INFO", {"subjects_filter": subjects, "offset": len(found)})
            page = answer["state"].get("subjects") or {}
            found |= page
            if not page or len(found) >= int(answer.get("total", 0)):
                break
        parts = [subject.removeprefix(prefix).split(".") for subject in found]
        keys = [BlobKey(kind, name_of(part[0]), int(part[1])) for part in parts]
        return sorted(keys, key=lambda key: (key.position, key.name))

    async def drop(self, key: BlobKey) -> None:
        await self.stream.purge({"filter": self._subject(key)})
        await self.stream.purge({"filter": self._piece(key, "*", "*")})

    async def _near(self, key: BlobKey, manifest: _Manifest) -> Sequence[StoredMessage]:
        """Return the pieces, as far as the nearest server has them: by far the quickest."""
        found: list[StoredMessage] = []
        subject = self._piece(key, manifest.sha256, "*")
        with suppress(StoreUnavailable):
            while len(found) < manifest.pieces:
                sequence = found[-1].sequence + 1 if found else manifest.first
                limits = {"messages": _PAGE_MESSAGES, "most_bytes": _PAGE_BYTES}
                if not (page := await self.stream.page(sequence, subject=subject, **limits)):
                    break
                found += page
        return found

    async def _led(self, key: BlobKey, manifest: _Manifest) -> Sequence[StoredMessage]:
        found = [await self.stream.last_of(self._piece(key, manifest.sha256, at)) for at in range(manifest.pieces)]
        return [piece for piece in found if piece]

    async def _manifest(self, key: BlobKey) -> _Manifest | None:
        found = await self.stream.last_of(self._subject(key))
        return decoded(_Manifest, found.data, key) if found else None

    def _subject(self, key: BlobKey) -> str:
        return f"{self.stream.name}.{key.kind}.{token(key.name)}.{key.position}"

    def _piece(self, key: BlobKey, content: str, number: int | str) -> str:
        return f"{self.stream.name}.{key.kind}-pieces.{token(key.name)}.{key.position}.{content[:16]}.{number}"


def token(name: str) -> str:
    """Return any name as one token of a subject."""
    return f"x{name.encode().hex()}"


def name_of(token: str) -> str:
    """Return the name that a token stands for."""
    return bytes.fromhex(token[1:]).decode()
