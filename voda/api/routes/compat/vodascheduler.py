"""The endpoints of the ancestor, heyfey/vodascheduler, so that its users' scripts keep working.

Rule: bodies and answers are the ancestor's, to the word; refusals are problems like everywhere, because the ancestor
answered 200 to what it had not done. See docs/migrating-from-voda.md.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Final

from aiohttp import web
from msgspec import Meta, Struct

from voda.api.admission import CallerLimits
from voda.api.operation import ADMINS, JSON, TEXT, WRITERS, YAML, Operation, RequestBody, Response, Routes
from voda.api.presenters.vodascheduler import HEAD, dated, policy_of, row, seconds_of, text_of
from voda.api.requests import manifest_of, query_of, raw_body
from voda.application.change_job import cancel
from voda.application.change_settings import change_settings
from voda.application.journal import Journal
from voda.application.lookup import known_pool
from voda.application.submit_job import JobSubmitter
from voda.auth.callers import Caller, require_owner
from voda.domain.errors import NotFound
from voda.domain.settings import Settings

_ANSWER: Final = (Response(media_type=TEXT),)
_ROWS_AT_ONCE: Final = 500
"""Lines of the table that are made before other tasks get a turn."""


class PoolQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which pool; the ancestor had a port for each type of GPU."""

    pool: Annotated[str, Meta(description="Type of GPU, as the ancestor said; by default the first pool.")] = ""


def _setting(path: str, kind: type, description: str) -> Operation:
    return Operation(
        "PUT",
        path,
        roles=ADMINS,
        query=PoolQuery,
        body=RequestBody(of=kind, media_types=(JSON, TEXT), description=description),
        answers=_ANSWER,
        problems=[404],
    )


@dataclass
class CompatRoutes(Routes):
    """The operations of the ancestor."""

    tag = "Ancestor"

    journal: Journal
    limits: CallerLimits
    pools: Sequence[str]
    submits: JobSubmitter

    @Operation(
        "POST",
        "/training",
        roles=WRITERS,
        query=PoolQuery,
        body=RequestBody(of=None, media_types=(YAML, JSON), description="The manifest of an MPIJob."),
        answers=_ANSWER,
        problems=[404, 409, 429],
    )
    async def create_training(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        """Submit a job under its name and a timestamp."""
        pool = query_of(request, PoolQuery).pool
        now = datetime.fromtimestamp(self.journal.clock.now(), UTC)
        manifest = dated(await manifest_of(request, self.limits), f"{now:%Y%m%d-%H%M%S}")
        if pool:
            manifest = _in_pool(manifest, known_pool(self.pools, self.journal.view, pool))
        job_id = (await self.submits.submit(manifest, caller)).record.spec.job_id
        return web.Response(
            text=f"Training job created: {job_id}\nView your logs by:\n    voda logs {job_id}\n",
            headers={"Location": f"/api/v1/jobs/{job_id}"},
        )

    @Operation(
        "DELETE",
        "/training",
        roles=WRITERS,
        body=RequestBody(of=str, media_types=(JSON, TEXT), description="Name of the job, with or without quotes."),
        answers=_ANSWER,
        problems=[404],
    )
    async def delete_training(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        """Cancel a job."""
        named = text_of(await raw_body(request, self.limits))
        if (record := self.journal.view.job_registry.find(named, caller.user)) is None:
            raise NotFound(f"job {named[:80]!r} is not known: GET /training lists the jobs there are")
        require_owner(record.spec, caller, what="delete it")
        await cancel(self.journal, record, caller)
        return web.Response(text=f"Training job deleted: {record.spec.job_id}\n")

    @Operation(
        "GET",
        "/training",
        query=PoolQuery,
        answers=_ANSWER,
        problems=[404],
    )
    async def list_training(self, request: web.Request, _caller: Caller) -> web.StreamResponse:
        """List jobs as a table of text."""
        pool, now = query_of(request, PoolQuery).pool, self.journal.clock.now()
        if pool:
            known_pool(self.pools, self.journal.view, pool)
        rows = []
        for number, record in enumerate(tuple(self.journal.view.job_registry.jobs().values()), 1):
            if pool in ("", record.spec.pool):
                rows.append(row(record, now))
            if number % _ROWS_AT_ONCE == 0:
                await asyncio.sleep(0)
        return web.Response(text=HEAD + "".join(sorted(rows)))

    @_setting("/algorithm", str, "ElasticFIFO and the like, or a name of ours.")
    async def set_algorithm(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        """Set the policy of a pool."""
        pool, settings = await self._change(request, caller, "policy", policy_of)
        return web.Response(text=f"Scheduler: {pool}\nScheduling Algorithm: {settings.policy}\n")

    @_setting("/ratelimit", float, "Seconds, 0 to 86400.")
    async def set_ratelimit(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        """Set the seconds between two plans of a pool."""
        pool, settings = await self._change(request, caller, "ratelimit_s", seconds_of)
        return web.Response(text=f"Scheduler: {pool}\nRe-scheduling ratelimit (sec): {settings.ratelimit_s:g}\n")

    async def _change(
        self, request: web.Request, caller: Caller, name: str, value_of: Callable[[bytes], object]
    ) -> tuple[str, Settings]:
        """Set the setting to the value that the body means, and return the pool and its settings."""
        pool = known_pool(self.pools, self.journal.view, query_of(request, PoolQuery).pool or self.pools[0])
        value = value_of(await raw_body(request, self.limits))
        return pool, await change_settings(self.journal, pool, {name: value}, actor=caller.user)


def _in_pool(manifest: dict[str, Any], pool: str) -> dict[str, Any]:
    """Return the manifest with the pool that the caller named, which overrides the manifest's own."""
    metadata = manifest.get("metadata")
    if not isinstance(metadata, Mapping) or not isinstance(annotations := metadata.get("annotations") or {}, Mapping):
        return manifest
    return {**manifest, "metadata": {**metadata, "annotations": {**annotations, "voda.dev/pool": pool}}}
