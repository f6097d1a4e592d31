"""Replay: the state at any position of a log, and the events between two positions.

Rule: it only reads; a snapshot saves time and does not change the result.
"""

from collections.abc import AsyncIterator

from voda.controller.follower import restore
from voda.events.envelope import Event
from voda.log.store import EventStore
from voda.projections.live import Live

_PAGE = 2_000
_PAGE_FOLDED = 250
"""Smaller, because a fold costs more than a read and a server has other requests meanwhile."""


async def live_at(store: EventStore, position: int) -> Live:
    """Return what the log said up to and including `position`, from the newest snapshot before it."""
    live = Live()
    start = await restore(store, live, at_most=position)
    async for event in events_between(store, after=start, until=position, page=_PAGE_FOLDED):
        live.apply(event)
    return live


async def events_between(
    store: EventStore, *, after: int = 0, until: int | None = None, stream: str | None = None, page: int = _PAGE
) -> AsyncIterator[Event]:
    """Yield the events with `after` < position <= `until`, in order, page by page; of one stream where given."""
    while until is None or after < until:
        # Not one event more: the next one may be damaged.
        limit = page if until is None else min(page, until - after)
        events = await store.read(after, limit, stream=stream)
        for event in events:
            if until is not None and event.position > until:
                return
            yield event
        if len(events) < limit:
            return
        after = events[-1].position
