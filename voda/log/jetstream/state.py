"""The state of a log, folded from its groups: heads, ids, and the index of the stream. Pure.

Rule: the same groups give the same state in every process; a group that does not follow the one before is damage.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec import Struct

from voda.domain.errors import LogDamaged, LogTooNew
from voda.events.envelope import Head
from voda.log.append_plan import EventRow
from voda.log.archive.verify import HashChain
from voda.log.jetstream.index import SEGMENT_EVENTS, IndexSegment
from voda.log.jetstream.messages import NO_GROUP, Group, OutgoingGroup
from voda.log.store import Base

FORMAT = 1


class SegmentKey(NamedTuple):
    """Where a segment of the index is in the log."""

    after: int
    """Position before it."""
    sequence: int
    """Of its first message."""
    last: int
    """Position of its last event."""


class LogState(Struct, array_like=True):
    """The state at a point of the log; that at the end of a segment is stored beside the log, as a checkpoint."""

    format: int
    position: int
    sequence: int
    """Of the last group's message."""
    heads: dict[str, Head]
    recent: IndexSegment
    """Of the events behind the last closed segment."""
    group: bytes = NO_GROUP
    """Name of the last group."""
    segments: list[SegmentKey] = []
    """Of the closed segments."""
    ids: dict[str, int] = {}
    """Event id -> position, of the events of `recent`."""

    @classmethod
    def at(cls, base: Base, sequence: int) -> "LogState":
        """Return the state of a log that begins there, with that message."""
        return cls(FORMAT, base.position, sequence - 1, dict(base.heads), IndexSegment(base.position))

    @classmethod
    def load(cls, key: object, data: bytes) -> "LogState":
        """Return the state of a checkpoint; raises LogDamaged or LogTooNew if it cannot be read."""
        try:
            state = msgspec.msgpack.decode(data, type=cls)
        except msgspec.MsgspecError as error:
            raise LogDamaged(f"{key}: it cannot be read ({error})") from error
        if state.format > FORMAT:
            raise LogTooNew(f"{key}: it is of format {state.format}, this version knows up to {FORMAT}")
        return state

    def fold(self, group: Group) -> IndexSegment | None:
        """Take the next group, and return the segment that it closes; raises LogDamaged if it does not follow."""
        group = self._trimmed(group)
        position = self.position + 1
        if group.position == position and self.group not in (NO_GROUP, group.prev):
            raise LogDamaged(
                f"position {position}: this event was written after other events than those before it:"
                " acknowledged events were lost and others took their place; restore the log from a copy",
                position,
            )
        # A damaged group changes nothing.
        chain = HashChain(self.position, over=self.heads)
        bodies = [chain.step(sealed) for sealed in group.sealed]
        return self._take(group, [(body.stream, body.event_id) for body in bodies], chain.heads)

    def write(self, group: OutgoingGroup, rows: Sequence[EventRow], heads: Mapping[str, Head]) -> IndexSegment | None:
        """Take the next group, which this process has written; return the segment that it closes."""
        return self._take(group, [(row[1], row[3]) for row in rows], heads)

    def _take(
        self, group: Group | OutgoingGroup, events: Sequence[tuple[str, str]], heads: Mapping[str, Head]
    ) -> IndexSegment | None:
        self.recent.add(group.sequence, events)
        self.ids.update((event_id, position) for position, (_, event_id) in enumerate(events, self.position + 1))
        self.position += len(events)
        self.sequence = group.sequence
        self.group = group.name
        self.heads.update(heads)
        if len(closed := self.recent) < SEGMENT_EVENTS:
            return None
        first = closed.sequence_of(closed.after + 1)
        self.segments = [*self.segments, SegmentKey(closed.after, first, closed.last)]
        self.recent, self.ids = IndexSegment(self.position), {}
        return closed

    def _trimmed(self, group: Group) -> Group:
        """Leave out archived events: a log may begin within its first group."""
        known = self.position + 1 - group.position
        if self.group != NO_GROUP or not 0 < known < len(group.sealed):
            return group
        return group._replace(position=self.position + 1, sealed=group.sealed[known:])
