"""Jobs: submit, list, get, change, delete; and why a job has what it has, or waits, at any moment.

Rule: the JSON of a job is made once per change; the use cases decide everything else.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Final

from aiohttp import hdrs, web
from msgspec import Meta, Struct
from msgspec.structs import replace

from voda.api.admission import CallerLimits
from voda.api.job_listing import JobPager, JobsQuery
from voda.api.operation import JSON, MERGE_PATCH, WRITERS, YAML, Operation, RequestBody, Response, Routes
from voda.api.presenters.explanations import explanation_of
from voda.api.presenters.jobs import JobJsonCache
from voda.api.requests import (
    body_of,
    cached_response,
    encoded_response,
    is_expected,
    json_response,
    manifest_of,
    printable_reason,
    query_of,
)
from voda.application.change_job import JobPatch, cancel, change
from voda.application.journal import Journal
from voda.application.lookup import job_id_then, job_of, spec_of
from voda.application.submit_job import JobSubmitter
from voda.auth.callers import Caller, require_owner
from voda.domain.errors import InvalidField, InvalidInput
from voda.projections.jobs.record import JobRecord
from voda.projections.jobs.record_text import last_failure_text, obstacle_text
from voda.projections.live import Live
from voda.timetravel.explanation import JobExplanation
from voda.timetravel.job_explanation import explain, explain_in
from voda.timetravel.moment import LogPlace, find, parse_moment
from voda.timetravel.report_doubts import doubt_text
from voda.wire.explanations import ExplanationView
from voda.wire.jobs import JobList, JobView, SubmissionView

_LISTS_KEPT: Final = 16
"""A full page is half a megabyte."""
JOB_PATH: Final = "/api/v1/jobs/{job_id}"
JOB_ID: Final = {
    "job_id": "Its name: your own live job of that name, else your latest one, else that of others. OWNER/NAME, the"
    " slash written %2F, is the owner's job of that name, and @ID the job with that id."
}
JOB_ETAG: Final = {"ETag": "The job's revision, in quotes."}
_SUBMITTED: Final = {**JOB_ETAG, "Location": "Path of the job."}
IDEMPOTENCY_KEY: Final = {
    "Idempotency-Key": "Chosen by you for this one job: if the answer is lost, send the same again, and"
    " the job is submitted once."
}
SUBMISSION: Final = (
    Response(status=201, of=SubmissionView, description="It is submitted.", headers=_SUBMITTED),
    Response(status=200, of=SubmissionView, description="It was submitted before, or this is a dry run."),
)
_IF_MATCH: Final = {"If-Match": "An ETag, or several: 412 if an event was about the job since."}


class SubmitQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to submit."""

    dry_run: Annotated[bool, Meta(description="Whether all is checked, but nothing submitted.")] = False


class DeleteQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why."""

    reason: Annotated[str, Meta(max_length=500, description="Told to whoever looks at the job later.")] = ""
    now: Annotated[bool, Meta(description="Kill its processes, without time for a checkpoint; for admins.")] = False


@dataclass
class JobRoutes(Routes):
    """The operations on jobs."""

    tag = "Jobs"

    journal: Journal
    limits: CallerLimits
    submits: JobSubmitter

    def __post_init__(self) -> None:
        self._view = self.journal.view
        self._json = JobJsonCache(self._view)
        self._listing = JobPager(self._view)
        self._lists: OrderedDict[tuple[str, str], bytes] = OrderedDict()
        self._lists_of: tuple[int, object] = (-1, None)
        """Position and forecasts of the lists in the cache."""

    @Operation(
        "POST",
        "/api/v1/jobs",
        description="An MPIJob or PyTorchJob of kubeflow.org. What this cluster does not honour of it is named in"
        " `warnings`.",
        roles=WRITERS,
        query=SubmitQuery,
        headers=IDEMPOTENCY_KEY,
        body=RequestBody(of=None, media_types=(YAML, JSON), description="The manifest."),
        answers=SUBMISSION,
        problems=(409, 429),
    )
    async def submit_job(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        """Submit a job."""
        query = query_of(request, SubmitQuery)
        manifest = await manifest_of(request, self.limits)
        key = idempotency_key(request)
        outcome = await self.submits.submit(manifest, caller, key=key, is_dry_run=query.dry_run)
        job = self._json.once(outcome.record) if query.dry_run else self._json.job(outcome.record)
        body = self._json.submission(job, is_dry_run=query.dry_run, warnings=outcome.warnings, tasks=outcome.tasks)
        if query.dry_run:
            return encoded_response(body)
        response = encoded_response(body, status=201 if outcome.is_new else 200, etag=str(outcome.record.revision))
        response.headers[hdrs.LOCATION] = f"/api/v1/jobs/{outcome.record.spec.job_id}"
        return response

    @Operation(
        "GET",
        "/api/v1/jobs",
        description="Live and ended ones, as they were submitted. Ask for the next page with continue=`next`.",
        query=JobsQuery,
        answers=(Response(of=JobList),),
    )
    async def list_jobs(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        """List jobs."""
        state = (self._view.position, self._view.forecasts)
        if self._lists_of[0] != state[0] or self._lists_of[1] is not state[1]:
            self._lists.clear()
            self._lists_of = state
        wanted = query_of(request, JobsQuery)
        # The name of an array means another one to each user; all else is the same for all.
        key = (request.rel_url.raw_query_string, caller.user if wanted.array else "")
        if (body := self._lists.get(key)) is None:
            page = self._listing.page(wanted, caller.user)
            body = self._json.page(page.records, total=page.total, following=page.following)
            self._lists[key] = body
            if len(self._lists) > _LISTS_KEPT:
                self._lists.popitem(last=False)
        return encoded_response(body)

    @Operation(
        "GET",
        JOB_PATH,
        path_parameters=JOB_ID,
        headers={"If-None-Match": "An ETag: 304 if no event was about the job since."},
        answers=(
            Response(of=JobView, headers=JOB_ETAG),
            Response(status=304, media_type="", description="As it was.", headers=JOB_ETAG),
        ),
        problems=(404,),
    )
    async def get_job(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        """Get a job."""
        record = job_of(self.journal.view, request.match_info["job_id"], caller)
        return cached_response(request, self._json.job(record), str(record.revision))

    @Operation(
        "PATCH",
        JOB_PATH,
        description="A JSON merge patch: what is absent stays.",
        roles=WRITERS,
        path_parameters=JOB_ID,
        headers=_IF_MATCH,
        body=RequestBody(of=JobPatch, media_types=(JSON, MERGE_PATCH)),
        answers=(Response(of=JobView, headers=JOB_ETAG),),
        problems=(404, 409, 412),
    )
    async def change_job(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        """Change what a job asks for."""
        record = job_of(self.journal.view, request.match_info["job_id"], caller)
        require_owner(record.spec, caller, what="change it")
        wanted = await body_of(request, JobPatch, self.limits)
        record = await change(self.journal, record, wanted, caller, is_expected=_expected(request))
        return encoded_response(self._json.job(record), etag=str(record.revision))

    @Operation(
        "DELETE",
        JOB_PATH,
        description="Its workers are stopped; what it wrote stays. A job that has ended stays as it is.",
        roles=WRITERS,
        query=DeleteQuery,
        path_parameters=JOB_ID,
        headers=_IF_MATCH,
        answers=(Response(status=202, of=JobView, headers=JOB_ETAG),),
        problems=(404, 412),
    )
    async def delete_job(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        """Cancel a job."""
        query = query_of(request, DeleteQuery)
        record = job_of(self.journal.view, request.match_info["job_id"], caller)
        require_owner(record.spec, caller, what="delete it")
        reason = printable_reason(query.reason)
        await cancel(self.journal, record, caller, reason=reason, is_kill=query.now, is_expected=_expected(request))
        return encoded_response(self._json.job(record), status=202, etag=str(record.revision))


class ExplainQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """At which moment."""

    at: Annotated[
        str,
        Meta(
            description="A position (42), a time (2026-01-31T12:00:00Z), a span after the first event (+1h30m) or"
            " before the last one (-10m); by default now.",
            max_length=80,
        ),
    ] = ""


@dataclass
class ExplanationRoutes(Routes):
    """The operation that explains."""

    tag = "Jobs"

    journal: Journal
    live: Live

    @Operation(
        "GET",
        "/api/v1/jobs/{job_id}/explain",
        description="The policy is asked again, with the state of that moment: what it would change is told beside the"
        " reason of the plan in force.",
        path_parameters=JOB_ID,
        query=ExplainQuery,
        answers=[Response(of=ExplanationView)],
        problems=[404, 503],
        takes_turns=True,
    )
    async def explain_job(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        """Explain why a job has what it has, or waits."""
        query = query_of(request, ExplainQuery)
        named, place = request.match_info["job_id"], await self._place(query.at) if query.at else None
        if place is None:
            explanation = await self._now((await spec_of(self.journal, named, caller)).job_id)
        else:
            job_id = await job_id_then(self.journal, named, caller, place.position)
            explanation = await explain(self.journal.store, job_id, place)
        forecast = self.journal.view.forecasts.get(explanation.job_id)
        expected = forecast.starts_at if forecast is not None and place is None and explanation.shortage else None
        return json_response(explanation_of(explanation, expected_start_at=expected))

    async def _now(self, job_id: str) -> JobExplanation:
        store, live, now = self.journal.store, self.live, self.journal.clock.now()
        if (job := live.cluster.job(job_id)) is not None:
            explanation = await explain_in(store, live.state(job.spec.pool), job_id, now)
            explanation = replace(explanation, doubt=doubt_text(live.learning.measurements(job_id)))
            return _as_everywhere(explanation, self.journal.view.job_registry.job(job_id))
        return await explain(store, job_id, LogPlace(position=self.journal.view.position, at=now))

    async def _place(self, at: str) -> LogPlace:
        try:
            return await find(self.journal.store, parse_moment(at))
        except InvalidInput as error:
            raise InvalidField("at", str(error)) from error


def _as_everywhere(explanation: JobExplanation, record: JobRecord | None) -> JobExplanation:
    """Return the explanation of a live job with the reason that all other answers give for it."""
    # Policies were asked in a thread: the job may have gone on meanwhile.
    if record is None or not record.is_live:
        return explanation
    return replace(
        explanation,
        # What holds it up has a line of its own here.
        reason=record.present_reason,
        obstacle=obstacle_text(record),
        retry_at=record.retry_at,
        program_failures=record.program_failures,
        last_failure=last_failure_text(record),
        next_try=record.next_try,
        most_tries=record.most_tries,
        next_try_at=record.next_try_at,
    )


def idempotency_key(request: web.Request) -> str:
    """Return the key that the caller chose; empty where there is none."""
    if (key := request.headers.get("Idempotency-Key", "")) == "" and "Idempotency-Key" in request.headers:
        raise InvalidField("Idempotency-Key", "Idempotency-Key is empty: give one of your own, or leave it out")
    return key


def _expected(request: web.Request) -> Callable[[int], bool] | None:
    """Return whether the caller has seen a revision (If-Match); None where the caller does not care."""
    if request.headers.get(hdrs.IF_MATCH, "*").strip() == "*":
        return None
    return lambda revision: is_expected(request, str(revision))
