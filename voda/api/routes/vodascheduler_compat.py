"""The endpoints of the ancestor, heyfey/vodascheduler, so that its users' scripts keep working.

Rule: bodies and answers are the ancestor's, to the word; refusals are problems like everywhere, because the ancestor
answered 200 to what it had not done. See docs/migrating-from-voda.md.
"""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import msgspec
from aiohttp import web
from msgspec import Meta, Struct

from voda.api.operation import ADMINS, JSON, TEXT, WRITERS, YAML, Operation, RequestBody, Response
from voda.api.presenters.vodascheduler import dated, head, policy_of, row, seconds_of, text_of
from voda.api.requests import manifest_of, query_of, raw_body
from voda.application.backend import Backend
from voda.application.change_job import cancel
from voda.application.change_settings import SettingsChange, change_settings
from voda.application.pools import known_pool
from voda.application.submit_job import JobSubmitter
from voda.auth.callers import Caller, require_owner
from voda.domain.errors import InvalidField, NotFound
from voda.domain.state import Settings

_TAG: Final = "Ancestor"
_ANSWER: Final = (Response(media_type=TEXT),)
_ROWS_AT_ONCE: Final = 500
"""Lines of the table that are made before others get a turn."""


class PoolQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which pool; the ancestor had a port for each type of GPU."""

    pool: Annotated[str, Meta(description="Type of GPU, as the ancestor said; by default the first pool.")] = ""


class CompatHandlers:
    """The handlers."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._submits = JobSubmitter(backend)

    async def create(self, request: web.Request, who: Caller) -> web.StreamResponse:
        """Submit a manifest under its name and a timestamp."""
        pool = query_of(request, PoolQuery).pool
        backend = self._backend
        now = datetime.fromtimestamp(backend.clock.now(), UTC)
        manifest = dated(await manifest_of(request, backend.limits), f"{now:%Y%m%d-%H%M%S}")
        if pool:
            manifest = _in_pool(manifest, known_pool(backend, pool))
        job_id = (await self._submits.submit(manifest, who)).record.spec.job_id
        return web.Response(
            text=f"Training job created: {job_id}\nView your logs by:\n    voda logs {job_id}\n",
            headers={"Location": f"/api/v1/jobs/{job_id}"},
        )

    async def delete(self, request: web.Request, who: Caller) -> web.StreamResponse:
        """Cancel a job."""
        named = text_of(await raw_body(request, self._backend.limits))
        if (record := self._backend.view.roster.find(named)) is None:
            raise NotFound(f"job {named[:80]!r} is not known: GET /training lists the jobs there are")
        require_owner(record.spec, who, what="delete it")
        await cancel(self._backend, record, who)
        return web.Response(text=f"Training job deleted: {record.spec.job_id}\n")

    async def table(self, request: web.Request, _who: Caller) -> web.StreamResponse:
        """List all jobs, in lines of text."""
        pool, now = query_of(request, PoolQuery).pool, self._backend.clock.now()
        if pool:
            known_pool(self._backend, pool)
        rows = []
        for number, record in enumerate(tuple(self._backend.view.roster.jobs().values()), 1):
            if pool in ("", record.spec.pool):
                rows.append(row(record, now))
            if number % _ROWS_AT_ONCE == 0:
                await asyncio.sleep(0)
        return web.Response(text=head() + "".join(sorted(rows)))

    async def algorithm(self, request: web.Request, who: Caller) -> web.StreamResponse:
        """Set the policy of a pool."""
        pool = self._pool(request)
        asked = text_of(await raw_body(request, self._backend.limits))
        settings = await self._change(pool, {"policy": policy_of(asked)}, who)
        return web.Response(text=f"Scheduler: {pool}\nScheduling Algorithm: {settings.policy}\n")

    async def ratelimit(self, request: web.Request, who: Caller) -> web.StreamResponse:
        """Set the rate limit of a pool."""
        pool = self._pool(request)
        asked = seconds_of(await raw_body(request, self._backend.limits))
        settings = await self._change(pool, {"ratelimit_s": asked}, who)
        return web.Response(text=f"Scheduler: {pool}\nRe-scheduling ratelimit (sec): {settings.ratelimit_s:g}\n")

    async def _change(self, pool: str, fields: Mapping[str, Any], who: Caller) -> Settings:
        try:
            change = msgspec.convert(fields, SettingsChange)
        except msgspec.ValidationError as error:
            (name,) = fields
            raise InvalidField(name, f"{name}: {error}") from error
        return await change_settings(self._backend, pool, change, actor=who.user)

    def _pool(self, request: web.Request) -> str:
        return known_pool(self._backend, query_of(request, PoolQuery).pool or self._backend.pools[0])


def routes(backend: Backend) -> Sequence[Operation]:
    """Return the operations of the ancestor."""
    ancestor = CompatHandlers(backend)
    return [
        Operation(
            method="POST",
            path="/training",
            handler=ancestor.create,
            name="createTraining",
            summary="Submit a job under its name and a timestamp",
            tag=_TAG,
            roles=WRITERS,
            query=PoolQuery,
            body=RequestBody(of=None, media_types=(YAML, JSON), description="The manifest of an MPIJob."),
            answers=_ANSWER,
            problems=[400, 404, 409, 413, 415, 429, 503, 507],
        ),
        Operation(
            method="DELETE",
            path="/training",
            handler=ancestor.delete,
            name="deleteTraining",
            summary="Cancel a job",
            tag=_TAG,
            roles=WRITERS,
            body=RequestBody(of=str, media_types=(JSON, TEXT), description="Name of the job, with or without quotes."),
            answers=_ANSWER,
            problems=[400, 404, 413, 415, 503, 507],
        ),
        Operation(
            method="GET",
            path="/training",
            handler=ancestor.table,
            name="listTraining",
            summary="List jobs as a table of text",
            tag=_TAG,
            query=PoolQuery,
            answers=_ANSWER,
            problems=[404],
        ),
        Operation(
            method="PUT",
            path="/algorithm",
            handler=ancestor.algorithm,
            name="setAlgorithm",
            summary="Set the policy of a pool",
            tag=_TAG,
            roles=ADMINS,
            query=PoolQuery,
            body=RequestBody(
                of=str, media_types=(JSON, TEXT), description="ElasticFIFO and the like, or a name of ours."
            ),
            answers=_ANSWER,
            problems=[400, 404, 413, 415, 503, 507],
        ),
        Operation(
            method="PUT",
            path="/ratelimit",
            handler=ancestor.ratelimit,
            name="setRatelimit",
            summary="Set the seconds between two plans of a pool",
            tag=_TAG,
            roles=ADMINS,
            query=PoolQuery,
            body=RequestBody(of=float, media_types=(JSON, TEXT), description="Seconds, 0 to 86400."),
            answers=_ANSWER,
            problems=[400, 404, 413, 415, 503, 507],
        ),
    ]


def _in_pool(manifest: dict[str, Any], pool: str) -> dict[str, Any]:
    """Return the manifest with the pool that the caller named; what the manifest says itself comes second."""
    metadata = manifest.get("metadata")
    if not isinstance(metadata, Mapping) or not isinstance(notes := metadata.get("annotations") or {}, Mapping):
        return manifest
    return {**manifest, "metadata": {**metadata, "annotations": {**notes, "voda.dev/pool": pool}}}
