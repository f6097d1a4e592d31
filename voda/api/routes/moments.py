"""The cluster at any moment, what changes from moment to moment, and what happened over time: what a page draws.

Rule: what viewers follow live is made once for all of them.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Final, TypeVar

import msgspec
from aiohttp import web
from msgspec import Meta, Struct

from voda.api.admission import CallerLimits
from voda.api.operation import JSON, Operation, Response, Routes
from voda.api.presenters.moments import Moment, Moments, changes_view, moment_view
from voda.api.requests import json_response, query_of
from voda.api.routes.events import SSE
from voda.api.streams.moment_hub import MomentHub
from voda.api.streams.response import StreamedResponse
from voda.api.streams.shared_bodies import SharedBodies
from voda.application.journal import Journal
from voda.auth.callers import Caller
from voda.domain.errors import InvalidField, InvalidInput, LogArchived
from voda.projections.cluster.live_cluster import LiveCluster
from voda.timetravel.moment import LogPlace, find, parse_moment, recorded_at, rfc3339
from voda.timetravel.past import Past
from voda.wire.base import instant
from voda.wire.moments import ChangesList, ChangesView, MomentView, TimelineView

_MOMENT: Final = "A position, an RFC 3339 time, a span after the first event (+1h30m) or before the last one (-10m)"
_MOST_SPAN_S: Final = 36_500 * 86_400.0
_LAST_INSTANT: Final = datetime.max.replace(tzinfo=UTC).timestamp() - 1.0
T = TypeVar("T")

_LARGE_BYTES: Final = 65_536


class StateQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which moment."""

    at: Annotated[str, Meta(description=f"{_MOMENT}; by default now.")] = ""
    watch: Annotated[bool, Meta(description="Go on with what changes, as if text/event-stream was accepted.")] = False


class ChangesQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which moments."""

    at: Annotated[str, Meta(description=f"{_MOMENT}: the moment before the first one.")]
    seconds: Annotated[float, Meta(description="From there to the last moment.", gt=0, le=_MOST_SPAN_S)] = 60.0
    frames: Annotated[int, Meta(description="Moments, at equal distances.", ge=1, le=240)] = 60


class TimelineQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which time, and how finely."""

    since: Annotated[str, Meta(description=f"{_MOMENT}; by default the first event.")] = ""
    until: Annotated[str, Meta(description=f"{_MOMENT}; by default now.")] = ""
    buckets: Annotated[int, Meta(description="Stretches of equal length.", ge=1, le=2_000)] = 500


