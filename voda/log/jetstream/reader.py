"""Reads events by position, and finds where in the stream they are: by position, by stream, by id.

Rules: a page shorter than asked for ends at the log's end, and a gap is damage. The index beside the log only saves
time: a segment of it that is missing or damaged is made again from the events.
"""

import logging
from collections.abc import AsyncIterator, Sequence

import msgspec

from voda.domain.errors import LogDamaged
from voda.events.codec import body_of
from voda.events.envelope import Sealed
from voda.log.jetstream.index import GroupBoundary, IdIndex, IndexSegment, OpenSegment, boundary_before, positions_of
from voda.log.jetstream.marks import SEGMENT, BlobKey
from voda.log.jetstream.messages import Group
from voda.log.jetstream.state import LogState
from voda.log.jetstream.synced_log import SyncedLog

_MOST_MESSAGES = 1000
_FEWEST_BYTES, _MOST_BYTES = 256 * 1024, 8 * 1024 * 1024
_EVENT_BYTES = 1024
"""Of most events, with their overhead."""
_NEAR = 64
"""Events of one stream that are no further apart are read in one go, with all between them."""
_SEGMENTS_CACHED = 4
_Key = tuple[int, int, int]
"""Of a segment: see Checkpoint."""

_log = logging.getLogger(__name__)
_decode_segment = msgspec.msgpack.Decoder(IndexSegment).decode


class EventReader:
    """Reads the events of a log."""

    def __init__(self, log: SyncedLog) -> None:
        self._log = log
        self.index = PositionIndex(log)
        # The group in which the last page ended: the next page begins there.
        self._last: Group | None = None

    async def sealed(self, after: int, limit: int, *, to_end: bool = True) -> list[Sealed]:
        """Return up to `limit` events behind a position.

        Args:
            to_end: False: it may return fewer events than there are, and is quicker.

        Raises:
            LogArchived: the events are in the archive.
            LogDamaged: an event is missing, or cannot be read.
        """
        found: list[Sealed] = []
        try:
            async for group in self._from(after, limit, to_end):
                expected = after + len(found) + 1
                if group.position > expected:
                    await self._refuse_archived(after)
                    raise _missing(expected)
                start = expected - group.position
                found += group.sealed[start : start + limit - len(found)]
                self._last = group
                if len(found) == limit:
                    return found
        except LogDamaged as error:
            if error.position is not None:
                raise
            expected = after + len(found) + 1
            raise LogDamaged(f"position {expected}: {error}", expected) from error
        if not found and to_end and self._log.is_loaded and after < self._log.state.position:
            # There were more: they were archived meanwhile.
            await self._refuse_archived(after)
        return found

    async def of_stream(self, stream: str, after: int, limit: int) -> list[Sealed]:
        base = (await self._log.marks.read_start()).base
        base.refuse_archived(self._log.place, after, stream)
        after = max(after, base.position)
        positions: list[int] = []
        found: list[Sealed] = []
        async for position in self.index.positions_of(stream, after):
            positions.append(position)
            if len(positions) == limit:
                found += await self._of_stream_at(stream, positions)
                positions = []
                # Other streams may have the same hash, so there may be too few.
                if len(found) >= limit:
                    return found[:limit]
        return (found + await self._of_stream_at(stream, positions))[:limit]

    async def has(self, event_id: str, position: int) -> bool:
        """Return whether the event at a position is of that id; ids of archived events are not known."""
        if position <= (await self._log.marks.read_start()).base.position:
            return False
        found = await self.sealed(position - 1, 1)
        return bool(found) and body_of(found[0]).event_id == event_id

    async def _of_stream_at(self, stream: str, positions: Sequence[int]) -> list[Sealed]:
        found: list[Sealed] = []
        for near in _runs(positions):
            wanted = set(near)
            page = await self.sealed(near[0] - 1, near[-1] - near[0] + 1)
            found += [one for one in page if one.position in wanted and body_of(one).stream == stream]
        return found

    async def _from(self, after: int, limit: int, to_end: bool) -> AsyncIterator[Group]:
        if after < self._log.marks.start.base.position or not self._log.is_loaded:
            await self._refuse_archived(after)
        if self._last is not None and 0 <= after + 1 - self._last.position <= len(self._last.sealed):
            yield self._last
            sequence = self._last.sequence + 1
        else:
            sequence = (await self.index.boundary(after)).sequence
        most_bytes = min(max(limit * _EVENT_BYTES, _FEWEST_BYTES), _MOST_BYTES)
        messages = min(limit + 1, _MOST_MESSAGES)
        async for group in self._log.groups(sequence, messages=messages, most_bytes=most_bytes, to_end=to_end):
            yield group

    async def _refuse_archived(self, after: int) -> None:
        (await self._log.marks.read_start()).base.refuse_archived(self._log.place, after)


