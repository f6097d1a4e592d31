"""Past events of the log a page at a time, and every new one, handed to all who follow the log live.

Rules: a page reads a bounded number of events and of their bytes, whatever the filter and however long the log. The log
is followed once, for all; the hub waits for nobody: a subscription whose buffer is full is marked late, and its owner
reads on from the log at its own pace.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar

from msgspec import Struct

from voda.application.journal import JournalView
from voda.concurrency import within
from voda.domain.errors import LogArchived
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
    types: frozenset[str] = frozenset()

    def __call__(self, event: Event) -> bool:
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


async def page(
    store: EventStore, wanted: EventFilter, *, after: int, limit: int, until: int | None = None
) -> EventPage:
    """Return up to `limit` of the wanted events with position > `after`, up to `until`, None = the end, in order.

    A page may be short, even empty, before the end of the log: the search for rare events is cut short, and so is a
    page of large ones.
    """
    end = await store.position()
    last = end if until is None else min(until, end)
    found: list[Event] = []
    is_plain = wanted == EventFilter()
    chunk = limit if is_plain else _CHUNK
    left = _MOST_READ
    while after < last and len(found) < limit and left > 0:
        read, after, is_large = await _next(store, wanted.streams, after=after, until=last, chunk=chunk)
        left -= left if is_large else max(len(read), 1)
        for event in read:
            if wanted(event):
                found.append(event)
                if len(found) == limit:
                    after = event.position
                    break
    return EventPage(events=tuple(found), last_position=after, end=end)


async def page_before(store: EventStore, wanted: EventFilter, *, before: int, limit: int) -> EventPage:
    """Return up to `limit` of the wanted events with position < `before`, the newest first.

    `last_position` of the page is the position from which on it has all of them; it may be short, as `page` may.

    Raises:
        LogArchived: the next ones are in an archive that is out of reach.
    """
    end = await store.position()
    reached = min(before, end + 1)
    found: list[Event] = []
    left, span, is_large, base = _MOST_READ, _CHUNK, False, 0
    while reached > 1 and len(found) < limit and left > 0:
        after = max(reached - 1 - span, base)
        chunk = min(span, _CHUNK)
        try:
            read, until, fills_page = await _next(store, wanted.streams, after=after, until=reached - 1, chunk=chunk)
        except LogArchived as error:
            if reached - 1 > error.base > base:
                base = error.base
                continue
            if found:
                break
            raise
        is_large = is_large or fills_page
        if until < reached - 1:
            # More of them, or of their bytes, than one page has.
            span = max(min(span, reached - 1) // 2, 1)
            continue
        left -= left if is_large else max(len(read), 1)
        # In the streams of a job there may be few events among many positions.
        span = span * 4 if len(read) < _CHUNK // 4 else span
        reached = after + 1
        for event in reversed(read):
            if wanted(event):
                found.append(event)
                if len(found) == limit:
                    reached = event.position
                    break
    return EventPage(events=tuple(found), last_position=reached, end=end)


async def _next(
    store: EventStore, streams: Sequence[str | None], *, after: int, until: int, chunk: int
) -> tuple[Sequence[Event], int, bool]:
    """Return the next events of several streams in the order of the log, the position up to which they go, and whether
    they are a page by their bytes.
    """
    sizes = [await store.page_size(after, chunk, stream=stream) for stream in streams]
    parts = [await store.read(after, size, stream=stream) for stream, size in zip(streams, sizes, strict=True)]
    # A stream that gave as much as it was asked for may have more behind its last event; the others stop there too.
    reached = min([until, *(part[-1].position for part, size in zip(parts, sizes, strict=True) if len(part) == size)])
    events = [event for part in parts for event in part if event.position <= reached]
    events.sort(key=lambda event: event.position)
    return events, reached, min(sizes) < chunk


T = TypeVar("T")
MAX_WAITING = 10_000
"""Events that wait for one subscription: more than a burst of submits that comes at once."""


class Subscription(Generic[T]):
    """The events that one follower wants, as they come."""

    def __init__(self, wanted: EventFilter) -> None:
        self.is_late = False
        """Whether it missed events, because too many waited for it."""
        self._wanted = wanted
        self._waiting: deque[T] = deque()
        self._woken = asyncio.Event()

    async def next(self, timeout_s: float) -> Sequence[T]:
        """Return what waits; empty if nothing came within the time, or the subscription is late."""
        if not self._waiting and not self.is_late:
            self._woken.clear()
            await within(timeout_s, self._woken.wait())
        taken = tuple(self._waiting)
        self._waiting.clear()
        return taken

    def offer(self, event: Event, prepared: T) -> None:
        if self.is_late or not self._wanted(event):
            return
        if len(self._waiting) == MAX_WAITING:
            self._waiting.clear()
            self.is_late = True
        else:
            self._waiting.append(prepared)
        self._woken.set()


class EventHub(Generic[T]):
    """Hands each folded event of a read model to all subscriptions, in the form that `prepare` gives it once."""

    def __init__(self, view: JournalView, prepare: Callable[[Event], T]) -> None:
        self._view = view
        self._prepare = prepare
        self._subscriptions: dict[Subscription[T], None] = {}
        view.subscribe(self._publish)

    @property
    def position(self) -> int:
        return self._view.position

    @contextmanager
    def subscription(self, wanted: EventFilter) -> Iterator[Subscription[T]]:
        """Yield a subscription to the wanted events after `position`."""
        subscription = Subscription[T](wanted)
        self._subscriptions[subscription] = None
        try:
            yield subscription
        finally:
            del self._subscriptions[subscription]

    def _publish(self, event: Event) -> None:
        if self._subscriptions:
            prepared = self._prepare(event)
            for subscription in self._subscriptions:
                subscription.offer(event, prepared)
