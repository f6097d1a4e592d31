"""Explains a job of a log: reads what the log says about it, and calls `explanation`.

Rule: it reads the job's own stream, its pool's decisions and one snapshot with its tail only.
"""

import asyncio
import re
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from msgspec.structs import replace

from voda.domain.errors import InvalidInput, LogArchived, closest
from voda.domain.job import JobSpec
from voda.domain.reasons.outcomes import Canceled, Failed, JobReason
from voda.domain.state import ClusterState
from voda.events.envelope import Event
from voda.events.text.stalls import avoided_sizes_text, sick_gpus_text, stall_text
from voda.events.types import (
    JobCancelRequested,
    JobChanged,
    JobCompleted,
    JobFailed,
    JobStalled,
    JobSubmitted,
    PlanAdopted,
)
from voda.log.store import EventStore
from voda.planner.registries import Registries
from voda.policies import POLICIES
from voda.projections.history import FinishedJob, History
from voda.projections.jobs.names import EXACT, OF_OWNER, name_of
from voda.timetravel.explanation import CAUSE, JobDecision, JobExplanation, explain_ended, explain_live
from voda.timetravel.moment import LogPlace
from voda.timetravel.replay import PAGE_FOLDED, events_between, live_at
from voda.timetravel.report_doubts import doubt_text

_FAMILY = "job."
_CAUSE_WINDOW = 500
"""Events before a decision among which to find its cause."""
_CAUSE_PAGE = 20
_LAST = 5
"""Decisions named."""
_NAMED = 3
"""Jobs named in the error for an unknown one."""


class LoggedSubmission(NamedTuple):
    """What was submitted, and where in the log."""

    spec: JobSpec
    position: int


async def explain(store: EventStore, job_id: str, place: LogPlace) -> JobExplanation:
    """Explain a job at a moment; InvalidInput where the log did not know it then."""
    submission = await submission_of(store, job_id, place.position)
    ended, why, stall = await _end_of(store, submission, place.position)
    if ended is None:
        live = await live_at(store, place.position)
        if (job := live.cluster.job(job_id)) is not None:
            state = live.state(job.spec.pool)
            explanation = await explain_in(store, state, job_id, place.at)
            doubt = doubt_text(live.learning.measurements(job_id))
            obstacle = stall or sick_gpus_text(job) or avoided_sizes_text(job, place.at)
            return replace(explanation, obstacle=obstacle, doubt=doubt)
    decisions = await decisions_on(store, submission, until=place.position)
    assert ended is not None, f"job {job_id} is neither live nor ended at position {place.position}"
    explanation = explain_ended(ended, submission.spec, position=place.position, at=place.at, decisions=decisions)
    return replace(explanation, reason=why)


async def explain_in(store: EventStore, state: ClusterState, job_id: str, at: float) -> JobExplanation:
    """Explain a job that is live in this state of its pool, which was folded from this log, at an instant `at`."""
    try:
        submission = await submission_of(store, job_id, state.position)
    except LogArchived as error:
        # Its archive is out of reach: the live spec, and the beginning of the log, must do.
        submission = LoggedSubmission(state.jobs[job_id].spec, error.base)
    registries = Registries()
    policy = registries.policy(state.settings, state.plan)
    # In a thread: with thousands of jobs each decision takes longer than other requests should wait.
    explanation = await asyncio.to_thread(
        explain_live,
        state,
        job_id,
        at,
        policies={**POLICIES, policy.name: policy},
        decide=registries.decider(state, cause=CAUSE),
    )
    decisions = await decisions_on(store, submission, until=state.position)
    return replace(explanation, decisions=tuple(decisions))


async def submission_of(store: EventStore, job_id: str, position: int) -> LoggedSubmission:
    """Return what was submitted under this id; InvalidInput where nothing was, or only after `position`."""
    first = await store.read(0, 1, stream=f"{_FAMILY}{job_id}")
    if not first or not isinstance(fact := first[0].data, JobSubmitted):
        raise await unknown_job(store, job_id)
    if first[0].position > position:
        raise InvalidInput(
            f"job {job_id} was submitted at position {first[0].position} only: at position {position} there is"
            " nothing to explain"
        )
    return LoggedSubmission(fact.spec, first[0].position)


async def job_named(store: EventStore, named: str, position: int, *, user: str | None = None) -> str:
    """Return the id of the job that a text names: of a name its latest run up to a position, else the text itself.

    With `@` before it, a text is an id alone; with an owner and a slash before it, a name is that of the owner's job.
    A name means the user's own job, where there is one; user None = nobody in particular.
    """
    if named.startswith(EXACT):
        return named.removeprefix(EXACT)
    owner, slash, name = named.rpartition(OF_OWNER)
    run = re.compile(rf"job\.{re.escape(name)}(-[0-9]+)?")
    best, meant = (False, 0), named
    for stream in await store.heads():
        if not run.fullmatch(stream):
            continue
        with suppress(LogArchived):
            [first] = await store.read(0, 1, stream=stream)
            if not isinstance(fact := first.data, JobSubmitted) or first.position > position:
                continue
            is_run = name_of(fact.spec) == name and (not slash or fact.spec.user == owner)
            if is_run and best < (found := (fact.spec.user == user, first.position)):
                best, meant = found, stream.removeprefix(_FAMILY)
    return meant