class PositionIndex:
    """Finds events in the stream."""

    def __init__(self, log: SyncedLog) -> None:
        self._log = log
        self._of: LogState | None = None
        """The state of which the rest is."""
        self._ids = IdIndex()
        self._segments: dict[int, IndexSegment] = {}

    async def boundary(self, after: int) -> GroupBoundary:
        """Return the boundary from which to read the events behind a position, which is not below the base."""
        log = self._log
        # The beginning is known without the state.
        if not log.is_loaded and after == (start := await log.marks.read_start()).base.position:
            return GroupBoundary(after, start.sequence)
        state = log.state if log.is_loaded and after < log.state.position else await log.sync()
        if after >= state.position:
            return GroupBoundary(state.position, state.sequence + 1)
        if after >= state.recent.after:
            return state.recent.boundary(after + 1)
        for segment in reversed(state.segments):
            if segment[0] <= after < segment[2]:
                return boundary_before(await self._segment(segment), after + 1)
        return GroupBoundary(log.marks.start.base.position, log.marks.start.sequence)

    async def positions_of(self, stream: str, after: int) -> AsyncIterator[int]:
        """Yield the positions behind `after` that events of a stream may have, in order."""
        state = await self._log.sync()
        recent = state.recent.streams, state.recent.after
        for key in [key for key in state.segments if key[2] > after]:
            segment = await self._segment(key)
            for position in positions_of(stream, segment.streams, segment.after):
                if position > after:
                    yield int(position)
        for position in positions_of(stream, *recent):
            if position > after:
                yield int(position)

    async def ids(self) -> IdIndex:
        self._refresh()
        segments = self._log.state.segments
        while len(self._ids) < len(segments):
            self._ids.add(await self._segment(segments[len(self._ids)]))
            segments = self._log.state.segments
        return self._ids

    def _refresh(self) -> None:
        if self._of is not self._log.state:
            self._of, self._ids, self._segments = self._log.state, IdIndex(), {}

    async def _segment(self, key: _Key) -> IndexSegment:
        self._refresh()
        last = key[2]
        if last not in self._segments:
            closed = next((one.segment for one in self._log.closed if one.segment.last == last), None)
            self._segments[last] = closed or await self._stored(last) or await self._rebuilt(key)
            if len(self._segments) > _SEGMENTS_CACHED:
                del self._segments[next(iter(self._segments))]
        return self._segments[last]

    async def _stored(self, last: int) -> IndexSegment | None:
        try:
            data = await self._log.marks.blobs.get(BlobKey(SEGMENT, "", last))
        except LogDamaged as error:
            _log.warning("segment made again place=%s reason=%s", self._log.place, error)
            return None
        return _decode_segment(data) if data else None

    async def _rebuilt(self, key: _Key) -> IndexSegment:
        """Make a segment again, without its archived events."""
        first, sequence, last = key
        # Read the base anew: events archived meanwhile would shift all positions.
        start = await self._log.marks.read_start()
        position = max(first, start.base.position)
        recent = OpenSegment(position)
        async for group in self._log.groups(max(sequence, start.sequence)):
            sealed = [one for one in group.sealed if one.position > position]
            names = [(body.stream, body.event_id) for body in map(body_of, sealed)]
            recent.add(GroupBoundary(position, group.sequence), names)
            position += len(sealed)
            if position >= last:
                break
        return recent.segment()


def _missing(position: int) -> LogDamaged:
    return LogDamaged(f"position {position}: the event is missing", position)


def _runs(positions: Sequence[int]) -> list[list[int]]:
    """Split ascending positions where they are far apart."""
    runs: list[list[int]] = []
    for position in positions:
        if runs and position - runs[-1][-1] <= _NEAR:
            runs[-1].append(position)
        else:
            runs.append([position])
    return runs
