"""Pools, their nodes and settings, and their plans: the one in force, and any before it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

import msgspec
from aiohttp import web
from msgspec import Meta, Struct
from msgspec.structs import replace

from voda.api.admission import CallerLimits
from voda.api.operation import ADMINS, JSON, MERGE_PATCH, Operation, RequestBody, Response, Routes
from voda.api.presenters.pools import nodes_of, plan_of, pool_of, revision_of, settings_of
from voda.api.requests import body_of, cached_response, is_expected, json_response, printable_reason, query_of
from voda.application.change_settings import SettingsChange, change_settings, given_settings
from voda.application.drain_node import drain, state_with, undrain
from voda.application.journal import Journal
from voda.application.lookup import known_pool, pool_names, pool_state
from voda.auth.callers import Caller
from voda.domain.errors import NotFound
from voda.domain.plan import Plan
from voda.domain.settings import Settings
from voda.domain.shares import SharingNode
from voda.domain.state import ClusterState
from voda.timetravel.replay import plan_numbered, position_of
from voda.wire.pools import NodeList, NodeView, PlanView, PoolList, PoolView


class NodesQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which nodes."""

    pool: Annotated[str, Meta(description="Only those of this pool.")] = ""


class DrainQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why."""

    reason: Annotated[str, Meta(max_length=500, description="Told to whoever looks at the node meanwhile.")] = ""


_NODE: Final = {"name": "Of the node."}


@dataclass
class NodeRoutes(Routes):
    """The operations on nodes."""

    tag = "Nodes"

    journal: Journal
    pools: Sequence[str]
    job_gpus: Callable[[str], Mapping[int, str]]

    @Operation("GET", "/api/v1/nodes", query=NodesQuery, answers=[Response(of=NodeList)], problems=[404])
    async def list_nodes(self, request: web.Request, _caller: Caller) -> web.StreamResponse:
        """List nodes with their GPUs and who holds them."""
        pool, view = query_of(request, NodesQuery).pool, self.journal.view
        names = [known_pool(self.pools, view, pool)] if pool else pool_names(self.pools, view)
        found = [node for name in names for node in nodes_of(pool_state(view, name), self._shares, self.job_gpus)]
        return json_response(NodeList(items=tuple(sorted(found, key=lambda node: node.name))))

    @Operation(
        "GET",
        "/api/v1/nodes/{name}",
        path_parameters=_NODE,
        answers=[Response(of=NodeView)],
        problems=[404],
    )
    async def get_node(self, request: web.Request, _caller: Caller) -> web.StreamResponse:
        """Get one node."""
        return json_response(self._node(request.match_info["name"]))

    @Operation(
        "POST",
        "/api/v1/nodes/{name}/drain",
        description="The next plan moves its workers to other nodes, where they go on from their checkpoints, and no"
        " plan brings others there until it is undrained or leaves the cluster. Jobs that find no room elsewhere wait."
        " A node that is drained already stays as it is.",
        roles=ADMINS,
        query=DrainQuery,
        path_parameters=_NODE,
        answers=[Response(of=NodeView)],
        problems=[404],
    )
    async def drain_node(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        """Move the workers off a node."""
        name, reason = request.match_info["name"], printable_reason(query_of(request, DrainQuery).reason)
        await drain(self.journal, name, caller, reason=reason)
        return json_response(self._node(name))

    @Operation(
        "POST",
        "/api/v1/nodes/{name}/undrain",
        description="A node that voda does not drain stays as it is: what the cluster itself drains or cordons, the"
        " cluster gives back.",
        roles=ADMINS,
        path_parameters=_NODE,
        answers=[Response(of=NodeView)],
        problems=[404],
    )
    async def undrain_node(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        """Let workers come to a node again."""
        await undrain(self.journal, request.match_info["name"], caller)
        return json_response(self._node(request.match_info["name"]))

    @property
    def _shares(self) -> Mapping[str, SharingNode]:
        return self.journal.view.cluster.shares.nodes

    def _node(self, name: str) -> NodeView:
        state = state_with(self.journal.view, name)
        (node,) = (each for each in nodes_of(state, self._shares, self.job_gpus) if each.name == name)
        return node


_POOL: Final = {"pool": "Name of the pool."}
_POOL_PATH: Final = "/api/v1/pools/{pool}"
_ETAG: Final = {"ETag": "Changes with the content; send it back as If-Match or If-None-Match."}


@dataclass
class PoolRoutes(Routes):
    """The operations on pools."""

    tag = "Pools"

    journal: Journal
    limits: CallerLimits
    pools: Sequence[str]

    @Operation(
        "GET",
        f"{_POOL_PATH}/plan",
        path_parameters=_POOL,
        answers=[Response(of=PlanView)],
        problems=[404, 503],
    )
    async def get_plan(self, request: web.Request, _caller: Caller) -> web.StreamResponse:
        """Get the plan in force: who gets which nodes, and why."""
        plan = self._state(request).plan
        return json_response(plan_of(plan, position=await position_of(self.journal.store, plan)))

    @Operation(
        "GET",
        f"{_POOL_PATH}/plans/{{number:[0-9]{{1,15}}}}",
        path_parameters={**_POOL, "number": "Of the plan; the first is 1."},
        answers=[Response(of=PlanView)],
        problems=[404, 503],
        takes_turns=True,
    )
    async def get_plan_by_number(self, request: web.Request, _caller: Caller) -> web.StreamResponse:
        """Get a plan of the past, and what it changed."""
        now, number = self._state(request), int(request.match_info["number"])
        last = now.plan.number
        numbered = await plan_numbered(self.journal.store, now.pool, number) if 0 < number <= last else None
        if numbered is None:
            known = f"plans 1 to {last}" if last else "no plan yet"
            raise NotFound(f"pool {now.pool} has {known}, and none of number {number}")
        plan = self._without_ended(numbered.plan)
        return json_response(plan_of(plan, position=numbered.position, changed=numbered.changed))

    @Operation("GET", "/api/v1/pools", answers=[Response(of=PoolList)])
    async def list_pools(self, _request: web.Request, _caller: Caller) -> web.StreamResponse:
        """List pools with their GPUs, jobs and settings."""
        states = (pool_state(self.journal.view, name) for name in pool_names(self.pools, self.journal.view))
        return json_response(PoolList(items=tuple(map(pool_of, states))))

    @Operation(
        "GET",
        _POOL_PATH,
        path_parameters=_POOL,
        headers={"If-None-Match": "Answer 304 if the pool is still this one."},
        answers=[Response(of=PoolView, headers=_ETAG), Response(status=304, media_type="")],
        problems=[404],
    )
    async def get_pool(self, request: web.Request, _caller: Caller) -> web.StreamResponse:
        """Get one pool."""
        pool = pool_of(self._state(request))
        return cached_response(request, msgspec.json.encode(pool), pool.revision)

    @Operation(
        "GET",
        f"{_POOL_PATH}/settings",
        path_parameters=_POOL,
        headers={"If-None-Match": "Answer 304 if the settings are still these."},
        answers=[Response(of=Settings, headers=_ETAG), Response(status=304, media_type="")],
        problems=[404],
    )
    async def get_settings(self, request: web.Request, _caller: Caller) -> web.StreamResponse:
        """Get how a pool is decided."""
        settings = settings_of(self._state(request).settings)
        return cached_response(request, msgspec.json.encode(settings), revision_of(settings))

    @Operation(
        "PATCH",
        f"{_POOL_PATH}/settings",
        description="A JSON merge patch: what is absent stays. The next plan heeds it.",
        roles=ADMINS,
        path_parameters=_POOL,
        headers={"If-Match": "Change them only if they are still these (412 otherwise)."},
        body=RequestBody(of=SettingsChange, media_types=(JSON, MERGE_PATCH)),
        answers=[Response(of=Settings, headers=_ETAG)],
        problems=[404, 412],
    )
    async def change_settings(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        """Change how a pool is decided: policy, placer, rate limit."""
        pool = known_pool(self.pools, self.journal.view, request.match_info["pool"])
        settings = await change_settings(
            self.journal,
            pool,
            given_settings(await body_of(request, SettingsChange, self.limits)),
            actor=caller.user,
            is_expected=lambda now: is_expected(request, revision_of(settings_of(now))),
        )
        shown = settings_of(settings)
        return json_response(shown, etag=revision_of(shown))

    def _state(self, request: web.Request) -> ClusterState:
        return pool_state(self.journal.view, known_pool(self.pools, self.journal.view, request.match_info["pool"]))

    def _without_ended(self, plan: Plan) -> Plan:
        """Return the plan without reasons of jobs that had ended by then: they were not in force any more."""
        jobs = self.journal.view.job_registry.jobs()

        def had_ended(job_id: str) -> bool:
            record = jobs.get(job_id)
            return record is not None and record.finished_at is not None and record.finished_at <= plan.decided_at

        reasons = {job: reason for job, reason in plan.reasons.items() if job in plan.placement or not had_ended(job)}
        return replace(plan, reasons=reasons)
