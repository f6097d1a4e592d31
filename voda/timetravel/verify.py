"""Verification: every recorded decision is made again from the log before it, and must come out the same.

Rules: memory does not grow with the log (decisions are read from their own streams, events are folded up to
what each was based on); the first difference ends the search, because all later decisions rest on it.
"""

import heapq
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from msgspec import Struct

from voda.controller.follower import catch_up
from voda.domain.reasons.outcomes import QueueReason, Reason
from voda.events.envelope import Event
from voda.events.event_text import per_node
from voda.events.text.reasons import queue_text, reason_text
from voda.events.types import JobQueueLevelChanged, LeaderElected, PlanAdopted
from voda.log.store import EventStore
from voda.planner.free_starts import start_on_free
from voda.planner.registries import Registries, redecide
from voda.policies import has_queues
from voda.projections.live import Live
from voda.timetravel.replay import events_between

_FAMILY = "decisions."


class Difference(Struct, frozen=True, kw_only=True):
    """Where a recorded decision is not what its own inputs lead to."""

    position: int
    job_id: str
    """Empty where the difference is not in one job."""
    what: str
    """Field of the fact that differs."""
    recorded: str
    recomputed: str


class Verification(Struct, frozen=True, kw_only=True):
    decisions: int
    """Decisions that were made again and came out the same."""
    difference: Difference | None = None


async def verify(
    store: EventStore, registries: Registries | None = None, *, progress: Callable[[int], None] | None = None
) -> Verification:
    """Make every recorded decision again and return the first that comes out differently.

    `progress` is called with the position of each decision verified. A policy or placer that this voda does not have is
    InvalidInput.
    """
    registries, live, verified = registries or Registries(), Live(), 0
    async for batch in _decisions(store):
        await catch_up(store, [live], after=live.position, until=_based_on(batch[0]))
        if (difference := _difference(live, batch, registries)) is not None:
            return Verification(decisions=verified, difference=difference)
        verified += len(batch)
        if progress is not None:
            progress(batch[-1].position)
    return Verification(decisions=verified)


async def plans_again(
    store: EventStore, registries: Registries | None = None
) -> AsyncIterator[tuple[Event, PlanAdopted | None]]:
    """Yield every recorded plan with what would be decided today in its place; None = nothing to change.

    Each is decided from the recorded log before it, so one difference does not lead to the next.
    """
    registries, live = registries or Registries(), Live()
    async for batch in _decisions(store):
        event, fact = batch[0], batch[0].data
        if isinstance(fact, PlanAdopted):
            await catch_up(store, [live], after=live.position, until=_based_on(event))
            yield event, _decide_again(live, event, fact, registries)


async def _decisions(store: EventStore) -> AsyncIterator[Sequence[Event]]:
    """Yield the decisions of all pools, those made together in one batch, in the order of what they rest on."""
    streams = sorted(stream for stream in await store.heads() if stream.startswith(_FAMILY))
    readers = {stream: _batches(store, stream) for stream in streams}
    due: list[tuple[int, str, Sequence[Event]]] = []

    async def read_next(stream: str) -> None:
        if (batch := await anext(readers[stream], None)) is not None:
            heapq.heappush(due, (_based_on(batch[0]), stream, batch))

    for stream in streams:
        await read_next(stream)
    while due:
        _, stream, batch = heapq.heappop(due)
        yield batch
        await read_next(stream)


async def _batches(store: EventStore, stream: str) -> AsyncIterator[Sequence[Event]]:
    """Group the queue changes that one look at the queues led to; a plan is a batch of its own."""
    moves: list[Event] = []
    async for event in events_between(store, stream=stream):
        if moves and not _are_together(moves[0], event):
            yield moves
            moves = []
        if isinstance(event.data, JobQueueLevelChanged):
            moves.append(event)
        elif isinstance(event.data, PlanAdopted):
            yield [event]
    if moves:
        yield moves


def _are_together(first: Event, event: Event) -> bool:
    return (
        isinstance(event.data, JobQueueLevelChanged)
        and event.recorded_at == first.recorded_at
        and _based_on(event) == _based_on(first)
    )


def _based_on(event: Event) -> int:
    # A decision cannot rest on what came after it, whatever it says.
    fact = event.data
    assert isinstance(fact, PlanAdopted | JobQueueLevelChanged)
    return min(fact.based_on, event.position - 1)


def _difference(live: Live, batch: Sequence[Event], registries: Registries) -> Difference | None:
    fact = batch[0].data
    if isinstance(fact, PlanAdopted):
        return _plan_difference(live, batch[0].position, fact, _decide_again(live, batch[0], fact, registries))
    assert not isinstance(fact, LeaderElected)
    return _queue_difference(live, batch, registries)


