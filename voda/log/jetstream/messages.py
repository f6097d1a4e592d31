"""Encodes groups of events as messages of the stream, and puts groups together again. Pure.

Rule: the messages alone decide whether a group counts: it does if all its parts are next to each other, each where its
writer expected it. So the parts of a writer that lost a race, or died half-way, are never read, and no check by the
server has to be trusted.
"""

from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import NamedTuple

import msgspec
from msgspec import Struct

from voda.domain.errors import InvalidInput, LogDamaged, LogTooNew
from voda.events.envelope import Sealed
from voda.log.append_plan import EventRow

FORMAT = 1
LARGEST_GROUP_PARTS = 64
"""Most parts of one group, which readers hold in memory together."""
NO_GROUP = b""
_NAME_BYTES = 16
# What a part has beside its events, including the headers of its message, with a margin.
_OVERHEAD_BYTES = 2048
# A hash, and the lengths before it and the body.
_EVENT_OVERHEAD_BYTES = 48


class GroupPart(Struct, frozen=True, array_like=True, gc=False):
    """One message of the stream."""

    format: int
    group: bytes
    """Name of the group: a hash over all its events, their division into parts, and the name of the group before."""
    index: int
    count: int
    """Of the group's parts."""
    after: int
    """Sequence of the message that the writer expected directly before this one."""
    position: int
    """Of the part's first event."""
    prev: bytes
    """Name of the last counting group before this one."""
    bodies: list[bytes]
    hashes: list[bytes]


class Group(NamedTuple):
    """Events that were appended together, as read from the stream."""

    name: bytes
    prev: bytes
    sequence: int
    """Of its first message."""
    last_sequence: int
    position: int
    """Of its first event."""
    sealed: list[Sealed]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(GroupPart).decode


class OutgoingGroup(NamedTuple):
    """A group to be written."""

    name: bytes
    after: int
    """Sequence of the message that its first part must follow."""
    parts: list[bytes]

    @property
    def sequence(self) -> int:
        """Of its first message."""
        return self.after + 1

    @property
    def last_sequence(self) -> int:
        return self.after + len(self.parts)


def encode_group(rows: Sequence[EventRow], *, after: int, prev: bytes, limit_bytes: int) -> OutgoingGroup:
    """Return the messages that record the events as one group.

    Args:
        rows: at least one, of consecutive positions.
        after: sequence of the stream's last message.
        prev: name of the last group that counts.
        limit_bytes: largest message that the server accepts.

    Raises:
        InvalidInput: an event is larger than a message may be, or there are too many events for one group.
    """
    chunks = list(_chunks(rows, limit_bytes - _OVERHEAD_BYTES))
    if len(chunks) > LARGEST_GROUP_PARTS:
        raise InvalidInput(
            f"{len(rows)} events are too large to be appended at once: they need {len(chunks)} messages of"
            f" {limit_bytes} bytes, expected at most {LARGEST_GROUP_PARTS}; append them in smaller batches, or raise"
            " max_payload in the server's settings"
        )
    name = _name(rows, prev, [len(chunk) for chunk in chunks])
    parts = [
        _encode(
            GroupPart(
                FORMAT,
                name,
                index,
                len(chunks),
                after + index,
                chunk[0][0],
                prev,
                [row[6] for row in chunk],
                [bytes.fromhex(row[7]) for row in chunk],
            )
        )
        for index, chunk in enumerate(chunks)
    ]
    return OutgoingGroup(name, after, parts)


class GroupAssembler:
    """Puts groups together from the messages of the stream, in order; the first one must begin a group."""

    def __init__(self, sequence: int) -> None:
        self.sequence = sequence
        """Of the last message."""
        self._parts: list[GroupPart] = []
        self._last = sequence

    @property
    def unfinished(self) -> bytes:
        """Name of a group of which parts are missing; empty = none."""
        return self._parts[0].group if self._parts else NO_GROUP

    @property
    def finished_parts(self) -> int:
        return len(self._parts)

    def take(self, sequence: int, data: bytes) -> Group | None:
        """Take the next message, and return the group that it completes; raises LogDamaged if it is not a log's."""
        part = _part(sequence, data)
        is_next = sequence == self._last + 1
        self.sequence = self._last = sequence
        if part.after != sequence - 1:
            # Its writer expected another place.
            self._parts = []
        elif part.index == 0:
            self._parts = [part]
        elif is_next and self.unfinished == part.group and part.index == len(self._parts):
            self._parts.append(part)
        else:
            self._parts = []
        if not self._parts or len(self._parts) < part.count:
            return None
        parts, self._parts = self._parts, []
        return _group(parts, sequence)


def _part(sequence: int, data: bytes) -> GroupPart:
    try:
        part = _decode(data)
    except msgspec.MsgspecError as error:
        raise LogDamaged(f"message {sequence} of the stream is no part of a voda log ({error})") from error
    if part.format > FORMAT:
        raise LogTooNew(
            f"message {sequence} of the stream was written by a newer voda (format {part.format}, this version knows"
            f" up to {FORMAT}): upgrade voda to read it"
        )
    return part


def _group(parts: Sequence[GroupPart], last_sequence: int) -> Group:
    first = parts[0]
    sealed = [
        Sealed(position, body, digest.hex())
        for part in parts
        for position, (body, digest) in enumerate(zip(part.bodies, part.hashes, strict=True), part.position)
    ]
    return Group(first.group, first.prev, last_sequence - len(parts) + 1, last_sequence, first.position, sealed)


def _chunks(rows: Sequence[EventRow], limit_bytes: int) -> Iterator[Sequence[EventRow]]:
    first = size = 0
    for index, row in enumerate(rows):
        more = len(row[6]) + _EVENT_OVERHEAD_BYTES
        if more > limit_bytes:
            raise InvalidInput(
                f"stream {row[1]}: the event {row[3]!a} has {len(row[6])} bytes, the server takes at most"
                f" {limit_bytes - _EVENT_OVERHEAD_BYTES} in a message: raise max_payload in its settings"
            )
        if size + more > limit_bytes:
            yield rows[first:index]
            first, size = index, 0
        size += more
    yield rows[first:]


def _name(rows: Sequence[EventRow], prev: bytes, sizes: Sequence[int]) -> bytes:
    digest = sha256(prev)
    if len(sizes) > 1:
        # Two writers of the same group may complete each other's parts only if they divide it alike.
        digest.update(b"%a" % list(sizes))
    digest.update(b"%d" % rows[0][0])
    digest.update("".join([row[7] for row in rows]).encode())
    return digest.digest()[:_NAME_BYTES]
