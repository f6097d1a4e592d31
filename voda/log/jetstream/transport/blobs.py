"""Large records beside the log, such as snapshots: cut into pieces, each record whole or absent.

Rule: a record appears with its last message, which has the hash of all pieces; until then, the former record of the
same key stays.
"""

import asyncio
import re
from collections.abc import Sequence
from hashlib import sha256
from typing import NamedTuple

import msgspec
from msgspec import Struct

from voda.domain.errors import LogDamaged
from voda.log.jetstream.transport.errors import translate_errors
from voda.log.jetstream.transport.stream import MessageStream

_CHUNK_BYTES = 256 * 1024
_AT_ONCE = 16
"""Messages in flight."""
_OVERHEAD_BYTES = 1024
_PLAIN = re.compile(rb"[A-Za-z0-9_-]")


class _Manifest(Struct, frozen=True, array_like=True):
    chunks: int
    sha256: str


class BlobKey(NamedTuple):
    """The key of a record."""

    kind: str
    """A word of letters."""
    name: str
    position: int


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Manifest).decode


class BlobStore:
    """Stores records.

    Args:
        stream: one that keeps the last message of each subject.
        prefix: of all its subjects.
        place: URL of the log, without password.
        max_payload_bytes: of the server.
    """

    def __init__(self, stream: MessageStream, prefix: str, *, place: str, max_payload_bytes: int) -> None:
        self._stream = stream
        self._prefix = prefix
        self._place = place
        self._chunk_bytes = min(_CHUNK_BYTES, max_payload_bytes - _OVERHEAD_BYTES)

    async def put(self, key: BlobKey, data: bytes) -> None:
        """Store a record, durably, in place of the former one of its key.

        Raises:
            StoreUnavailable, StoreNotWritable: it is not stored, or the outcome is not known.
        """
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
        """Return the record of a key, or None.

        Raises:
            LogDamaged: it is not what was written.
        """
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
        """Delete a record, if there is one."""
        await self._drop(self._subject(key))
        await self._drop(f"{self._pieces(key)}.>")

    async def _drop(self, subject: str) -> None:
        await self._stream.api("PURGE", {"filter": subject})

    async def _record(self, key: BlobKey) -> _Manifest | None:
        found = await self._stream.last_of(self._subject(key))
        if found is None:
            return None
        try:
            return _decode(found.data)
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
    """Return a name as one token of a subject: bytes other than `A-Za-z0-9_-` become `=` and two digits."""
    return "".join(chr(byte) if _PLAIN.match(bytes([byte])) else f"={byte:02x}" for byte in name.encode()) or "="


def name_of(token: str) -> str:
    """Return the name that a token stands for."""
    if token == "=":
        return ""
    raw = re.sub(rb"=([0-9a-f]{2})", lambda found: bytes([int(found[1], 16)]), token.encode())
    return raw.decode()