@dataclass
class MomentRoutes(Routes):
    """The operations on moments."""

    tag = "Moments"

    journal: Journal
    limits: CallerLimits
    job_gpus: Callable[[str], Mapping[int, str]]

    def __post_init__(self) -> None:
        self._past = Past(self.journal.store)
        self._bodies = SharedBodies()
        self._hub = MomentHub(self.journal.view, self.journal.clock, self.job_gpus)
        self._reading: asyncio.Task[None] | None = None

    @Operation(
        "GET",
        "/api/v1/state",
        description=(
            "Nodes, live jobs and pools at a moment. With `Accept: text/event-stream` or `watch=true`: server-sent"
            " events, first `state` with the present moment, then `changes`, several a second at most, each with its"
            " position as `id`."
        ),
        query=StateQuery,
        answers=[Response(of=MomentView), Response(media_type=SSE, description="When watching.")],
        problems=[404, 503],
    )
    async def get_state(self, request: web.Request, _caller: Caller) -> web.StreamResponse:
        """Get how the cluster stands, or stood at any moment of the log."""
        query = query_of(request, StateQuery)
        if query.watch or SSE in request.headers.get("Accept", ""):
            if query.at:
                raise InvalidField("at", "at is of moments of the past: leave it out when watching")
            stream = StreamedResponse(request, self.limits, {"Content-Type": f"{SSE}; charset=utf-8"})
            return await stream.run(lambda: self._hub.follow(stream.write, self.limits.heartbeat_s))
        if not query.at:
            return _compressed(self._hub.state())
        place = await self._place("at", query.at)
        end = await self.journal.store.position()

        async def body() -> bytes:
            moment = await self._past.at(place.position, lambda cluster: Moments().moment(cluster, place.at))
            return msgspec.json.encode(moment_view(moment, end))

        return _compressed(await self._outside_archive(self._bodies.body((place, end), body)))

    @Operation(
        "GET",
        "/api/v1/state/changes",
        description="For playing the past: the state at moments one after the other, each as changes to the one"
        " before. It ends where the log does.",
        query=ChangesQuery,
        answers=[Response(of=ChangesList)],
        problems=[404, 503],
        takes_turns=True,
    )
    async def list_state_changes(self, request: web.Request, _caller: Caller) -> web.StreamResponse:
        """Get what changed in the cluster from moment to moment."""
        query, store = query_of(request, ChangesQuery), self.journal.store
        place, end = await self._place("at", query.at), await store.position()
        if place.at + query.seconds > _LAST_INSTANT:
            raise InvalidField("seconds", f"{query.seconds:g} seconds after {query.at[:80]!r} the calendar ends")
        instants = [place.at + query.seconds * number / query.frames for number in range(query.frames + 1)]
        # No more than two moments are in memory at a time: each names all jobs.
        moments, latest, items = Moments(), deque[Moment](maxlen=1), list[ChangesView]()

        def see(cluster: LiveCluster, at: float) -> None:
            after = moments.moment(cluster, at)
            items.extend(changes_view(before, after, end) for before in latest)
            latest.append(after)

        await self._outside_archive(self._past.walk(place.position, instants, see))
        return json_response(ChangesList(position=place.position, at=instant(place.at), end=end, items=tuple(items)))

    @Operation(
        "GET",
        "/api/v1/timeline",
        description="GPUs in use, jobs, decisions, resizes and failures over time. Of a long log the first answers"
        " may know only its beginning (`known_until`).",
        query=TimelineQuery,
        answers=[Response(of=TimelineView)],
        problems=[404, 503],
    )
    async def get_timeline(self, request: web.Request, _caller: Caller) -> web.StreamResponse:
        """Get what happened over time, as figures to draw."""
        query, store, now = query_of(request, TimelineQuery), self.journal.store, self.journal.clock.now()
        end = await store.position()
        await self._outside_archive(self._read_on(end))
        activity = self._past.activity
        begins = activity.begins_at
        ends = await recorded_at(store, end) if end else None
        since = (await self._place("since", query.since)).at if query.since else begins or 0.0
        until = (await self._place("until", query.until)).at if query.until else max(ends or 0.0, now if end else 0.0)
        if until < since:
            raise InvalidField("until", f"until {query.until[:80]!r} is before since, expected a later moment")
        until = max(until, since + 1.0)
        is_known = activity.position >= end
        row = activity.between(since, until, query.buckets, lasts_until=now if is_known else 0.0)
        step = (until - since) / query.buckets
        return json_response(
            TimelineView(
                since=instant(since),
                until=instant(until),
                begins_at=instant(begins),
                ends_at=instant(ends),
                known_until=instant(activity.known_until if begins is not None else None),
                at=tuple(since + step * number for number in range(query.buckets)),
                **{name: tuple(column.round(3).tolist()) for name, column in row._asdict().items()},
            )
        )

    async def _read_on(self, end: int) -> None:
        """Have the activity read up to the end, and wait a moment for it."""
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._past.read_on(end))
        done, _ = await asyncio.wait({self._reading}, timeout=0.5)
        for task in done:
            task.result()

    async def _place(self, field: str, text: str) -> LogPlace:
        try:
            return await self._outside_archive(find(self.journal.store, parse_moment(text)))
        except InvalidInput as error:
            raise InvalidField(field, str(error)) from error

    async def _outside_archive(self, asked: Awaitable[T]) -> T:
        """Return what was asked for; of what is in an archive that is away, say from when on the log can be asked."""
        try:
            return await asked
        except LogArchived as error:
            first = await self.journal.store.read(error.base, 1)
            since = f", {rfc3339(first[0].recorded_at)}" if first else ""
            raise LogArchived(
                "this moment is in the archive of the log, which is not here (VODA_ARCHIVE names its folder): the first"
                f" that can be asked is position {error.base + 1}{since}",
                error.base,
            ) from error


def _compressed(body: bytes) -> web.Response:
    """Return JSON that is compressed, where the caller takes that, in a thread where it is large."""
    response = web.Response(body=body, content_type=JSON, zlib_executor_size=_LARGE_BYTES)
    response.enable_compression()
    return response
