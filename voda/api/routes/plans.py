"""Plans: the one in force, and any before it."""

import asyncio
from collections.abc import Sequence

from aiohttp import web

from voda.api.operation import Operation, Response
from voda.api.presenters.plans import plan_of
from voda.api.requests import json_response
from voda.api.schemas.pools import PlanView
from voda.application.backend import Backend
from voda.application.pools import known_pool, pool_state
from voda.auth.callers import Caller
from voda.domain import plan as domain
from voda.domain.errors import NotFound
from voda.timetravel.plans import plan_numbered, position_of

_TAG = "Pools"


def routes(backend: Backend) -> Sequence[Operation]:
    """Return the operations on plans."""
    # An old plan may be put together from a snapshot of all jobs: one of those in memory is enough.
    turns = asyncio.Semaphore()

    async def get_plan(request: web.Request, _who: Caller) -> web.StreamResponse:
        pool = known_pool(backend, request.match_info["pool"])
        plan = pool_state(backend, pool).plan
        return json_response(plan_of(plan, position=await position_of(backend.store, plan)))

    async def get_past_plan(request: web.Request, _who: Caller) -> web.StreamResponse:
        pool = known_pool(backend, request.match_info["pool"])
        number = int(request.match_info["number"])
        last = pool_state(backend, pool).plan.number
        async with turns:
            found = await plan_numbered(backend.store, pool, number) if 0 < number <= last else None
        if found is None:
            there_are = f"plans 1 to {last}" if last else "no plan yet"
            raise NotFound(f"pool {pool} has {there_are}, and none of number {number}")
        plan = _without_ended(backend, found.plan)
        return json_response(plan_of(plan, position=found.position, changed=found.changed))

    return [
        Operation(
            method="GET",
            path="/api/v1/pools/{pool}/plan",
            handler=get_plan,
            name="getPlan",
            summary="Get the plan in force: who gets which nodes, and why",
            tag=_TAG,
            path_parameters={"pool": "Name of the pool."},
            answers=[Response(of=PlanView)],
            problems=[404, 503],
        ),
        Operation(
            method="GET",
            path="/api/v1/pools/{pool}/plans/{number:[0-9]{1,15}}",
            handler=get_past_plan,
            name="getPlanByNumber",
            summary="Get a plan of the past, and what it changed",
            tag=_TAG,
            path_parameters={"pool": "Name of the pool.", "number": "Of the plan; the first is 1."},
            answers=[Response(of=PlanView)],
            problems=[404, 503],
        ),
    ]


def _without_ended(backend: Backend, plan: domain.Plan) -> domain.Plan:
    """Return the plan without reasons of jobs that had ended by then: they were not in force any more."""
    jobs = backend.view.roster.jobs()

    def had_ended(job_id: str) -> bool:
        record = jobs.get(job_id)
        return record is not None and record.finished_at is not None and record.finished_at <= plan.decided_at

    kept = {job: reason for job, reason in plan.reasons.items() if job in plan.placement or not had_ended(job)}
    return domain.Plan(**{**{name: getattr(plan, name) for name in plan.__struct_fields__}, "reasons": kept})
