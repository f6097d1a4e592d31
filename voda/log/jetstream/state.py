"""The state of a log, folded from its groups: heads, ids, and the index of the stream. Pure.

Rule: the same groups give the same state in every process; a group that does not follow the one before is damage.
"""

from collections import ChainMap
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

from voda.domain.errors import LogDamaged, LogTooNew
from voda.events.envelope import Head
from voda.log.append_plan import EventRow
from voda.log.archive.verify import HashChain
from voda.log.jetstream.index import SEGMENT_EVENTS, GroupBoundary, IndexSegment, OpenSegment
from voda.log.jetstream.messages import NO_GROUP, Group, OutgoingGroup

FORMAT = 1


class Checkpoint(Struct, frozen=True, array_like=True):
    """The state at the end of a segment, as stored beside the log."""

    format: int
    position: int
    sequence: int
    """Of the last group's message."""
    group: bytes
    """Name of the last group."""
    segments: list[tuple[int, int, int]]
    """Of each closed segment: position before it, sequence of its first message, position of its last event."""
    heads: dict[str, tuple[int, bytes, int]]


class ClosedSegment(Struct, frozen=True):
    """A segment of the index that is complete."""

    segment: IndexSegment
    checkpoint: bytes
    """Empty if there are newer ones."""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Checkpoint).decode


class LogState:
    """See the module; `base` is where the log begins, with these heads."""

    def __init__(self, base: GroupBoundary, heads: Mapping[str, Head]) -> None:
        self.position = base.position
        self.sequence = base.sequence - 1
        """Of the last group's message."""
        self.group = NO_GROUP
        """Name of the last group."""
        self.heads = dict(heads)
        self.recent = OpenSegment(base.position)
        self.segments: list[tuple[int, int, int]] = []
        """See Checkpoint."""
        self._first_sequence = base.sequence

    @classmethod
    def load(cls, data: bytes) -> "LogState":
        """Return the state of a checkpoint; raises LogDamaged or LogTooNew if it cannot be read."""
        try:
            kept = _decode(data)
        except msgspec.MsgspecError as error:
            raise LogDamaged(f"a checkpoint of the log cannot be read ({error})") from error
        if kept.format > FORMAT:
            raise LogTooNew(f"a checkpoint of the log is of format {kept.format}, this version knows up to {FORMAT}")
        heads = {stream: Head(version, digest.hex(), epoch) for stream, (version, digest, epoch) in kept.heads.items()}
        state = cls(GroupBoundary(kept.position, kept.sequence + 1), heads)
        state.group = kept.group
        state.segments = kept.segments
        return state

    def fold(self, group: Group) -> ClosedSegment | None:
        """Take the next group, and return the segment that it closes; raises LogDamaged if it does not follow."""
        group = self._trimmed(group)
        position = self.position + 1
        if group.position == position and self.group not in (NO_GROUP, group.prev):
            raise LogDamaged(
                f"position {position}: this event was written after other events than those before it:"
                " acknowledged events were lost and others took their place; restore the log from a copy",
                position,
            )
        grown: dict[str, Head] = {}
        # Of a copy, because a damaged group changes nothing.
        chain = HashChain(self.position)
        chain.heads = ChainMap(grown, self.heads)
        bodies = [chain.step(sealed) for sealed in group.sealed]
        return self._take(group, [(body.stream, body.event_id) for body in bodies], grown)

    def write(self, group: OutgoingGroup, rows: Sequence[EventRow], heads: Mapping[str, Head]) -> ClosedSegment | None:
        """Take the next group, which this process has written; return the segment that it closes."""
        return self._take(group, [(row[1], row[3]) for row in rows], heads)

    def _take(
        self, group: Group | OutgoingGroup, events: Sequence[tuple[str, str]], heads: Mapping[str, Head]
    ) -> ClosedSegment | None:
        self.recent.add(GroupBoundary(self.position, group.sequence), events)
        self.position += len(events)
        self.sequence = group.sequence
        self.group = group.name
        self.heads.update(heads)
        return self._close() if len(self.recent) >= SEGMENT_EVENTS else None

    def _close(self) -> ClosedSegment:
        segment = self.recent.segment()
        self.segments = [*self.segments, (self.recent.after, self._first_sequence, self.position)]
        self.recent = OpenSegment(self.position)
        self._first_sequence = self.sequence + 1
        heads = {stream: (head.version, bytes.fromhex(head.hash), head.epoch) for stream, head in self.heads.items()}
        kept = Checkpoint(FORMAT, self.position, self.sequence, self.group, self.segments, heads)
        return ClosedSegment(segment, _encode(kept))

    def _trimmed(self, group: Group) -> Group:
        """Leave out archived events: a log may begin within its first group."""
        known = self.position + 1 - group.position
        if self.group != NO_GROUP or not 0 < known < len(group.sealed):
            return group
        return group._replace(position=self.position + 1, sealed=group.sealed[known:])
