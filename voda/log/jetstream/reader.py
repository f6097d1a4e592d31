"""Reads events by position, and finds where in the stream they are: by position, by stream, by id.

Rules: a page shorter than asked for ends at the log's end, and a gap is damage. The index beside the log only saves
time: a segment of it that is missing or damaged is made again from the events.
"""

import logging
from collections.abc import AsyncIterator, Sequence

from voda.domain.errors import LogDamaged
from voda.events.codec import body_of
from voda.events.envelope import Sealed
from voda.log.jetstream.index import IdIndex, IndexSegment
from voda.log.jetstream.marks import SEGMENT, BlobKey, decoded
from voda.log.jetstream.messages import Group
from voda.log.jetstream.state import LogState, SegmentKey
from voda.log.jetstream.synced_log import SyncedLog

_MOST_MESSAGES = 1000
_FEWEST_BYTES, _MOST_BYTES = 256 * 1024, 8 * 1024 * 1024
_EVENT_BYTES = 1024
"""Of most events, with their overhead."""
_NEAR = 64
"""Events of one stream that are no further apart are read in one go, with all between them."""
_SEGMENTS_CACHED = 4

_log = logging.getLogger(__name__)


class EventReader:
    """Reads the events of a log, and finds where they are in the stream."""

    def __init__(self, log: SyncedLog) -> None:
        self._log = log
        # The group in which the last page ended: the next page begins there.
        self._last: Group | None = None
        self._ids = IdIndex()
        self._ids_of: LogState | None = None
        self._cached: dict[SegmentKey, IndexSegment] = {}

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
                    raise LogDamaged(f"position {expected}: the event is missing", expected)
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
        found: list[Sealed] = []
        async for near in self._near(stream, max(after, base.position), limit):
            page = await self.sealed(near[0] - 1, near[-1] - near[0] + 1)
            # Other streams may have the same hash.
            found += [one for one in page if one.position in near and body_of(one).stream == stream]
            if len(found) >= limit:
                break
        return found[:limit]

    async def has(self, event_id: str, position: int) -> bool:
        """Return whether the event at a position is of that id; ids of archived events are not known."""
        if position <= (await self._log.marks.read_start()).base.position:
            return False
        found = await self.sealed(position - 1, 1)
        return bool(found) and body_of(found[0]).event_id == event_id

    async def _from(self, after: int, limit: int, to_end: bool) -> AsyncIterator[Group]:
        if after < self._log.marks.start.base.position or not self._log.is_loaded:
            await self._refuse_archived(after)
        if self._last is not None and 0 <= after + 1 - self._last.position <= len(self._last.sealed):
            yield self._last
            sequence = self._last.sequence + 1
        else:
            sequence = await self.sequence_behind(after)
        most_bytes = min(max(limit * _EVENT_BYTES, _FEWEST_BYTES), _MOST_BYTES)
        messages = min(limit + 1, _MOST_MESSAGES)
        async for group in self._log.groups(sequence, messages=messages, most_bytes=most_bytes, to_end=to_end):
            yield group

    async def _refuse_archived(self, after: int) -> None:
        (await self._log.marks.read_start()).base.refuse_archived(self._log.place, after)

    # ---- the index

    async def sequence_behind(self, after: int) -> int:
        """Return the message from which to read the events behind a position, which is not below the base."""
        log = self._log
        # The beginning is known without the state.
        if not log.is_loaded and after == (start := await log.marks.read_start()).base.position:
            return start.sequence
        state = log.state if log.is_loaded and after < log.state.position else await log.sync()
        if after >= state.position:
            return state.sequence + 1
        if after >= state.recent.after:
            return state.recent.sequence_of(after + 1)
        for key in reversed(state.segments):
            if key.after <= after < key.last:
                return (await self._segment(key)).sequence_of(after + 1)
        return log.marks.start.sequence

    async def _near(self, stream: str, after: int, most: int) -> AsyncIterator[Sequence[int]]:
        """Yield the positions behind `after` that events of a stream may have, at most so many near ones together."""
        state = await self._log.sync()
        recent = state.recent
        for key in [*(key for key in state.segments if key.last > after), None]:
            segment = recent if key is None else await self._segment(key)
            for near in _runs(segment.positions_of(stream, after), most):
                yield near

    async def ids(self, state: LogState) -> IdIndex:
        if self._ids_of is not state:
            self._ids_of, self._ids = state, IdIndex()
        while self._ids.segments < len(state.segments):
            self._ids.add(await self._segment(state.segments[self._ids.segments]))
        return self._ids

    async def _segment(self, key: SegmentKey) -> IndexSegment:
        if key not in self._cached:
            closed = next((one for one in self._log.closed if one.last == key.last), None)
            self._cached[key] = closed or await self._stored(key.last) or await self._rebuilt(key)
            if len(self._cached) > _SEGMENTS_CACHED:
                del self._cached[next(iter(self._cached))]
        return self._cached[key]

    async def _stored(self, last: int) -> IndexSegment | None:
        key = BlobKey(SEGMENT, "", last)
        try:
            data = await self._log.marks.get(key)
            return decoded(IndexSegment, data, key) if data else None
        except LogDamaged as error:
            _log.warning("segment made again place=%s reason=%s", self._log.place, error)
            return None

    async def _rebuilt(self, key: SegmentKey) -> IndexSegment:
        """Make a segment again, without its archived events."""
        # Read the base anew: events archived meanwhile would shift all positions.
        start = await self._log.marks.read_start()
        segment = IndexSegment(max(key.after, start.base.position))
        async for group in self._log.groups(max(key.sequence, start.sequence)):
            left = [body_of(one) for one in group.sealed if one.position > segment.last]
            segment.add(group.sequence, [(body.stream, body.event_id) for body in left])
            if segment.last >= key.last:
                break
        return segment


def _runs(positions: Sequence[int], most: int) -> list[list[int]]:
    """Split ascending positions where they are far apart, or more than so many."""
    runs: list[list[int]] = []
    for position in positions:
        if runs and position - runs[-1][-1] <= _NEAR and len(runs[-1]) < most:
            runs[-1].append(position)
        else:
            runs.append([position])
    return runs
