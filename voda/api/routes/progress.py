"""What jobs report of themselves, and the manifests they were submitted with.

Rules: a job's token reports on that job alone; a manifest may hold secrets in its variables, so it is for the job's
owner and admins, as output is.
"""

import asyncio

import msgspec
from aiohttp import hdrs, web

from voda.api.operation import WRITERS, YAML, Operation, RequestBody, Response, Routes
from voda.api.presenters.jobs import reports_of
from voda.api.requests import body_of, json_response
from voda.api.routes.jobs import JOB_ID, JOB_PATH
from voda.api.schemas import ReportList
from voda.application.change_job import ProgressReport, report
from voda.application.lookup import job_of
from voda.auth import Caller, require_owner
from voda.domain.errors import NotAllowed, NotFound
from voda.events.types import JobSubmitted


class ProgressRoutes(Routes):
    """The operations on progress and manifests."""

    tag = "Jobs"

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
        if caller.role == "job" and caller.job_id != request.match_info["job_id"]:
            raise NotAllowed(
                f"this token is job {caller.job_id}'s, which reports at /api/v1/jobs/{caller.job_id}/progress alone"
            )
        record = job_of(self.backend, request.match_info["job_id"])
        await report(self.backend, record, await body_of(request, ProgressReport, self.backend.limits), caller)
        return web.Response(status=204)

    @Operation(
        "GET",
        f"{JOB_PATH}/progress",
        path_parameters=JOB_ID,
        answers=[Response(of=ReportList)],
        problems=[404],
    )
    async def list_progress(self, request: web.Request, _caller: Caller) -> web.StreamResponse:
        """List what a job reported."""
        return json_response(reports_of(job_of(self.backend, request.match_info["job_id"])))

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
        record = job_of(self.backend, request.match_info["job_id"])
        require_owner(record.spec, caller, what="read its manifest")
        events = await self.backend.store.read(record.submitted_position - 1, 1)
        fact = events[0].data
        if not isinstance(fact, JobSubmitted) or fact.spec.manifest is None:
            raise NotFound(f"job {record.spec.job_id} was submitted without a manifest")
        if "yaml" in request.headers.get(hdrs.ACCEPT, ""):
            # A thousand lines take their time, and others wait.
            body = await asyncio.to_thread(msgspec.yaml.encode, fact.spec.manifest)
            return web.Response(body=body, headers={hdrs.CONTENT_TYPE: YAML})
        return json_response(fact.spec.manifest)
