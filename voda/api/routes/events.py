"""Events: those of the past a page at a time, and new ones as server-sent events.

Rule: a reader gets every event that it wants once and in order, over any number of connections: the id of an event is
its position, and a reader that comes back with it goes on behind it.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Final

from aiohttp import web
from msgspec import Meta, Struct

from voda.api.admission import CallerLimits
from voda.api.operation import Operation, Response, Routes
from voda.api.presenters.events import EventFrames, event_of, frame_of
from voda.api.read_your_writes import refuse_future_position
from voda.api.requests import json_response, query_of
from voda.api.streams.response import StreamedResponse
from voda.application import event_feed
from voda.application.event_feed import EventFilter, EventHub
from voda.application.journal import Journal
from voda.application.lookup import job_id_then, spec_of
from voda.auth.callers import Caller, is_owner
from voda.domain.errors import InvalidField
from voda.events.envelope import Event
from voda.events.event_text import TYPES
from voda.events.types import JobSubmitted
from voda.log.store import EventStore
from voda.projections.jobs.names import EXACT
from voda.wire.events import EventList

SSE: Final = "text/event-stream"
_RESUME: Final = "Last-Event-ID"
_RETRY_MS = 2_000
"""How long a browser waits before it comes back."""
_PAGE = 200
"""Past events in one write."""


class EventsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which events."""

    after: (
        Annotated[
            int,
            Meta(
                description="Position behind which to begin; by default the beginning, or the end when watching.",
                ge=0,
                le=2**53,
            ),
        ]
        | None
    ) = None
    limit: Annotated[int, Meta(description="Most events of a page; means nothing when watching.", ge=1, le=500)] = 100
    until: (
        Annotated[
            int,
            Meta(
                description="Position at which to end; `job` is the run that its name meant there. Not when watching.",
                ge=1,
                le=2**53,
            ),
        ]
        | None
    ) = None
    before: (
        Annotated[
            int,
            Meta(
                description="Position before which to begin, newest first: ask again with the `last_position` of the"
                " answer. Neither with `after` and `until` nor when watching.",
                ge=1,
                le=2**53,
            ),
        ]
        | None
    ) = None
    job: Annotated[str, Meta(description="Only events about this job, plans that name it included.")] = ""
    type: Annotated[
        list[Annotated[str, Meta(extra_json_schema={"enum": list(TYPES)})]],
        Meta(description="Only events of these types."),
    ] = []
    manifests: Annotated[
        bool, Meta(description="Whether jobs of your own (an admin's: all) are shown with manifests.")
    ] = False
    watch: Annotated[bool, Meta(description="Go on with what happens, as if text/event-stream was accepted.")] = False


