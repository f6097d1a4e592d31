"""Reads the usage of a window of time from the log.

Rule: it begins at the newest snapshot before the window, where there is one; that changes nothing in the result.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from voda.controller.follower import restore
from voda.domain.errors import InvalidInput
from voda.events.envelope import Event
from voda.log.store import EventStore
from voda.projections.jobs.registry import JobRegistry
from voda.projections.usage import Usage
from voda.timetravel.moment import AtInstant, BeforeLast, find, parse_moment, recorded_at
from voda.timetravel.replay import PAGE_FOLDED, events_between


async def usage_between(
    store: EventStore,
    since: float,
    until: float,
    *,
    user: str = "",
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Usage:
    """Return the usage in [since, until), seconds since the epoch, of one user's jobs where one is named.

    `progress` gets the events read, and how many there are.

    Raises:
        InvalidInput: the window is empty.
        LogArchived: events of the window are in an archive that is out of reach.
    """
    if since >= until:
        raise InvalidInput("the window is empty: expected `since` to be before `until`")
    end = (await find(store, AtInstant(until), before=True)).position
    registry, usage = JobRegistry(), Usage(since, until, user)
    first = (await find(store, AtInstant(since), before=True)).position
    start = await restore(store, registry, at_most=first)
    usage.begin_with(registry.jobs().values())
    page: list[Event] = []
    async for event in events_between(store, after=start, until=end, page=PAGE_FOLDED):
        page.append(event)
        if len(page) == PAGE_FOLDED:
            await asyncio.to_thread(_fold, usage, page)
            progress(event.position - start, end - start)
            page = []
    await asyncio.to_thread(_fold, usage, page)
    await asyncio.to_thread(usage.close)
    return usage


def _fold(usage: Usage, page: Sequence[Event]) -> None:
    for event in page:
        usage.apply(event)


async def end_of(store: EventStore) -> float:
    """Return when the last event was recorded; 0 in an empty log."""
    return await recorded_at(store, await store.position())


def instant_of(text: str, now: float) -> float:
    """Return the instant that a user wrote: a time (2026-01-31, UTC) or a span before `now` (30d, 12h).

    Raises:
        InvalidInput: it is neither.
    """
    for written in (f"-{text}", text):
        with suppress(InvalidInput):
            match parse_moment(written):
                case BeforeLast(span_s=span_s) if written != text:
                    return now - span_s
                case AtInstant(time_s=time_s):
                    return time_s
                case _:
                    pass
    raise InvalidInput(f"{text[:80]!r} is no moment: expected a span before now (30d, 12h) or a time (2026-01-31)")