async def decisions_on(store: EventStore, submission: LoggedSubmission, *, until: int) -> Sequence[JobDecision]:
    """Return the last plans, oldest first, that changed the job's assignment or were the first to consider it."""
    decisions: deque[JobDecision] = deque(maxlen=_LAST)
    nodes: tuple[str, ...] = ()
    job_id = submission.spec.job_id
    async for event in _decisions(store, submission, until):
        fact = event.data
        if not isinstance(fact, PlanAdopted) or not _is_about(fact, job_id):
            continue
        after = fact.placed.get(job_id, () if job_id in fact.released else nodes)
        decision = JobDecision(
            position=event.position,
            at=event.recorded_at,
            plan=fact.number,
            policy=fact.policy,
            before=nodes,
            after=after,
            reason=fact.reasons.get(job_id),
            cause=fact.cause,
        )
        decisions.append(decision)
        nodes = after
    return [await _with_cause(store, decision) for decision in decisions]


async def _decisions(store: EventStore, submission: LoggedSubmission, until: int) -> AsyncIterator[Event]:
    """Yield what was decided in the pool of a job, or in one after the other of its pools: it only waited before."""
    starts: dict[str, int] = dict.fromkeys(submission.spec.pools or (submission.spec.pool,), until)
    if len(starts) > 1:
        async for event in events_between(store, until=until, stream=f"{_FAMILY}{submission.spec.job_id}"):
            if isinstance(event.data, JobChanged) and event.data.to_pool in starts:
                starts[event.data.to_pool] = event.position
    starts[submission.spec.pool] = submission.position
    for pool, start in sorted(starts.items(), key=lambda each: each[1]):
        span = events_between(store, after=start, until=until, stream=f"decisions.{pool}", page=PAGE_FOLDED)
        async for event in span:
            yield event


def _is_about(fact: PlanAdopted, job_id: str) -> bool:
    return job_id in fact.placed or job_id in fact.released or job_id in fact.reasons


async def _with_cause(store: EventStore, decision: JobDecision) -> JobDecision:
    end = decision.position - 1
    least = max(0, end - _CAUSE_WINDOW)
    # As a rule it is the last event but a few, and any of them may be large.
    while end > least:
        start = max(least, end - _CAUSE_PAGE)
        try:
            before = await store.read(start, end - start)
        except LogArchived as error:
            # As a rule the log still has the cause; otherwise the position stays unknown.
            least = max(least, error.base)
            continue
        cause = next((event.position for event in reversed(before) if event.type == decision.cause), None)
        if cause is not None:
            return replace(decision, cause_position=cause)
        end = start
    return decision


async def _end_of(
    store: EventStore, submission: LoggedSubmission, position: int
) -> tuple[FinishedJob | None, JobReason | None, str]:
    """Return the record of an ended job, None while it is live; why it failed or was canceled; and what a live one
    waits for.
    """
    history, stall = History(), ""
    why: JobReason | None = None
    stream = f"{_FAMILY}{submission.spec.job_id}"
    async for event in events_between(store, until=position, stream=stream, page=PAGE_FOLDED):
        history.apply(event)
        match event.data:
            case JobFailed(reason=reason):
                why = Failed(why=reason) if reason else None
            case JobCancelRequested(reason=reason):
                why = Canceled(why=reason)
            case JobCompleted():
                why = None
            case JobStalled(reason=reason):
                stall = stall_text(reason)
            case _:
                pass
    return next(iter(history.finished), None), why, stall


async def unknown_job(store: EventStore, job_id: str) -> InvalidInput:
    """Return the error that says so, with the closest job that the log knows."""
    job_ids = [stream.removeprefix(_FAMILY) for stream in await store.heads() if stream.startswith(_FAMILY)]
    hint = f" Did you mean {close!r}?" if (close := closest(job_id, job_ids)) else _some_of(job_ids)
    return InvalidInput(f"job {job_id[:80]!r} is not in this log.{hint}")


def _some_of(job_ids: Sequence[str]) -> str:
    if not job_ids:
        return " It knows no job."
    more = f" and {len(job_ids) - _NAMED} others" if len(job_ids) > _NAMED else ""
    return f" It knows {', '.join(sorted(job_ids)[:_NAMED])}{more}."
