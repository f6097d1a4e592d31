"""Replay: the state at any position of a log, any plan of a pool by its number, and the events between positions.

Rules: it only reads, page by page; a snapshot saves time and does not change the result.
"""

from collections.abc import AsyncIterator

from msgspec import Struct

from voda.controller.follower import restore
from voda.domain.errors import LogArchived
from voda.domain.plan import Plan
from voda.events.envelope import Event
from voda.events.types import PlanAdopted
from voda.log.store import EventStore
from voda.projections.cluster.pool_changes import fold
from voda.projections.live import Live

_PAGE = 2_000
PAGE_FOLDED = 200
"""Events folded before others get a turn, a few milliseconds: a fold costs more than a read."""
_NEAR = 16
"""Decisions read at once to find the next plan; between two plans there are few others."""
_WORTH_A_SNAPSHOT = 2_000
"""Plans to fold above which loading a snapshot is the faster way."""


async def live_at(store: EventStore, position: int) -> Live:
    """Return what the log said up to and including `position`, from the newest snapshot before it."""
    live = Live()
    start = await restore(store, live, at_most=position)
    async for event in events_between(store, after=start, until=position, page=PAGE_FOLDED):
        live.apply(event)
    return live


async def events_between(
    store: EventStore, *, after: int = 0, until: int | None = None, stream: str | None = None, page: int = _PAGE
) -> AsyncIterator[Event]:
    """Yield the events with `after` < position <= `until`, in order, page by page; of one stream where given."""
    while until is None or after < until:
        # Not one event more: the next one may be damaged.
        limit = await store.page_size(after, page if until is None else min(page, until - after), stream=stream)
        events = await store.read(after, limit, stream=stream)
        for event in events:
            if until is not None and event.position > until:
                return
            yield event
        if len(events) < limit:
            return
        after = events[-1].position


class RecordedPlan(Struct, frozen=True, kw_only=True):
    """A plan as it was adopted."""

    plan: Plan
    position: int
    """Of the event."""
    changed: tuple[str, ...]
    """Jobs whose placement differs from the plan before, sorted."""


async def plan_numbered(store: EventStore, pool: str, number: int) -> RecordedPlan | None:
    """Return the whole plan of that number, or None if the pool never had it.

    Its reasons include those of jobs that ended while they waited: the pool's decisions have no ends of jobs.
    """
    if (found := await _adoption(store, pool, number)) is None:
        return None
    adoption, fact = found
    before, after = Plan(pool=pool), 0
    if number > _WORTH_A_SNAPSHOT:
        live = Live()
        after = await restore(store, live, at_most=adoption.position - 1)
        before = live.cluster.plan(pool)
    placement, reasons = dict(before.placement), dict(before.reasons)
    stream = f"decisions.{pool}"
    async for event in events_between(store, after=after, until=adoption.position, stream=stream, page=PAGE_FOLDED):
        if isinstance(event.data, PlanAdopted):
            fold(event.data, placement, reasons)
    return RecordedPlan(
        plan=Plan(
            pool=pool,
            number=number,
            based_on=fact.based_on,
            policy=fact.policy,
            placer=fact.placer,
            decided_at=adoption.recorded_at,
            cause=fact.cause,
            placement=placement,
            reasons=reasons,
        ),
        position=adoption.position,
        changed=tuple(sorted({*fact.placed, *fact.released})),
    )


async def position_of(store: EventStore, plan: Plan) -> int:
    """Return the position of the event that adopted a plan; 0 where there is none, or its archive is out of reach."""
    if not plan.number:
        return 0
    try:
        # As a rule it is the first plan after the position it was based on: nobody else decides for the pool.
        found = await _next_plan(store, plan.pool, plan.based_on)
        if found is None or found[1].number != plan.number:
            found = await _adoption(store, plan.pool, plan.number)
    except LogArchived:
        return 0
    return found[0].position if found is not None else 0


async def _adoption(store: EventStore, pool: str, number: int) -> tuple[Event, PlanAdopted] | None:
    """Find the event by bisection: numbers grow with positions."""
    low, high = 0, await store.position()
    while low < high:
        middle = (low + high) // 2
        found = await _next_plan(store, pool, middle)
        if found is None or found[1].number > number:
            high = middle
        elif found[1].number == number:
            return found
        else:
            low = found[0].position
    return None


async def _next_plan(store: EventStore, pool: str, after: int) -> tuple[Event, PlanAdopted] | None:
    """Return the pool's first plan after a position."""
    while events := await store.read(after, _NEAR, stream=f"decisions.{pool}"):
        for event in events:
            if isinstance(event.data, PlanAdopted):
                return event, event.data
        after = events[-1].position
    return None
