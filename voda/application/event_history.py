"""Reads past events from the log, filtered by job and type, a page at a time.

Rule: a page reads a bounded number of events, whatever the filter and however long the log.
"""

from collections.abc import Sequence

from msgspec import Struct

from voda.events.envelope import Event
from voda.events.event_text import jobs_of
from voda.log.store import EventStore

_CHUNK = 250
"""Events read before other tasks get a turn: a few milliseconds."""
_MOST_READ = 10_000


class EventFilter(Struct, frozen=True, kw_only=True):
    """Which events a caller wants."""

    job_id: str = ""
    """Only events about this job, plans that name it included; empty = all."""
    pool: str = ""
    """The job's."""
    types: frozenset[str] = frozenset()
    """Empty = all."""

    def __call__(self, event: Event) -> bool:
        """Return whether the caller wants the event."""
        return (not self.types or event.type in self.types) and (not self.job_id or self.job_id in jobs_of(event.data))

    @property
    def streams(self) -> tuple[str | None, ...]:
        """Streams that may hold such events; None = the whole log."""
        return (f"job.{self.job_id}", f"decisions.{self.pool}") if self.job_id else (None,)


class EventPage(Struct, frozen=True, kw_only=True):
    """One page of events."""

    events: tuple[Event, ...]
    last_position: int
    """Position up to which the page has all events."""
    end: int
    """Position of the log's last event."""


async def page(store: EventStore, wanted: EventFilter, *, after: int, limit: int) -> EventPage:
    """Return up to `limit` of the wanted events with position > `after`, in order.

    A page may be short, even empty, before the end of the log: the search for rare events is cut short.
    """
    end = await store.position()
    found: list[Event] = []
    is_plain = wanted == EventFilter()
    chunk = limit if is_plain else _CHUNK
    left = _MOST_READ
    while after < end and len(found) < limit and left > 0:
        read, after = await _next(store, wanted.streams, after=after, until=end, chunk=chunk)
        left -= max(len(read), 1)
        for event in read:
            if wanted(event):
                found.append(event)
                if len(found) == limit:
                    after = event.position
                    break
    return EventPage(events=tuple(found), last_position=after, end=end)


async def _next(
    store: EventStore, streams: Sequence[str | None], *, after: int, until: int, chunk: int
) -> tuple[Sequence[Event], int]:
    """Return the next events of several streams in the order of the log, and the position up to which they go."""
    parts = [await store.read(after, chunk, stream=stream) for stream in streams]
    # A stream that gave a whole chunk may have more behind its last event; the others stop there too.
    reached = min([until, *(part[-1].position for part in parts if len(part) == chunk)])
    events = [event for part in parts for event in part if event.position <= reached]
    events.sort(key=lambda event: event.position)
    return events, reached
