"""Rows of the tables, checked against the events before they are believed, and the events of one stream.

Rules: a head is believed only if the event at its position says the same; for an archived event the row is all there
is. The log's end is believed only once its event was read, because an index may still know events that the table has
lost. A gap in a stream's versions is reported, at the beginning of a page, within it and at the stream's end.
"""

from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec

from voda.domain.errors import LogDamaged
from voda.events.codec import body_of, unseal
from voda.events.envelope import Event, Head, Sealed, hash_of
from voda.log.sql import schema
from voda.log.store import Base

Fetch = Callable[[str, dict[str, object]], Awaitable[Sequence[Any]]]
"""Runs one query."""

_decode_base = msgspec.json.Decoder(Base).decode


class StoredHead(NamedTuple):
    """A row of `schema.STORED_HEADS`."""

    stream: str
    version: int
    hash: str
    epoch: int
    position: int
    """Of the stream's last event."""
    body: bytes | None
    """Of the event at that position; None if there is none."""
    base: int
    """Position of the last archived event."""

    def proven(self) -> Head:
        """Return the head; raises LogDamaged if the stream's last event is missing, or not the one of the row."""
        head = Head(self.version, self.hash, self.epoch)
        if self.body is None:
            if _is_number(self.version) and _is_number(self.position) and self.position <= self.base:
                return head
            raise self._damaged("it is missing")
        sealed = Sealed(self.position, self.body, self.hash)
        if not sealed.is_intact:
            raise self._damaged("another event is there")
        body = body_of(sealed)
        if (body.stream, body.version, body.epoch) != (self.stream, self.version, self.epoch):
            raise self._damaged("another event is there")
        return head

    def _damaged(self, found: str) -> LogDamaged:
        position = self.position if _is_number(self.position) else None
        where = f"position {self.position}: the list of streams names version {self.version} of {self.stream} here"
        return LogDamaged(f"{where}, but {found}: run 'voda log verify', restore the log from a copy", position)


def base_of(place: str, position: int, body: bytes | str, digest: str) -> Base:
    """Return the base of a log from its row; raises LogDamaged if the row is not what was written."""
    # A damaged SQLite file may hold text where its column promises bytes.
    if isinstance(body, str) or hash_of(body) != digest:
        raise LogDamaged(f"{place}: the record of the archive (position {position}) is not what was written")
    try:
        base = _decode_base(body)
    except msgspec.MsgspecError as error:
        raise LogDamaged(f"{place}: the record of the archive cannot be read ({error})") from error
    if base.position != position:
        raise LogDamaged(f"{place}: the record of the archive is of position {base.position}, expected {position}")
    return base


async def readable_end(fetch: Fetch, *, base: int, marked: int) -> int:
    """Return the position of the last readable event, assuming that only the log's end may be lost.

    Args:
        base: position of the last archived event.
        marked: a position that the log is known to have reached.
    """
    try:
        end = int((await fetch(schema.POSITION, {}))[0][0])
    except LogDamaged:
        end = marked
    if end <= base or await _is_readable(fetch, end):
        return end
    readable, lost = base, end
    while lost - readable > 1:
        middle = (readable + lost) // 2
        if await _is_readable(fetch, middle):
            readable = middle
        else:
            lost = middle
    return readable


async def _is_readable(fetch: Fetch, position: int) -> bool:
    try:
        return bool(await fetch(schema.HASH_AT, {"position": position}))
    except LogDamaged:
        return False


def _is_number(value: object) -> bool:
    """A damaged SQLite file may hold text where its column promises a number."""
    return isinstance(value, int)


class Gap(NamedTuple):
    """An event of a stream that should be there."""

    stream: str
    version: int
    position: int
    """Of the event that follows; of the missing event itself if it is the stream's last."""
    found: int | None
    """Version of the event that follows; None if the stream's last event is missing."""

    def damage(self) -> LogDamaged:
        got = "nothing" if self.found is None else f"{self.found}"
        return LogDamaged(
            f"position {self.position}: stream {self.stream}: expected version {self.version}, got {got}", self.position
        )


async def read_stream(fetch: Fetch, stream: str, after: int, limit: int) -> tuple[Sequence[Event], Gap | None]:
    """Return up to `limit` events of a stream behind a position, and the first event that is missing.

    A missing event may have been archived: the caller checks that afterwards.
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
