"""What jobs report of themselves, what their replicas print, and the manifests they were submitted with.

Rules: a job's token reports on that job alone; output and manifests may hold secrets, so they are for the job's owner
and admins.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec
from aiohttp import hdrs, web
from msgspec import Meta, Struct

from voda.api.admission import CallerLimits
from voda.api.operation import TEXT, WRITERS, YAML, Operation, RequestBody, Response, Routes
from voda.api.presenters.jobs import report_list
from voda.api.requests import body_of, json_response, query_of
from voda.api.routes.jobs import JOB_ID, JOB_PATH
from voda.api.streams.response import StreamedResponse
from voda.application.change_job import ProgressReport, report
from voda.application.job_folders import FolderKeeper
from voda.application.journal import Journal, JournalView
from voda.application.lookup import job_of, spec_of
from voda.auth.callers import Caller, require_owner
from voda.cluster.port import LineTimes, Outputs
from voda.domain.errors import FolderGone, InvalidField, InvalidInput, NotAllowed, NotFound
from voda.domain.job import JobSpec
from voda.events.types import JobSubmitted
from voda.projections.jobs.names import EXACT
from voda.timetravel.job_reports import reports_of
from voda.timetravel.moment import AtInstant, BeforeLast, parse_moment, rfc3339
from voda.wire.jobs import ReportList


@dataclass
class ProgressRoutes(Routes):
    """The operations on progress and manifests."""

    tag = "Jobs"

    journal: Journal
    limits: CallerLimits

    @Operation(
        "POST",
        f"{JOB_PATH}/progress",
        description="With the job's own token (VODA_JOB_TOKEN of its processes); voda.report does it.",
        roles=frozenset({"admin", "job"}),
        path_parameters=JOB_ID,
        body=RequestBody(of=ProgressReport),
        answers=[Response(status=204, media_type="", description="It is recorded.")],
        problems=[404, 409],
    )
    async def report_progress(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        """Report a job's progress."""
        named = request.match_info["job_id"]
        if caller.role == "job":
            if caller.job_id != named.removeprefix(EXACT):
                raise NotAllowed(
                    f"this token is job {caller.job_id}'s, which reports at /api/v1/jobs/{caller.job_id}/progress alone"
                )
            # A newer job may have its name.
            named = f"{EXACT}{caller.job_id}"
        record = job_of(self.journal.view, named, caller)
        await report(self.journal, record, await body_of(request, ProgressReport, self.limits), caller)
        return web.Response(status=204)

    @Operation(
        "GET",
        f"{JOB_PATH}/progress",
        description="The newest 1,000 reports, oldest first; fewer where their metrics have more than a mebibyte.",
        path_parameters=JOB_ID,
        answers=[Response(of=ReportList)],
        problems=[404],
        takes_turns=True,
    )
    async def list_progress(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        """List what a job reported."""
        record = job_of(self.journal.view, request.match_info["job_id"], caller)
        return json_response(report_list(await reports_of(self.journal.store, record)))

    @Operation(
        "GET",
        f"{JOB_PATH}/manifest",
        description="For its owner and admins, as it may hold secrets in its variables.",
        roles=WRITERS,
        path_parameters=JOB_ID,
        answers=[Response(description="The manifest."), Response(media_type=YAML, description="The manifest.")],
        problems=[404],
    )
    async def get_manifest(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        """Get the manifest of a job, as it was submitted."""
        record = job_of(self.journal.view, request.match_info["job_id"], caller)
        require_owner(record.spec, caller, what="read its manifest")
        events = await self.journal.store.read(record.submitted_position - 1, 1)
        fact = events[0].data
        if not isinstance(fact, JobSubmitted) or fact.spec.manifest is None:
            raise NotFound(f"job {record.spec.job_id} was submitted without a manifest")
        if "yaml" in request.headers.get(hdrs.ACCEPT, ""):
            # A thousand lines take their time, and others wait.
            body = await asyncio.to_thread(msgspec.yaml.encode, fact.spec.manifest)
            return web.Response(body=body, headers={hdrs.CONTENT_TYPE: YAML})
        return json_response(fact.spec.manifest)


class LogsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which part of which output."""

    replica: Annotated[str, Meta(description="Its name or role; by default the most telling one.", max_length=253)] = ""
    follow: Annotated[bool, Meta(description="Go on until the job has ended.")] = False
    since: Annotated[
        str,
        Meta(
            description="Only lines printed since then: a time (2026-01-31T12:00:00Z) or a span before now (10m).",
            max_length=80,
        ),
    ] = ""
    timestamps: Annotated[
        bool, Meta(description="Whether each line begins with the time at which it was printed, RFC 3339.")
    ] = False
    tail_bytes: (
        Annotated[int, Meta(description="Begin that far before the end, at a line's beginning.", ge=0, le=2**53)] | None
    ) = None


@dataclass
class LogRoutes(Routes):
    """The operations on output."""

    tag = "Jobs"

    journal: Journal
    limits: CallerLimits
    outputs: Outputs | None
    folders: FolderKeeper | None

    @Operation(
        "GET",
        "/api/v1/jobs/{job_id}/logs",
        roles=WRITERS,
        path_parameters=JOB_ID,
        query=LogsQuery,
        answers=[Response(media_type=TEXT, headers={"X-Voda-Replica": "Whose output it is."})],
        problems=[404, 410],
    )
    async def get_logs(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        """Read what a replica printed, or follow it."""
        query = query_of(request, LogsQuery)
        spec, outputs = await self._outputs(request, caller)
        known = await outputs.replicas(spec.job_id)
        if not known:
            await refuse_deleted(self.folders, spec.job_id)
        replica = _select_replica(self.journal.view, spec, query.replica, known)
        since = _since(query.since, self.journal.clock.time_of_day()) if query.since else None
        times = LineTimes(since=since, are_shown=query.timestamps)
        printed = outputs.read(spec.job_id, replica, tail_bytes=query.tail_bytes, follow=query.follow, times=times)
        stream = StreamedResponse(
            request,
            self.limits,
            {"Content-Type": f"{TEXT}; charset=utf-8", "X-Voda-Replica": replica, "X-Content-Type-Options": "nosniff"},
        )
        return await stream.run(lambda: _copy(printed, stream))

    @Operation(
        "GET",
        "/api/v1/jobs/{job_id}/logs/replicas",
        roles=WRITERS,
        path_parameters=JOB_ID,
        answers=[Response(of=tuple[str, ...])],
        problems=[404],
    )
    async def list_replicas(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        """List the replicas that have output, the most telling one first."""
        spec, outputs = await self._outputs(request, caller)
        return json_response(tuple(await outputs.replicas(spec.job_id)))

    async def _outputs(self, request: web.Request, caller: Caller) -> tuple[JobSpec, Outputs]:
        """Return the job and the output of its pool, where the caller may read it."""
        spec = await spec_of(self.journal, request.match_info["job_id"], caller)
        require_owner(spec, caller, what="read its output")
        if (outputs := self.outputs) is None:
            raise NotFound(f"the cluster behind pool {spec.pool} keeps no output; ask it for that of job {spec.job_id}")
        return spec, outputs


def _since(text: str, now: float) -> float:
    """Return the instant that a time, or a span before now, means."""
    try:
        match moment := parse_moment(f"-{text}" if text[:1].isdigit() and "-" not in text else text):
            case BeforeLast(span_s=span_s):
                return now - span_s
            case AtInstant(time_s=instant):
                return instant
            case _:
                raise InvalidInput(f"{moment} is no time")
    except InvalidInput:
        raise InvalidField(
            "since",
            f"since: expected a time such as 2026-01-31T12:00:00Z, or a span such as 10m or 1h30m, got {text[:40]!r}",
        ) from None


async def refuse_deleted(folders: FolderKeeper | None, job_id: str) -> None:
    """Raise FolderGone where the job's output was deleted, with when and by whom."""
    if folders is not None and (deletion := await folders.deletion(job_id)) is not None:
        at = rfc3339(deletion.at, decimals=0)
        raise FolderGone(f"job {job_id}: its output was deleted on {at} by {deletion.by}, with all of its folder")


def _select_replica(view: JournalView, spec: JobSpec, replica: str, known: Sequence[str]) -> str:
    """Return the replica that a text names; raises NotFound."""
    if not known:
        raise NotFound(f"job {spec.job_id} {_why_no_output(view, spec.job_id)}")
    if (meant := named_replica(known, replica)) is None:
        raise NotFound(f"job {spec.job_id} has no output of a replica {replica[:80]!r}; there is: {', '.join(known)}")
    return meant


def named_replica(known: Sequence[str], replica: str) -> str | None:
    """Return the one of some replicas that a text names, the first where it is empty: a name, a role, a worker's index.

    `worker-1` and `launcher` stand for the pods that a cluster names after them; a Job names its own by index alone.
    """
    if not replica or replica in known:
        return replica or next(iter(known), None)
    meant = f"worker-{replica}" if replica.isdecimal() else replica
    of_a_job = rf".+-{re.escape(meant.removeprefix('worker-'))}-[a-z0-9]{{5}}"
    is_index = meant.removeprefix("worker-").isdecimal()
    return next(
        (name for name in known if f"-{meant}-" in f"-{name}-" or (is_index and re.fullmatch(of_a_job, name))), None
    )


def _why_no_output(view: JournalView, job_id: str) -> str:
    record = view.job_registry.job(job_id)
    if record is not None and record.job.first_started_at is not None:
        return "has no output any more: what its replicas printed went with them"
    if record is not None and not record.is_live:
        return "has printed nothing: no replica of it ever started"
    return "has printed nothing yet: no replica of it has started"


async def _copy(printed: AsyncIterator[bytes], stream: StreamedResponse) -> None:
    async for piece in printed:
        await stream.write(piece)
