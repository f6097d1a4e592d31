"""Groups of events as messages: what the stream holds. Pure.

Rule: whether a group counts is decided by the messages alone: it does if all its parts stand next to each other, each
where its writer expected it. So a writer that lost a race, or died half-way, leaves parts that nobody reads, and no
check of the server's needs to be believed for that.
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
"""Parts of one group, which readers take into memory together."""
NO_GROUP = b""
_NAME_BYTES = 16
# What a part holds beside its events, the headers of its message included, with room to spare.
_OVERHEAD_BYTES = 2048
# A hash, and the lengths that stand before it and its body.
_EVENT_OVERHEAD_BYTES = 48


class GroupPart(Struct, frozen=True, array_like=True, gc=False):
    """One message of the stream."""

    format: int
    group: bytes
    """Name of the group: a hash over all its events, how they are cut, and the name of the group before."""
    index: int
    count: int
    """Of the group's parts."""
    after: int
    """Sequence of the message that the writer knew to be, or expected to be, the one before."""
    position: int
    """Of the part's first event."""
    prev: bytes
    """Name of the last group that counts before this one."""
    origin: bytes
    """Name of the import that the group is a part of; empty = it was appended."""
    bodies: list[bytes]
    hashes: list[bytes]


class Group(NamedTuple):
    """Events that were appended together, as found in the stream."""

    name: bytes
    prev: bytes
    origin: bytes
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
    """Sequence of the message that its first part is to follow."""
    parts: list[bytes]


def encode_group(
    rows: Sequence[EventRow], *, after: int, prev: bytes, limit_bytes: int, origin: bytes = b""
) -> OutgoingGroup:
    """Return the messages that record the events as one group.

    Args:
        rows: at least one, of consecutive positions.
        after: sequence of the stream's last message.
        prev: name of the last group that counts.
        limit_bytes: largest message that the server takes.
        origin: see Part.

    Raises:
        InvalidInput: an event is larger than a message may be, or all of them are too many for one group.
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
                origin,
                [row[6] for row in chunk],
                [bytes.fromhex(row[7]) for row in chunk],
            )
        )
        for index, chunk in enumerate(chunks)
    ]
    return OutgoingGroup(name, after, parts)


class GroupAssembler:
    """Puts groups together from the messages of the stream, taken in order.

    Args:
        sequence: of the message before the first that is taken, which must begin a group.
    """

    def __init__(self, sequence: int) -> None:
        self.sequence = sequence
        """Of the last message taken."""
        self._parts: list[GroupPart] = []
        self._last = sequence

    @property
    def unfinished(self) -> bytes:
        """Name of the group that the next message may go on with; empty = none."""
        return self._parts[0].group if self._parts else NO_GROUP

    @property
    def finished_parts(self) -> int:
        """How many parts of the unfinished group are there."""
        return len(self._parts)

    def take(self, sequence: int, data: bytes) -> Group | None:
        """Take the next message, and return the group that it is the last part of.

        Raises:
            LogDamaged: it is no part of a log.
            LogTooNew: it was written by a newer voda.
        """
        part = _part(sequence, data)
        is_next = sequence == self._last + 1
        self.sequence = self._last = sequence
        if part.after != sequence - 1:
            # Its writer expected to write elsewhere.
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


def is_appended_behind(sequence: int, data: bytes) -> bool:
    """Return whether a message was appended, not imported, by somebody who knew of events before it.

    Raises:
        LogDamaged, LogTooNew: see Assembly.take.
    """
    part = _part(sequence, data)
    return not part.origin and part.prev != NO_GROUP


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
    return Group(
        first.group, first.prev, first.origin, last_sequence - len(parts) + 1, last_sequence, first.position, sealed
    )


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
        # Two who write the same at the same time may go on with each other's parts only if they cut it alike.
        digest.update(b"%a" % list(sizes))
    digest.update(b"%d" % rows[0][0])
    digest.update("".join([row[7] for row in rows]).encode())
    return digest.digest()[:_NAME_BYTES]
