"""Reads the events of one stream, and notices those that are missing.

Rule: a gap in the stream's versions is reported, at the beginning of a page, within it and at the stream's end.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from voda.domain.errors import LogDamaged
from voda.events.codec import unseal
from voda.events.envelope import Event, Sealed
from voda.log.sql import schema
from voda.log.sql.rows import Fetch


class Gap(NamedTuple):
    """An event of a stream that should be there."""

    stream: str
    version: int
    position: int
    """Of the event that follows; of the missing event itself if it is the stream's last."""
    found: int | None
    """Version of the event that follows; None if the stream's last event is missing."""

    def damage(self) -> LogDamaged:
        """Return the error that names the missing event."""
        got = "nothing" if self.found is None else f"{self.found}"
        return LogDamaged(
            f"position {self.position}: stream {self.stream}: expected version {self.version}, got {got}", self.position
        )


async def read_stream(fetch: Fetch, stream: str, after: int, limit: int) -> tuple[Sequence[Event], Gap | None]:
    """Return up to `limit` events of a stream behind a position, and the first event that is missing.

    A missing event may have been archived: the caller checks that afterwards.

    Raises:
        LogDamaged, LogTooNew: see EventStore.read.
    """
    # Before the events: more may follow meanwhile.
    head = await fetch(schema.HEAD_POSITION, {"stream": stream})
    rows = await fetch(schema.READ_STREAM, {"stream": stream, "after": after, "limit": limit})
    events = [unseal(Sealed(*row)) for row in rows]
    gap = await _gap_before(fetch, stream, after, events) or _gap_within(stream, events)
    if gap is None and head and len(events) < limit:
        gap = _gap_behind(stream, after, events, *head[0])
    return events, gap


async def _gap_before(fetch: Fetch, stream: str, after: int, events: Sequence[Event]) -> Gap | None:
    if not events or (first := events[0]).version == 1:
        return None
    before = await fetch(schema.POSITION_IN_STREAM, {"stream": stream, "version": first.version - 1})
    if before and before[0][0] <= after:
        return None
    return Gap(stream, first.version - 1, first.position, first.version)


def _gap_within(stream: str, events: Sequence[Event]) -> Gap | None:
    for before, event in pairwise(events):
        if event.version != before.version + 1:
            return Gap(stream, before.version + 1, event.position, event.version)
    return None


def _gap_behind(stream: str, after: int, events: Sequence[Event], version: int, position: int) -> Gap | None:
    if position <= after or (events and events[-1].version >= version):
        return None
    return Gap(stream, version, position, None)
