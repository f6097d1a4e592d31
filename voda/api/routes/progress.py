"""What jobs report of themselves, and what was submitted.

Rules: a job's token reports on that job alone; a manifest may hold secrets in its variables, so it is for the job's
owner and admins, as output is.
"""

import asyncio
from collections.abc import Sequence

import msgspec
from aiohttp import hdrs, web

from voda.api.operation import WRITERS, YAML, Operation, RequestBody, Response
from voda.api.presenters.jobs import reports_of
from voda.api.requests import body_of, json_response
from voda.api.routes.jobs import JOB_ID, JOB_PATH
from voda.api.schemas.jobs import ReportList
from voda.application.backend import Backend
from voda.application.change_job import ProgressReport, report
from voda.application.job_lookup import job_of
from voda.auth.callers import Caller, require_owner
from voda.domain.errors import NotAllowed, NotFound
from voda.events.types import JobSubmitted


class ProgressHandlers:
    """The handlers."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def report(self, request: web.Request, who: Caller) -> web.Response:
        """Take down a report."""
        if who.role == "job" and who.job_id != request.match_info["job_id"]:
            raise NotAllowed(
                f"this token is job {who.job_id}'s, which reports at /api/v1/jobs/{who.job_id}/progress alone"
            )
        record = job_of(self._backend, request.match_info["job_id"])
        await report(self._backend, record, await body_of(request, ProgressReport, self._backend.limits), who)
        return web.Response(status=204)

    async def list(self, request: web.Request, _who: Caller) -> web.Response:
        """Show what was reported."""
        return json_response(reports_of(job_of(self._backend, request.match_info["job_id"])))

    async def manifest(self, request: web.Request, who: Caller) -> web.Response:
        """Show what was submitted."""
        record = job_of(self._backend, request.match_info["job_id"])
        require_owner(record.spec, who, what="read its manifest")
        events = await self._backend.store.read(record.submitted_position - 1, 1)
        fact = events[0].data
        if not isinstance(fact, JobSubmitted) or fact.spec.manifest is None:
            raise NotFound(f"job {record.spec.job_id} was submitted without a manifest")
        if "yaml" in request.headers.get(hdrs.ACCEPT, ""):
            # A thousand lines take their time, and others wait.
            body = await asyncio.to_thread(msgspec.yaml.encode, fact.spec.manifest)
            return web.Response(body=body, headers={hdrs.CONTENT_TYPE: YAML})
        return json_response(fact.spec.manifest)


def routes(backend: Backend) -> Sequence[Operation]:
    """Return the operations on progress and manifests."""
    progress = ProgressHandlers(backend)
    return [
        Operation(
            method="POST",
            path=f"{JOB_PATH}/progress",
            handler=progress.report,
            name="reportProgress",
            summary="Report a job's progress",
            description="With the job's own token (VODA_JOB_TOKEN of its processes); voda.report does it.",
            tag="Jobs",
            roles=frozenset({"admin", "job"}),
            path_parameters=JOB_ID,
            body=RequestBody(of=ProgressReport),
            answers=(Response(status=204, media_type="", description="It is recorded."),),
            problems=(400, 404, 409, 413, 415, 503, 507),
        ),
        Operation(
            method="GET",
            path=f"{JOB_PATH}/progress",
            handler=progress.list,
            name="listProgress",
            summary="List what a job reported",
            tag="Jobs",
            path_parameters=JOB_ID,
            answers=(Response(of=ReportList),),
            problems=(404,),
        ),
        Operation(
            method="GET",
            path=f"{JOB_PATH}/manifest",
            handler=progress.manifest,
            name="getManifest",
            summary="Get the manifest of a job, as it was submitted",
            description="For its owner and admins, as it may hold secrets in its variables.",
            tag="Jobs",
            roles=WRITERS,
            path_parameters=JOB_ID,
            answers=(Response(description="The manifest."), Response(media_type=YAML, description="The manifest.")),
            problems=(404,),
        ),
    ]
