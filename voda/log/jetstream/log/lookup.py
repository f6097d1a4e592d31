"""Finds where in the stream events lie: by position, by stream, by id.

Rule: what is kept beside the log only saves time; a segment that is missing or damaged is made again from the events.
"""

import logging
from collections.abc import AsyncIterator, Sequence

import msgspec

from voda.domain.errors import LogDamaged
from voda.events.codec import body_of
from voda.events.envelope import Sealed
from voda.log.jetstream.log.index import (
    GroupBoundary,
    IdIndex,
    OpenSegment,
    SegmentIds,
    SegmentLayout,
    positions_of,
    spot_before,
)
from voda.log.jetstream.log.synced_log import IDS, PLACES, SyncedLog
from voda.log.jetstream.transport.blobs import BlobKey

_PLACES_KEPT = 4
_SPOTS_KEPT = 64
_Segment = tuple[int, int, int]

_log = logging.getLogger(__name__)
_decode_ids = msgspec.msgpack.Decoder(SegmentIds).decode
_decode_places = msgspec.msgpack.Decoder(SegmentLayout).decode


class PositionIndex:
    """See the module.

    Args:
        log: that is looked into.
    """

    def __init__(self, log: SyncedLog) -> None:
        self._log = log
        self._generation = log.generation
        self._ids = IdIndex()
        self._places: dict[int, SegmentLayout] = {}
        # Where readers have come to: they go on from there.
        self._spots: dict[int, GroupBoundary] = {}

    async def spot(self, after: int) -> GroupBoundary:
        """Return from where to read the events behind a position, which is not below the base's."""
        self._refresh()
        if found := self._spots.get(after):
            return found
        log = self._log
        if after == log.record.base and not log.is_loaded:
            await log.base()
            if after == log.record.base:
                return GroupBoundary(after, log.record.sequence)
        state = log.state if log.is_loaded and after < log.state.position else await log.sync()
        if after >= state.position:
            return GroupBoundary(state.position, state.sequence + 1)
        if after >= state.recent.after:
            return state.recent.spot(after + 1)
        for segment in reversed(state.segments):
            if segment[0] <= after < segment[2]:
                return spot_before(await self._place(segment), after + 1)
        return GroupBoundary(log.record.base, log.record.sequence)

    def note(self, spot: GroupBoundary) -> None:
        """Remember a spot that a reader has come to."""
        self._refresh()
        self._spots[spot.position] = spot
        if len(self._spots) > _SPOTS_KEPT:
            del self._spots[next(iter(self._spots))]

    async def positions_of(self, stream: str, after: int) -> AsyncIterator[int]:
        """Yield the positions behind `after` at which events of a stream may stand, in order."""
        state = await self._log.sync()
        recent = state.recent.places()
        for segment in [segment for segment in state.segments if segment[2] > after]:
            for position in positions_of(await self._place(segment), stream):
                if position > after:
                    yield int(position)
        for position in positions_of(recent, stream):
            if position > after:
                yield int(position)

    async def ids(self) -> IdIndex:
        """Return the ids of all closed segments."""
        self._refresh()
        segments = self._log.state.segments
        while len(self._ids) < len(segments):
            segment = segments[len(self._ids)]
            self._ids.add(await self._ids_of(segment))
            segments = self._log.state.segments
        return self._ids

    def _refresh(self) -> None:
        if self._generation != self._log.generation:
            self._generation = self._log.generation
            self._ids = IdIndex()
            self._places.clear()
            self._spots.clear()

    async def _ids_of(self, segment: _Segment) -> SegmentIds:
        for closed in self._log.closed:
            if closed.last == segment[2]:
                return closed.ids
        data = await self._kept(IDS, segment)
        return _decode_ids(data) if data else (await self._again(segment))[0]

    async def _place(self, segment: _Segment) -> SegmentLayout:
        self._refresh()
        last = segment[2]
        if last not in self._places:
            self._places[last] = await self._places_of(segment)
            if len(self._places) > _PLACES_KEPT:
                del self._places[next(iter(self._places))]
        return self._places[last]

    async def _places_of(self, segment: _Segment) -> SegmentLayout:
        for closed in self._log.closed:
            if closed.last == segment[2]:
                return closed.places
        data = await self._kept(PLACES, segment)
        return _decode_places(data) if data else (await self._again(segment))[1]

    async def _kept(self, kind: str, segment: _Segment) -> bytes | None:
        try:
            return await self._log.blobs.get(BlobKey(kind, "", segment[2]))
        except LogDamaged as error:
            _log.warning("segment made again place=%s reason=%s", self._log.place, error)
            return None

    async def _again(self, segment: _Segment) -> tuple[SegmentIds, SegmentLayout]:
        """Make a segment again, less what is in the archive."""
        first, sequence, last = segment
        # Of now: what somebody has archived meanwhile would shift all positions.
        await self._log.base()
        position = max(first, self._log.record.base)
        recent = OpenSegment(position)
        async for group in self._log.groups(max(sequence, self._log.record.sequence)):
            sealed = [one for one in group.sealed if one.position > position]
            recent.add(GroupBoundary(position, group.sequence), _names(sealed))
            position += len(sealed)
            if position >= last:
                break
        return recent.segment()


def _names(sealed: Sequence[Sealed]) -> list[tuple[str, str]]:
    bodies = map(body_of, sealed)
    return [(body.stream, body.event_id) for body in bodies]
