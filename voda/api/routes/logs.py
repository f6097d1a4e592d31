"""The output of a job's replicas.

Rule: output may hold secrets, so it is for the job's owner and admins alone.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Annotated

from aiohttp import web
from msgspec import Meta, Struct

from voda.api.operation import TEXT, WRITERS, Operation, Response, Routes
from voda.api.requests import json_response, query_of
from voda.api.streams import StreamedResponse
from voda.application.backend import Backend
from voda.application.lookup import spec_of
from voda.auth import Caller, require_owner
from voda.cluster.port import Outputs
from voda.domain.errors import NotFound
from voda.domain.job import JobSpec

_JOB = {"job_id": "Id of the job, or its name: the latest job of that name."}


class LogsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which part of which output."""

    replica: Annotated[str, Meta(description="Its name or role; by default the most telling one.", max_length=253)] = ""
    follow: Annotated[bool, Meta(description="Go on until the job has ended.")] = False
    tail_bytes: (
        Annotated[int, Meta(description="Begin that far before the end, at a line's beginning.", ge=0, le=2**53)] | None
    ) = None


class LogRoutes(Routes):
    """The operations on output."""

    tag = "Jobs"

    @Operation(
        "GET",
        "/api/v1/jobs/{job_id}/logs",
        roles=WRITERS,
        path_parameters=_JOB,
        query=LogsQuery,
        answers=[Response(media_type=TEXT, headers={"X-Voda-Replica": "Whose output it is."})],
        problems=[404],
    )
    async def get_logs(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        """Read what a replica printed, or follow it."""
        query = query_of(request, LogsQuery)
        spec, outputs = await self._outputs(request, caller)
        replica = _select_replica(self.backend, spec, query.replica, await outputs.replicas(spec.job_id))
        printed = outputs.read(spec.job_id, replica, tail_bytes=query.tail_bytes, follow=query.follow)
        stream = StreamedResponse(
            request,
            self.backend.limits,
            {"Content-Type": f"{TEXT}; charset=utf-8", "X-Voda-Replica": replica, "X-Content-Type-Options": "nosniff"},
        )
        return await stream.run(lambda: _copy(printed, stream))

    @Operation(
        "GET",
        "/api/v1/jobs/{job_id}/logs/replicas",
        roles=WRITERS,
        path_parameters=_JOB,
        answers=[Response(of=tuple[str, ...])],
        problems=[404],
    )
    async def list_replicas(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        """List the replicas that have output, the most telling one first."""
        spec, outputs = await self._outputs(request, caller)
        return json_response(tuple(await outputs.replicas(spec.job_id)))

    async def _outputs(self, request: web.Request, caller: Caller) -> tuple[JobSpec, Outputs]:
        """Return the job and the output of its pool, where the caller may read it."""
        spec = await spec_of(self.backend, request.match_info["job_id"])
        require_owner(spec, caller, what="read its output")
        if (outputs := self.backend.outputs) is None:
            raise NotFound(f"the cluster behind pool {spec.pool} keeps no output; ask it for that of job {spec.job_id}")
        return spec, outputs


def _select_replica(backend: Backend, spec: JobSpec, replica: str, known: Sequence[str]) -> str:
    """Return the replica of that name; `worker-1` and `launcher` stand for the pods that a cluster names after them."""
    if not known:
        raise NotFound(f"job {spec.job_id} {_why_no_output(backend, spec.job_id)}")
    if not replica or replica in known:
        return replica or known[0]
    meant = next((name for name in known if f"-{replica}-" in f"{name}-"), None)
    if meant is None:
        raise NotFound(f"job {spec.job_id} has no output of a replica {replica[:80]!r}; there is: {', '.join(known)}")
    return meant


def _why_no_output(backend: Backend, job_id: str) -> str:
    record = backend.view.job_registry.job(job_id)
    if record is not None and record.job.first_started_at is not None:
        return "has no output any more: what its replicas printed went with them"
    if record is not None and not record.is_live:
        return "has printed nothing: no replica of it ever started"
    return "has printed nothing yet: no replica of it has started"


async def _copy(printed: AsyncIterator[bytes], stream: StreamedResponse) -> None:
    async for piece in printed:
        await stream.write(piece)
