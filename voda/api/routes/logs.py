"""What the replicas of a job print.

Rule: output may hold secrets, so it is for the job's owner and admins alone.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Annotated

from aiohttp import web
from msgspec import Meta, Struct

from voda.api.operation import TEXT, WRITERS, Operation, Response
from voda.api.requests import json_response, query_of
from voda.api.streams import StreamedResponse
from voda.application.backend import Backend
from voda.application.job_lookup import spec_of
from voda.auth.callers import Caller, require_owner
from voda.cluster.port import Outputs
from voda.domain.errors import NotFound
from voda.domain.job import JobSpec

_TAG = "Jobs"
_JOB = {"job_id": "Id of the job, or its name: the latest job of that name."}


class LogsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which part of which output."""

    replica: Annotated[str, Meta(description="Its name or role; by default the most telling one.", max_length=253)] = ""
    follow: Annotated[bool, Meta(description="Go on until the job has ended.")] = False
    tail_bytes: (
        Annotated[int, Meta(description="Begin that far before the end, at a line's beginning.", ge=0, le=2**53)] | None
    ) = None


def routes(backend: Backend) -> Sequence[Operation]:
    """Return the operations on output."""

    async def get_logs(request: web.Request, who: Caller) -> web.StreamResponse:
        query = query_of(request, LogsQuery)
        spec, outputs = await _allowed(backend, request, who)
        replica = _chosen(backend, spec, query.replica, await outputs.replicas(spec.job_id))
        printed = outputs.read(spec.job_id, replica, tail_bytes=query.tail_bytes, follow=query.follow)
        stream = StreamedResponse(
            request,
            backend.limits,
            {"Content-Type": f"{TEXT}; charset=utf-8", "X-Voda-Replica": replica, "X-Content-Type-Options": "nosniff"},
        )
        return await stream.run(lambda: _copied(printed, stream))

    async def list_replicas(request: web.Request, who: Caller) -> web.StreamResponse:
        spec, outputs = await _allowed(backend, request, who)
        return json_response(tuple(await outputs.replicas(spec.job_id)))

    return [
        Operation(
            method="GET",
            path="/api/v1/jobs/{job_id}/logs",
            handler=get_logs,
            name="getLogs",
            summary="Read what a replica printed, or follow it",
            tag=_TAG,
            roles=WRITERS,
            path_parameters=_JOB,
            query=LogsQuery,
            answers=[Response(media_type=TEXT, headers={"X-Voda-Replica": "Whose output it is."})],
            problems=[404],
        ),
        Operation(
            method="GET",
            path="/api/v1/jobs/{job_id}/logs/replicas",
            handler=list_replicas,
            name="listReplicas",
            summary="List the replicas that have output, the most telling one first",
            tag=_TAG,
            roles=WRITERS,
            path_parameters=_JOB,
            answers=[Response(of=tuple[str, ...])],
            problems=[404],
        ),
    ]


async def _allowed(backend: Backend, request: web.Request, who: Caller) -> tuple[JobSpec, Outputs]:
    spec = await spec_of(backend, request.match_info["job_id"])
    require_owner(spec, who, what="read its output")
    if (outputs := backend.outputs.get(spec.pool)) is None:
        raise NotFound(f"the cluster behind pool {spec.pool} keeps no output; ask it for that of job {spec.job_id}")
    return spec, outputs


def _chosen(backend: Backend, spec: JobSpec, asked: str, there_are: Sequence[str]) -> str:
    """Return the replica of that name; `worker-1` and `launcher` stand for the pods that a cluster names after them."""
    if not there_are:
        raise NotFound(f"job {spec.job_id} {_silence(backend, spec.job_id)}")
    if not asked or asked in there_are:
        return asked or there_are[0]
    meant = next((name for name in there_are if f"-{asked}-" in f"{name}-"), None)
    if meant is None:
        raise NotFound(f"job {spec.job_id} has no output of a replica {asked[:80]!r}; there is: {', '.join(there_are)}")
    return meant


def _silence(backend: Backend, job_id: str) -> str:
    """Say why there is no output of a job."""
    record = backend.view.roster.job(job_id)
    if record is not None and record.started_at is not None:
        return "has no output any more: what its replicas printed went with them"
    if record is not None and not record.is_live:
        return "has printed nothing: no replica of it ever started"
    return "has printed nothing yet: no replica of it has started"


async def _copied(printed: AsyncIterator[bytes], stream: StreamedResponse) -> None:
    async for piece in printed:
        await stream.write(piece)
