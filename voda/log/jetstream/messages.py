"""Encodes groups of events as messages of the stream, and decodes them. Pure.

Rule: a message alone decides whether its group counts: it does if it is where its writer expected it. So the message of
a writer that lost a race is never read, and no check by the server has to be trusted.
"""

import zlib
from collections.abc import Sequence
from hashlib import sha256
from typing import NamedTuple

import msgspec
from msgspec import Struct

from voda.domain.errors import InvalidInput, LogDamaged, LogTooNew
from voda.events.envelope import Sealed
from voda.log.append_plan import EventRow

FORMAT = 1
NO_GROUP = b""
_NAME_BYTES = 16
# The headers of a message, with a margin.
_OVERHEAD_BYTES = 1024
# A message that is too large as it is: JSON shrinks to a fifth or less.
_COMPRESSION_LEVEL = 1
_PIECE_BYTES = 256 * 1024
# Of a group that is compressed: beyond what any request to voda brings, and no more than a reader has room for.
_MOST_BYTES = 256 * 1024 * 1024
_COMPRESSED = b"\x78"
"""Begins what zlib has made, and no array of msgpack."""


class _GroupRecord(Struct, frozen=True, array_like=True, gc=False):
    """One message of the stream."""

    format: int
    name: bytes
    """Of the group: a hash over all its events and the name of the group before."""
    after: int
    """Sequence of the message that the writer expected directly before this one."""
    position: int
    """Of the first event."""
    prev: bytes
    """Name of the last counting group before this one."""
    bodies: list[bytes]
    hashes: list[bytes]


class Group(NamedTuple):
    """Events that were appended together, as read from the stream."""

    name: bytes
    sequence: int
    """Of its message."""
    prev: bytes
    position: int
    """Of its first event."""
    sealed: list[Sealed]


class OutgoingGroup(NamedTuple):
    """A group to be written."""

    name: bytes
    sequence: int
    """Of its message, if it counts."""
    data: bytes


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_GroupRecord).decode


def encode_group(rows: Sequence[EventRow], *, after: int, prev: bytes, limit_bytes: int) -> OutgoingGroup:
    """Return the message that records the events as one group.

    Args:
        rows: at least one, of consecutive positions.
        after: sequence of the stream's last message.
        prev: name of the last group that counts.
        limit_bytes: largest message that the server accepts.

    Raises:
        InvalidInput: they are too large for one message, even compressed.
    """
    digest = sha256(prev + b"%d" % rows[0][0])
    digest.update("".join([row[7] for row in rows]).encode())
    name = digest.digest()[:_NAME_BYTES]
    bodies, hashes = [row[6] for row in rows], [bytes.fromhex(row[7]) for row in rows]
    data = _encode(_GroupRecord(FORMAT, name, after, rows[0][0], prev, bodies, hashes))
    most = limit_bytes - _OVERHEAD_BYTES
    if len(data) > most and not (data := _compressed(data, most)):
        raise InvalidInput(
            f"stream {rows[0][1]}: {len(rows)} events from {rows[0][3]!a} on are too large to be appended at once:"
            f" {sum(map(len, bodies))} bytes are too many even when compressed, the server takes at most {most} in a"
            " message: append them in smaller batches, or raise max_payload in its settings"
        )
    return OutgoingGroup(name, after + 1, data)


def _compressed(data: bytes, most: int) -> bytes:
    """Return the data compressed; empty where that would be more bytes than so many, which is noticed on the way."""
    if len(data) > _MOST_BYTES:
        return b""
    packer, view, made = zlib.compressobj(_COMPRESSION_LEVEL), memoryview(data), bytearray()
    for first in range(0, len(data), _PIECE_BYTES):
        made += packer.compress(view[first : first + _PIECE_BYTES])
        if len(made) > most:
            return b""
    made += packer.flush()
    return bytes(made) if len(made) <= most else b""


def _unpacked(data: bytes) -> bytes:
    """Return what was compressed; raises zlib.error where that is damaged, cut, or larger than a group may be."""
    unpacker = zlib.decompressobj()
    found = unpacker.decompress(data, _MOST_BYTES)
    if not unpacker.eof:
        raise zlib.error("it is cut, or too large once unpacked")
    return found


def group_at(sequence: int, data: bytes) -> Group | None:
    """Return the group of a message; None if it does not count, because its writer expected it elsewhere.

    Raises:
        LogDamaged: it is no message of a log.
        LogTooNew: a newer voda wrote it.
    """
    try:
        found = _decode(_unpacked(data) if data.startswith(_COMPRESSED) else data)
    except (msgspec.MsgspecError, zlib.error) as error:
        raise LogDamaged(f"message {sequence} of the stream is no part of a voda log ({error})") from error
    if found.format > FORMAT:
        raise LogTooNew(
            f"message {sequence} of the stream was written by a newer voda (format {found.format}, this version knows"
            f" up to {FORMAT}): upgrade voda to read it"
        )
    if found.after != sequence - 1:
        return None
    events = enumerate(zip(found.bodies, found.hashes, strict=True), found.position)
    sealed = [Sealed(position, body, digest.hex()) for position, (body, digest) in events]
    return Group(found.name, sequence, found.prev, found.position, sealed)
