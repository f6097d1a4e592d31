"""Halts a job, resumes it, and runs it again.

Rule: for the job's owner and admins; asking twice does no more than asking once.
"""

from dataclasses import dataclass
from typing import Annotated, Final

from aiohttp import hdrs, web
from msgspec import Meta, Struct

from voda.api.operation import WRITERS, Operation, Response, Routes
from voda.api.presenters.jobs import JobJsonCache
from voda.api.requests import encoded_response, printable_reason, query_of
from voda.api.routes.jobs import IDEMPOTENCY_KEY, JOB_ETAG, JOB_ID, JOB_PATH, SUBMISSION, idempotency_key
from voda.application.halt_job import halt, resume
from voda.application.journal import Journal
from voda.application.lookup import job_of
from voda.application.submit_job import JobSubmitter
from voda.auth.callers import Caller, require_owner
from voda.projections.jobs.record import JobRecord
from voda.wire.jobs import JobView

_JOB: Final = (Response(of=JobView, headers=JOB_ETAG),)


class RerunQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """From where it begins."""

    goes_on: Annotated[bool, Meta(description="In the folder of the ended job, with its checkpoints.")] = False
    kept_script: Annotated[
        str, Meta(max_length=4_096, description="File that runs in place of its script; empty: the script as it is.")
    ] = ""


class HaltQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why."""

    reason: Annotated[str, Meta(max_length=500, description="Told to whoever looks at the job meanwhile.")] = ""


@dataclass
class JobControlRoutes(Routes):
    """The operations that interrupt and repeat a job."""

    tag = "Jobs"

    journal: Journal
    submits: JobSubmitter

    def __post_init__(self) -> None:
        self._json = JobJsonCache(self.journal.view)

    @Operation(
        "POST",
        f"{JOB_PATH}/halt",
        description="It gives its GPUs back, as when it is preempted, keeps its place and its files, and gets no"
        " workers until it is resumed. A halted job stays as it is.",
        roles=WRITERS,
        query=HaltQuery,
        path_parameters=JOB_ID,
        answers=_JOB,
        problems=(404, 409),
    )
    async def halt_job(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        """Halt a job until it is resumed."""
        query, record = query_of(request, HaltQuery), self._own_job(request, caller, "halt it")
        await halt(self.journal, record, caller, reason=printable_reason(query.reason))
        return self._answer(record)

    @Operation(
        "POST",
        f"{JOB_PATH}/resume",
        description="Plans may give it workers again. A job that is not halted stays as it is.",
        roles=WRITERS,
        path_parameters=JOB_ID,
        answers=_JOB,
        problems=(404, 409),
    )
    async def resume_job(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        """Resume a halted job."""
        record = self._own_job(request, caller, "resume it")
        await resume(self.journal, record, caller)
        return self._answer(record)

    @Operation(
        "POST",
        f"{JOB_PATH}/rerun",
        description="Submits its manifest again, as the next run of its name and for its owner. The job must have"
        " ended, because a name belongs to one live job at a time.",
        roles=WRITERS,
        query=RerunQuery,
        path_parameters=JOB_ID,
        headers=IDEMPOTENCY_KEY,
        answers=SUBMISSION,
        problems=(404, 409, 429),
    )
    async def rerun_job(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        """Run a job again."""
        key, query = idempotency_key(request), query_of(request, RerunQuery)
        record = self._own_job(request, caller, "run it again")
        outcome = await self.submits.rerun(
            record, caller, key=key, goes_on=query.goes_on, kept_script=query.kept_script
        )
        job = self._json.job(outcome.record)
        body = self._json.submission(job, is_dry_run=False, warnings=outcome.warnings)
        response = encoded_response(body, status=201 if outcome.is_new else 200, etag=str(outcome.record.revision))
        response.headers[hdrs.LOCATION] = f"/api/v1/jobs/{outcome.record.spec.job_id}"
        return response

    def _own_job(self, request: web.Request, caller: Caller, what: str) -> JobRecord:
        record = job_of(self.journal.view, request.match_info["job_id"], caller)
        require_owner(record.spec, caller, what=what)
        return record

    def _answer(self, record: JobRecord) -> web.StreamResponse:
        return encoded_response(self._json.job(record), etag=str(record.revision))
