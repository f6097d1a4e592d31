"""Plans of the past: any plan of a pool by its number, put together from the pool's own decisions.

Rule: a page at a time; what is kept is one plan, however long the log is.
"""

from msgspec import Struct

from voda.controller.follower import restore
from voda.domain.errors import LogArchived
from voda.domain.plan import Plan
from voda.events.envelope import Event
from voda.events.plan_diff import fold
from voda.events.types import PlanAdopted
from voda.log.store import EventStore
from voda.projections.live import Live
from voda.timetravel.replay import events_between

_PAGE = 200
"""Events folded before others get a turn: a few milliseconds."""
_NEAR = 16
"""Decisions read at once to find the next plan; between two plans there are few others."""
_WORTH_A_SNAPSHOT = 2_000
"""Plans to fold above which loading a snapshot is the faster way."""


class RecordedPlan(Struct, frozen=True, kw_only=True):
    """A plan as it was adopted."""

    plan: Plan
    position: int
    """Of the event."""
    changed: tuple[str, ...]
    """Jobs that it placed otherwise than the plan before, sorted."""


async def plan_numbered(store: EventStore, pool: str, number: int) -> RecordedPlan | None:
    """Return the plan of that number with all that it left as it was, or None if the pool never had it.

    Reasons of jobs that ended while they waited are among its reasons: the pool's decisions do not tell of ends.
    """
    found = await _adoption(store, pool, number)
    if found is None or not isinstance(fact := found.data, PlanAdopted):
        return None
    before, after = Plan(pool=pool), 0
    if number > _WORTH_A_SNAPSHOT:
        live = Live()
        after = await restore(store, live, at_most=found.position - 1)
        before = live.cluster.plan(pool)
    placement, reasons = dict(before.placement), dict(before.reasons)
    stream = f"decisions.{pool}"
    async for event in events_between(store, after=after, until=found.position, stream=stream, page=_PAGE):
        if isinstance(event.data, PlanAdopted):
            fold(event.data, placement, reasons)
    return RecordedPlan(
        plan=Plan(
            pool=pool,
            number=number,
            based_on=fact.based_on,
            policy=fact.policy,
            placer=fact.placer,
            decided_at=found.recorded_at,
            cause=fact.cause,
            placement=placement,
            reasons=reasons,
        ),
        position=found.position,
        changed=tuple(sorted({*fact.placed, *fact.released})),
    )


async def position_of(store: EventStore, plan: Plan) -> int:
    """Return the position of the event that adopted a plan; 0 where there is none, or it was archived and is away."""
    if not plan.number:
        return 0
    try:
        # As a rule it is the first plan after what it was based on: nobody else decides for the pool.
        event = await _next_plan(store, plan.pool, plan.based_on)
        if event is None or not isinstance(event.data, PlanAdopted) or event.data.number != plan.number:
            event = await _adoption(store, plan.pool, plan.number)
    except LogArchived:
        return 0
    return event.position if event is not None else 0


async def _adoption(store: EventStore, pool: str, number: int) -> Event | None:
    """Find the event by halving: numbers grow with positions."""
    low, high = 0, await store.position()
    while low < high:
        middle = (low + high) // 2
        event = await _next_plan(store, pool, middle)
        met = event.data.number if event is not None and isinstance(event.data, PlanAdopted) else None
        if event is None or met is None or met > number:
            high = middle
        elif met == number:
            return event
        else:
            low = event.position
    return None


async def _next_plan(store: EventStore, pool: str, after: int) -> Event | None:
    """Return the pool's first plan after a position."""
    while events := await store.read(after, _NEAR, stream=f"decisions.{pool}"):
        for event in events:
            if isinstance(event.data, PlanAdopted):
                return event
        after = events[-1].position
    return None