def _decide_again(live: Live, event: Event, fact: PlanAdopted, registries: Registries) -> PlanAdopted | None:
    state, undecided = live.state(fact.pool), live.cluster.undecided(fact.pool)
    if fact.only_starts:
        return start_on_free(state, registries, event.recorded_at, cause=fact.cause)
    return redecide(state, undecided, registries, event.recorded_at, cause=fact.cause)


def _plan_difference(
    live: Live, position: int, recorded: PlanAdopted, recomputed: PlanAdopted | None
) -> Difference | None:
    if recorded == recomputed:
        return None
    if recomputed is None:
        named = sorted({*recorded.placed, *recorded.released, *recorded.reasons})
        job_id = named[0] if named else ""
        return Difference(
            position=position,
            job_id=job_id,
            what="plan",
            recorded=_assignment(recorded, job_id, "recorded without a change"),
            recomputed="no change, so no plan",
        )
    for name in ("based_on", "policy", "placer", "number"):
        if (was := getattr(recorded, name)) != (now := getattr(recomputed, name)):
            return Difference(position=position, job_id="", what=name, recorded=str(was), recomputed=str(now))
    return _job_difference(live, position, recorded, recomputed)


def _job_difference(live: Live, position: int, recorded: PlanAdopted, recomputed: PlanAdopted) -> Difference:
    """Name the first job that is treated differently; its nodes weigh more than the reason given."""
    before = live.cluster.plan(recorded.pool).placement
    named = sorted({*recorded.placed, *recorded.released, *recomputed.placed, *recomputed.released})
    for job_id in named:
        as_before = per_node(before.get(job_id, ()))
        was, now = (_assignment(fact, job_id, as_before) for fact in (recorded, recomputed))
        if was != now:
            return Difference(position=position, job_id=job_id, what="placement", recorded=was, recomputed=now)
    if difference := _cells_difference(position, recorded, recomputed):
        return difference
    for job_id in sorted({*recorded.reasons, *recomputed.reasons}):
        said, says = (fact.reasons.get(job_id) for fact in (recorded, recomputed))
        if said != says:
            return Difference(
                position=position, job_id=job_id, what="reason", recorded=_words(said), recomputed=_words(says)
            )
    return Difference(position=position, job_id="", what="order", recorded="another", recomputed="another")


def _cells_difference(position: int, recorded: PlanAdopted, recomputed: PlanAdopted) -> Difference | None:
    """Name the first job of which other workers are guaranteed, or have other devices."""
    for what, was, now in (
        ("guarantee", recorded.guaranteed, recomputed.guaranteed),
        ("devices", recorded.devices, recomputed.devices),
    ):
        for job_id in sorted({*was, *now}):
            if was.get(job_id) != now.get(job_id):
                said, says = (str(cells.get(job_id, "as before")) for cells in (was, now))
                return Difference(position=position, job_id=job_id, what=what, recorded=said, recomputed=says)
    return None


def _words(reason: Reason | None) -> str:
    return reason_text(reason) if reason is not None else "nothing said"


def _assignment(fact: PlanAdopted, job_id: str, otherwise: str) -> str:
    if job_id in fact.placed:
        return ", ".join(fact.placed[job_id])
    return "released" if job_id in fact.released else otherwise


def _queue_difference(live: Live, batch: Sequence[Event], registries: Registries) -> Difference | None:
    changes = [(event.position, event.data) for event in batch if isinstance(event.data, JobQueueLevelChanged)]
    pool = changes[0][1].pool
    state = live.cluster.state(pool)
    policy = registries.policy(state.settings, state.plan)
    moves: Mapping[str, tuple[int, QueueReason]] = {}
    if has_queues(policy):
        moves = policy.requeue(state, batch[0].recorded_at)
    recorded = {fact.job_id: (fact.queue_level, fact.reason) for _, fact in changes}
    for job_id in sorted({*recorded, *moves}):
        if recorded.get(job_id) != moves.get(job_id):
            return Difference(
                position=next((at for at, fact in changes if fact.job_id == job_id), batch[0].position),
                job_id=job_id,
                what="queue",
                recorded=_move(recorded.get(job_id)),
                recomputed=_move(moves.get(job_id)),
            )
    return None


def _move(move: tuple[int, QueueReason | None] | None) -> str:
    if move is None:
        return "stays"
    level, why = move
    return f"queue {level} ({queue_text(why) if why is not None else 'nothing said'})"
