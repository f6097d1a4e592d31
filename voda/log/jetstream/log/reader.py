"""Reads events by their positions.

Rule: a page that is shorter than asked for ends where the log does; a gap is damage, and named.
"""

from collections.abc import AsyncIterator, Sequence

from voda.domain.errors import LogDamaged
from voda.events.codec import body_of
from voda.events.envelope import Sealed
from voda.log.durable_store import archived_error
from voda.log.jetstream.log.index import GroupBoundary
from voda.log.jetstream.log.lookup import PositionIndex
from voda.log.jetstream.log.messages import Group
from voda.log.jetstream.log.synced_log import SyncedLog

_MOST_MESSAGES = 1000
_FEWEST_BYTES, _MOST_BYTES = 256 * 1024, 8 * 1024 * 1024
_EVENT_BYTES = 1024
"""Of most events, and what they cost beside it."""
_NEAR = 64
"""Events of one stream that are no further apart are read together with what is in between."""


class EventReader:
    """See the module.

    Args:
        log: that is read.
        lookup: of the log.
    """

    def __init__(self, log: SyncedLog, lookup: PositionIndex) -> None:
        self._log = log
        self._lookup = lookup
        # The group that a page ended in: the next begins there.
        self._last: Group | None = None
        self._seen = 0
        """The last position that was ever read here."""

    async def sealed(self, after: int, limit: int, *, to_end: bool = True) -> list[Sealed]:
        """Return up to `limit` events behind a position.

        Args:
            after: a position.
            limit: number of events.
            to_end: False: fewer may be returned although there are more; quicker.

        Raises:
            LogArchived: they are in the archive.
            LogDamaged: one is missing, or cannot be read.
        """
        # What is known to be there before the stream is asked for its end must be found.
        known = min(max(self._log.state.position if self._log.is_loaded else 0, self._seen), after + limit)
        found = await self._page(after, limit, to_end)
        if to_end and after + len(found) < known:
            await self._refuse_archived(after)
            # Whoever was cut off from the others without knowing it is not to be taken for one that lost events.
            await self._log.stream.prove_led()
            found = await self._page(after, limit, to_end)
            if after + len(found) < known:
                await self._refuse_archived(after)
                raise _missing(after + len(found) + 1)
        if found:
            self._seen = max(self._seen, after + len(found))
        return found

    async def _page(self, after: int, limit: int, to_end: bool) -> list[Sealed]:
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
                self._lookup.note(GroupBoundary(group.position + len(group.sealed) - 1, group.last_sequence + 1))
                if len(found) == limit:
                    return found
        except LogDamaged as error:
            if error.position is not None:
                raise
            expected = after + len(found) + 1
            raise LogDamaged(f"position {expected}: {error}", expected) from error
        return found

    async def of_stream(self, stream: str, after: int, limit: int) -> list[Sealed]:
        """Return up to `limit` events of one stream behind a position.

        Raises:
            LogArchived, LogDamaged: see sealed.
        """
        base = await self._log.base()
        if after < base.position:
            if stream in base.heads:
                raise archived_error(self._log.place, base, after)
            after = base.position
        positions: list[int] = []
        found: list[Sealed] = []
        async for position in self._lookup.positions_of(stream, after):
            positions.append(position)
            if len(positions) == limit:
                found += await self._picked(stream, positions)
                positions = []
                # Names that hash alike leave room for more.
                if len(found) >= limit:
                    return found[:limit]
        return (found + await self._picked(stream, positions))[:limit]

    async def has(self, event_id: str, position: int) -> bool:
        """Return whether the event at a position is of that id; what is archived is not known."""
        if position <= (await self._log.base()).position:
            return False
        found = await self.sealed(position - 1, 1)
        return bool(found) and body_of(found[0]).event_id == event_id

    async def _picked(self, stream: str, positions: Sequence[int]) -> list[Sealed]:
        found: list[Sealed] = []
        for near in _runs(positions):
            wanted = set(near)
            page = await self.sealed(near[0] - 1, near[-1] - near[0] + 1)
            found += [one for one in page if one.position in wanted and body_of(one).stream == stream]
        return found

    async def _from(self, after: int, limit: int, to_end: bool) -> AsyncIterator[Group]:
        if after < self._log.record.base or not self._log.is_loaded:
            await self._refuse_archived(after)
        last = self._last
        if last is not None and last.position <= after + 1 < last.position + len(last.sealed):
            yield last
            spot = GroupBoundary(0, last.last_sequence + 1)
        else:
            spot = await self._lookup.spot(after)
        most_bytes = min(max(limit * _EVENT_BYTES, _FEWEST_BYTES), _MOST_BYTES)
        messages = min(limit + 1, _MOST_MESSAGES)
        async for group in self._log.groups(spot.sequence, messages=messages, most_bytes=most_bytes, to_end=to_end):
            yield group

    async def _refuse_archived(self, after: int) -> None:
        base = await self._log.base()
        if after < base.position:
            raise archived_error(self._log.place, base, after)


def _missing(position: int) -> LogDamaged:
    return LogDamaged(f"position {position}: the event is missing", position)


def _runs(positions: Sequence[int]) -> list[list[int]]:
    """Part ascending positions where they lie far apart."""
    runs: list[list[int]] = []
    for position in positions:
        if runs and position - runs[-1][-1] <= _NEAR:
            runs[-1].append(position)
        else:
            runs.append([position])
    return runs