@dataclass
class EventRoutes(Routes):
    """The operation on events."""

    tag = "Events"

    journal: Journal
    limits: CallerLimits

    def __post_init__(self) -> None:
        self._hub = EventHub(self.journal.view, EventFrames)

    @Operation(
        "GET",
        "/api/v1/events",
        description=(
            "A page of the log. With `Accept: text/event-stream` or `watch=true`: server-sent events, each with its"
            " position as `id`, its type as `event` and its JSON as `data`; a client that comes back with"
            " `Last-Event-ID` goes on behind it."
        ),
        query=EventsQuery,
        headers={_RESUME: "Position of the last event seen; wins over `after`. When watching."},
        answers=[Response(of=EventList), Response(media_type=SSE, description="When watching.")],
        problems=[404, 503],
    )
    async def list_events(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        """Read what happened, or watch what happens."""
        query, journal = query_of(request, EventsQuery), self.journal
        has_manifest = _manifests_of(caller) if query.manifests else lambda _event: False
        wanted = await _filter(journal, query, caller)
        is_watched = query.watch or SSE in request.headers.get("Accept", "")
        if query.before is not None and (is_watched or query.after is not None or query.until is not None):
            raise InvalidField("before", "before goes back through pages: leave out after, until and watch")
        if is_watched:
            if query.until is not None:
                raise InvalidField("until", "until is of pages of the past: leave it out when watching")
            after = await _begin(journal, request, query)
            stream = StreamedResponse(request, self.limits, {"Content-Type": f"{SSE}; charset=utf-8"})
            watch = EventStream(journal.store, self._hub, stream, wanted, has_manifest, self.limits.heartbeat_s)
            return await stream.run(lambda: watch.run(after))
        if query.before is not None:
            page = await event_feed.page_before(journal.store, wanted, before=query.before, limit=query.limit)
        else:
            page = await event_feed.page(
                journal.store, wanted, after=query.after or 0, limit=query.limit, until=query.until
            )
        refuse_future_position(query.after or 0, page.end)
        items = tuple(event_of(event, with_manifest=has_manifest(event)) for event in page.events)
        return json_response(EventList(items=items, last_position=page.last_position, end=page.end))


async def _filter(journal: Journal, query: EventsQuery, caller: Caller) -> EventFilter:
    for kind in query.type:
        if kind not in TYPES:
            raise InvalidField("type", f"type {kind[:80]!r} is not known; expected one of {', '.join(TYPES)}")
    if not query.job:
        return EventFilter(types=frozenset(query.type))
    named = query.job
    if query.until is not None:
        named = EXACT + await job_id_then(journal, named, caller, query.until)
    spec = await spec_of(journal, named, caller)
    return EventFilter(types=frozenset(query.type), job_id=spec.job_id, pool=spec.pool)


def _manifests_of(caller: Caller) -> Callable[[Event], bool]:
    """Return which events are shown with their manifests, which may hold secrets: those of the caller's own jobs."""
    return lambda event: isinstance(event.data, JobSubmitted) and is_owner(event.data.spec, caller)


async def _begin(journal: Journal, request: web.Request, query: EventsQuery) -> int:
    after = query.after
    if resume := request.headers.get(_RESUME, ""):
        if not (resume.isascii() and resume.isdigit() and len(resume) <= 15):
            raise InvalidField(_RESUME, f"{_RESUME} is {resume[:80]!r}, expected the id of an event: its position")
        after = int(resume)
    if after is None:
        return journal.view.position
    if after > journal.view.position:
        refuse_future_position(after, await journal.store.position())
    return after


@dataclass(frozen=True, slots=True)
class EventStream:
    """One reader's stream: past events from the log by pages, then new ones from the hub."""

    store: EventStore
    hub: EventHub[EventFrames]
    stream: StreamedResponse
    wanted: EventFilter
    has_manifest: Callable[[Event], bool]
    heartbeat_s: float

    async def run(self, after: int) -> None:
        """Send all events behind `after`, for ever."""
        await self.stream.write(b"retry: %d\n%s" % (_RETRY_MS, _mark(after)))
        while True:
            after = await self._past(after)
            after = await self._live(after)

    async def _past(self, after: int) -> int:
        """Send events from the log up to the hub's position; return the position reached."""
        while after < self.hub.position:
            page = await event_feed.page(self.store, self.wanted, after=after, limit=_PAGE)
            frames = [frame_of(event, with_manifest=self.has_manifest(event)) for event in page.events]
            after = page.last_position
            await self.stream.write(b"".join(frames) or _mark(after))
        return after

    async def _live(self, after: int) -> int:
        """Send new events until the subscription is late; return the position reached."""
        # Nothing is awaited between the last look at the hub's position and this.
        with self.hub.subscription(self.wanted) as subscription:
            while not subscription.is_late:
                events = await subscription.next(self.heartbeat_s)
                if events:
                    await self._send(
                        one.full_frame if self.has_manifest(one.event) else one.frame
                        for one in events
                        if one.event.position > after
                    )
                    after = max(after, events[-1].event.position)
                elif not subscription.is_late:
                    after = max(after, self.hub.position)
                    await self.stream.write(b": nothing new\n" + _mark(after))
        return after

    async def _send(self, frames: Iterable[bytes]) -> None:
        every = list(frames)
        for begin in range(0, len(every), _PAGE):
            await self.stream.write(b"".join(every[begin : begin + _PAGE]))


def _mark(position: int) -> bytes:
    """Return a frame without an event: it carries the position to resume from."""
    return b"id: %d\n\n" % position
