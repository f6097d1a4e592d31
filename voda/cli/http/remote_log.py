"""The server's log, read over HTTP page by page, or live as server-sent events.

Rule: an event type that this version does not know is shown by its name and is never an error.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import msgspec
from msgspec import Raw, Struct

from voda.cli.http.client import Client, Params, decode
from voda.events.envelope import Event
from voda.events.event_text import TYPES, subject_of
from voda.events.types import AnyFact
from voda.wire.events import EventList, EventView

_PAGE = 500


@dataclass(frozen=True, slots=True)
class RemoteEvent:
    event: EventView
    raw: bytes
    """JSON, as received."""

    @property
    def subject(self) -> str:
        """The job, node or pool it is about."""
        known = known_event(self.event)
        return subject_of(known) if known else self.event.stream

    @property
    def what(self) -> str:
        """What happened, in words: the server's, which knows every type of its log."""
        return self.event.message


class RemoteLog:
    """Reads a log from a server; `filters`, query parameters of GET /events, apply to `between` and `tail`."""

    def __init__(self, client: Client, filters: Params) -> None:
        self._client = client
        self._filters = filters

    def ending_at(self, position: int) -> "RemoteLog":
        """Return the log up to a position, at which a job's name means what it meant then."""
        return RemoteLog(self._client, {**self._filters, "until": max(1, position)})

    def position(self) -> int:
        """Return the position of the last event."""
        return decode(self._client.get("/events", {"limit": 1}), EventList).end

    def read(self, after: int, limit: int) -> Sequence[Event]:
        """Return up to `limit` events with position > `after`, known to this version, unfiltered."""
        page = decode(self._client.get("/events", {"after": after, "limit": limit}), EventList)
        return [event for shown in page.items if (event := known_event(shown))]

    def between(self, after: int, until: int) -> Iterator[RemoteEvent]:
        """Yield the events that pass the filters, `after` < position <= `until`, in order."""
        while after < until:
            body = self._client.get("/events", {**self._filters, "after": after, "limit": _PAGE})
            page = decode(body, _Page)
            for raw in page.items:
                seen = _remote_event(bytes(raw))
                if seen.event.position > until:
                    return
                yield seen
            if page.last_position <= after:
                return
            after = page.last_position

    def tail(self, after: int) -> Iterator[RemoteEvent]:
        """Yield every event after `after` that passes the filters, then new ones, for ever."""
        for message in self._client.follow_events(after=after, params=self._filters, away_s=math.inf):
            yield _remote_event(message.data)


@dataclass(frozen=True, slots=True)
class SearchedLog:
    """The log as what finds moments reads it."""

    log: RemoteLog

    async def position(self) -> int:
        return self.log.position()

    async def read(self, after: int, limit: int) -> Sequence[Event]:
        return self.log.read(after, limit)


class _Page(Struct):
    items: list[Raw]
    last_position: int


def known_event(shown: EventView) -> Event | None:
    """Return the event as the log's own record; None where this version does not know its type."""
    kind = TYPES.get(shown.type)
    if kind is None:
        return None
    try:
        data = msgspec.convert(shown.data, kind, str_keys=True)
    except msgspec.ValidationError:
        return None
    return Event(
        position=shown.position,
        stream=shown.stream,
        version=shown.version,
        event_id=shown.event_id,
        type=shown.type,
        schema=kind.SCHEMA,
        recorded_at=shown.recorded_at.timestamp(),
        actor=shown.actor,
        correlation_id="",
        causation_id="",
        epoch=0,
        data=cast(AnyFact, data),
    )


def _remote_event(raw: bytes) -> RemoteEvent:
    return RemoteEvent(decode(raw, EventView), raw)
