"""Pools and their settings."""

from collections.abc import Sequence

from aiohttp import web

from voda.api.operation import ADMINS, JSON, Operation, RequestBody, Response
from voda.api.presenters.pools import pool_of, revision_of, settings_of
from voda.api.requests import body_of, is_expected, is_unchanged, json_response
from voda.api.schemas.pools import PoolList, PoolView, SettingsView
from voda.application.backend import Backend
from voda.application.change_settings import SettingsChange, change_settings
from voda.application.pools import known_pool, pool_names, pool_state
from voda.auth.callers import Caller

_TAG = "Pools"
_POOL = {"pool": "Name of the pool."}
_ETAG = {"ETag": "Changes with the content; send it back as If-Match or If-None-Match."}
_MERGE_PATCH = "application/merge-patch+json"


def routes(backend: Backend) -> Sequence[Operation]:
    """Return the operations on pools."""

    async def list_pools(_request: web.Request, _who: Caller) -> web.StreamResponse:
        return json_response(PoolList(items=tuple(pool_of(pool_state(backend, name)) for name in pool_names(backend))))

    async def get_pool(request: web.Request, _who: Caller) -> web.StreamResponse:
        pool = pool_of(pool_state(backend, known_pool(backend, request.match_info["pool"])))
        return _answered(request, pool, pool.revision)

    async def get_settings(request: web.Request, _who: Caller) -> web.StreamResponse:
        settings = settings_of(pool_state(backend, known_pool(backend, request.match_info["pool"])).settings)
        return _answered(request, settings, revision_of(settings))

    async def patch_settings(request: web.Request, who: Caller) -> web.StreamResponse:
        pool = known_pool(backend, request.match_info["pool"])
        change = await body_of(request, SettingsChange, backend.limits)
        settings = settings_of(
            await change_settings(
                backend,
                pool,
                change,
                actor=who.user,
                is_expected=lambda now: is_expected(request, revision_of(settings_of(now))),
            )
        )
        return json_response(settings, etag=revision_of(settings))

    return [
        Operation(
            method="GET",
            path="/api/v1/pools",
            handler=list_pools,
            name="listPools",
            summary="List pools with their GPUs, jobs and settings",
            tag=_TAG,
            answers=[Response(of=PoolList)],
        ),
        Operation(
            method="GET",
            path="/api/v1/pools/{pool}",
            handler=get_pool,
            name="getPool",
            summary="Get one pool",
            tag=_TAG,
            path_parameters=_POOL,
            headers={"If-None-Match": "Answer 304 if the pool is still this one."},
            answers=[Response(of=PoolView, headers=_ETAG), Response(status=304, media_type="")],
            problems=[404],
        ),
        Operation(
            method="GET",
            path="/api/v1/pools/{pool}/settings",
            handler=get_settings,
            name="getSettings",
            summary="Get how a pool is decided",
            tag=_TAG,
            path_parameters=_POOL,
            headers={"If-None-Match": "Answer 304 if the settings are still these."},
            answers=[Response(of=SettingsView, headers=_ETAG), Response(status=304, media_type="")],
            problems=[404],
        ),
        Operation(
            method="PATCH",
            path="/api/v1/pools/{pool}/settings",
            handler=patch_settings,
            name="changeSettings",
            summary="Change how a pool is decided: policy, placer, rate limit",
            description="A JSON merge patch: what is absent stays. The next plan heeds it.",
            tag=_TAG,
            roles=ADMINS,
            path_parameters=_POOL,
            headers={"If-Match": "Change them only if they are still these (412 otherwise)."},
            body=RequestBody(of=SettingsChange, media_types=(JSON, _MERGE_PATCH)),
            answers=[Response(of=SettingsView, headers=_ETAG)],
            problems=[400, 404, 412, 413, 415, 503, 507],
        ),
    ]


def _answered(request: web.Request, record: PoolView | SettingsView, revision: str) -> web.Response:
    if is_unchanged(request, revision):
        return web.Response(status=304, headers={"ETag": f'"{revision}"'})
    return json_response(record, etag=revision)
