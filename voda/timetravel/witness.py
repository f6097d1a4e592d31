"""What the log says about one job: gathers it, and has it explained.

Rule: only the job's own stream, its pool's decisions and one snapshot with its tail are read.
"""

from collections import deque
from collections.abc import Sequence
from difflib import get_close_matches

from msgspec.structs import replace

from voda.domain.catalogue import first_known
from voda.domain.errors import InvalidInput
from voda.domain.job import JobSpec
from voda.events.envelope import Event
from voda.events.store import EventStore
from voda.events.types import JobSubmitted, PlanAdopted
from voda.policies.registry import policies
from voda.projections.history import History
from voda.timetravel.explanation import Decision, Explanation, explain_ended, explain_live
from voda.timetravel.moment import Place
from voda.timetravel.past import events_between, live_at
from voda.timetravel.registries import DEFAULT, Registries

_FAMILY = "job."
_CAUSE_REACH = 500
"""Events before a decision among which its cause is looked for."""
_NAMED = 3
"""Jobs named to somebody who asks for an unknown one."""


async def explain(
    store: EventStore, job_id: str, place: Place, *, registries: Registries = DEFAULT, last: int = 5
) -> Explanation:
    """Explain a job at a moment.

    Args:
        store: the log.
        job_id: of a job that the log knows.
        place: the moment.
        registries: of the policies and placers that the log names.
        last: decisions to name at most, >= 1.

    Raises:
        InvalidInput: the log knows no such job, or not yet at that moment.
    """
    spec = await submission_of(store, job_id, place.position)
    decisions = await decisions_on(store, job_id, pool=spec.pool, until=place.position, last=last)
    live = await live_at(store, place.position)
    if (pool := live.cluster.pool_of(job_id)) is None:
        return await _ended(store, spec, place, decisions)
    state = live.state(pool)
    policy = first_known(registries.policies, state.settings.policy, state.plan.policy)
    explanation = explain_live(
        state,
        job_id,
        place.at,
        policies={**policies(), policy.name: policy},
        placer=first_known(registries.placers, state.settings.placer, state.plan.placer),
    )
    return replace(explanation, decisions=tuple(decisions))


async def submission_of(store: EventStore, job_id: str, position: int) -> JobSpec:
    """Return what was submitted under this id.

    Raises:
        InvalidInput: nothing was, or only after `position`.
    """
    first = await store.read(0, 1, stream=f"{_FAMILY}{job_id}")
    if not first or not isinstance(fact := first[0].data, JobSubmitted):
        raise await unknown_job(store, job_id)
    if first[0].position > position:
        raise InvalidInput(
            f"job {job_id} was submitted at position {first[0].position} only: at position {position} there is"
            " nothing to explain"
        )
    return fact.spec


async def decisions_on(store: EventStore, job_id: str, *, pool: str, until: int, last: int) -> Sequence[Decision]:
    """Return the last plans, oldest first, that changed the job's assignment or were the first to consider it."""
    found: deque[Decision] = deque(maxlen=last)
    nodes: tuple[str, ...] = ()
    async for event in events_between(store, until=until, stream=f"decisions.{pool}"):
        fact = event.data
        if not isinstance(fact, PlanAdopted) or not _is_about(fact, job_id):
            continue
        after = fact.placed.get(job_id, () if job_id in fact.released else nodes)
        found.append(_decision(event, fact, job_id, nodes, after))
        nodes = after
    return [await _with_cause(store, decision) for decision in found]


def _is_about(fact: PlanAdopted, job_id: str) -> bool:
    return job_id in fact.placed or job_id in fact.released or job_id in fact.reasons


def _decision(
    event: Event, fact: PlanAdopted, job_id: str, before: tuple[str, ...], after: tuple[str, ...]
) -> Decision:
    return Decision(
        position=event.position,
        at=event.recorded_at,
        plan=fact.number,
        policy=fact.policy,
        before=before,
        after=after,
        reason=fact.reasons.get(job_id, "the job had ended"),
        cause=fact.cause,
    )


async def _with_cause(store: EventStore, decision: Decision) -> Decision:
    start = max(0, decision.position - 1 - _CAUSE_REACH)
    before = await store.read(start, decision.position - 1 - start)
    cause = next((event.position for event in reversed(before) if event.type == decision.cause), None)
    return replace(decision, cause_position=cause)


async def _ended(store: EventStore, spec: JobSpec, place: Place, decisions: Sequence[Decision]) -> Explanation:
    history = History()
    async for event in events_between(store, until=place.position, stream=f"{_FAMILY}{spec.job_id}"):
        history.apply(event)
    (ended,) = history.finished
    return explain_ended(ended, spec, position=place.position, at=place.at, decisions=decisions)


async def unknown_job(store: EventStore, job_id: str) -> InvalidInput:
    """Return the error that says so, with the closest job that the log knows."""
    known = [stream.removeprefix(_FAMILY) for stream in await store.heads() if stream.startswith(_FAMILY)]
    close = get_close_matches(job_id, known, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else _some_of(known)
    return InvalidInput(f"job {job_id[:80]!r} is not in this log.{hint}")


def _some_of(known: Sequence[str]) -> str:
    if not known:
        return " It knows no job."
    more = f" and {len(known) - _NAMED} others" if len(known) > _NAMED else ""
    return f" It knows {', '.join(sorted(known)[:_NAMED])}{more}."
