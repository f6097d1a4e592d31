"""Jobs that make no use of the GPUs planned for them: after a time others go first, and they are tried again later.

1. `overdue` finds them: all GPUs of a job are free and it has none, or the cluster says what keeps workers from work.
2. While such a job backs off it comes behind all others, or keeps what it works with (`backed_off`).
3. Then it is planned as any other; each failure in a row doubles the delay.

Rules: pure, the time is a parameter. A job that backs off still gets what nobody else wants, so that it goes on as soon
as it can; time counts only while its GPUs are free, and anew under a new leader. See docs/adr/0025.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterator
from typing import Final

from msgspec import Struct

from voda.backoff import delay_s
from voda.domain.gpus import NO_GPUS, Gpus
from voda.domain.job import Job, StartBackoff
from voda.domain.reasons.nodes import Said
from voda.domain.reasons.stalls import Attaching, NoneAtWork, StuckCause
from voda.domain.state import ClusterState
from voda.events.decisions import JobBackedOff
from voda.planner.feasibility import largest_refusal

_ATTACHING_S: Final = 600.0
"""So long kube-scheduler waits for devices to be attached, by default; then it chooses others."""
_ROUNDING_S: Final = 1e-3
LONGEST_S: Final = 3_600.0
"""Longest delay, unless the time-out itself is longer."""


class Unused(Struct, frozen=True):
    """GPUs that are planned for a job and of no use to it."""

    job: Job
    planned: int
    since: float
    at_work: int
    reason: StuckCause


def overdue(view: ClusterState, now: float) -> list[JobBackedOff]:
    """Return the jobs that have made no use of their GPUs for `start_timeout_s`."""
    timeout_s = view.settings.start_timeout_s
    # Most have had their chance for a moment: whether their GPUs are free does not matter yet.
    unused = _unused(view, by=now - timeout_s) if timeout_s else ()
    return [_backed_off(each, timeout_s) for each in unused if each.since + timeout_s <= now]


def overdue_at(view: ClusterState, now: float) -> float:
    """Return when the next job is overdue, without another fact; infinite: none."""
    timeout_s = view.settings.start_timeout_s
    ends = (each.since + timeout_s for each in _unused(view) if timeout_s)
    return min((end for end in ends if end > now), default=math.inf)


def retry_at(view: ClusterState, now: float) -> float:
    """Return when the next job that backs off is planned as any other; infinite: none."""
    backoffs = (job.backoff for job in view.special_jobs.values() if job.backoff is not None)
    return min((backoff.retry_at for backoff in backoffs if backoff.retry_at > now), default=math.inf)


def _unused(view: ClusterState, *, by: float = math.inf) -> Iterator[Unused]:
    """Yield GPUs of no use; perhaps without those that have been planned for their jobs since `by`, or later."""
    absent: list[tuple[Job, tuple[str, ...]]] = []
    jobs = view.jobs
    # Nearly all jobs are at work.
    others = {job_id for job_id, job in jobs.items() if not job.workers or job.obstacle is not None}
    for job_id in filter(others.__contains__, view.plan.placement if others else ()):
        job, nodes = jobs[job_id], view.plan.placement[job_id]
        if job.is_canceling or job.is_halted:
            continue
        if job.obstacle is not None and job.obstacle.at_work < len(nodes):
            since = max(job.obstacle.since, _waits_since(view, job))
            if isinstance(job.obstacle.reason, Attaching) and job.obstacle.reason.conditions:
                since += _ATTACHING_S
            yield Unused(job, len(nodes), since, job.obstacle.at_work, job.obstacle.reason)
        elif (
            not job.workers
            and _waits_since(view, job) <= by + _ROUNDING_S
            and (left := tuple(node for index, node in enumerate(nodes) if index not in job.done))
        ):
            absent.append((job, left))
    if not absent:
        return
    held = dict.fromkeys([node for _, nodes in absent for node in nodes], NO_GPUS)
    for each in (*jobs.values(), *view.outlived.values()):
        for node in each.workers.values():
            if node in held:
                held[node] += each.spec.gpus_per_replica
    beside = view.plan.beside(job.spec.job_id for job, _ in absent if job.spec.share is not None)
    for job, nodes in absent:
        mates = beside.get(job.spec.job_id)
        if mates and not _leaves_room(view, job, nodes[0], mates):
            continue
        gpus = _gpus_per_worker(view, job, mates)
        needed = {node: count * gpus for node, count in Counter(nodes).items()}
        if all(node in view.nodes and view.nodes[node].own_gpus - held[node] >= needed[node] for node in needed):
            freed_at = max(view.freed_at.get(node, -math.inf) for node in needed)
            yield Unused(job, len(nodes), max(freed_at, _waits_since(view, job)), 0, _why_absent(view, job))


def _gpus_per_worker(view: ClusterState, job: Job, beside: Collection[str] | None) -> Gpus:
    """Return the GPUs that each worker of a job waits for; one of a GPU of which it is to get a part alone."""
    if beside is None:
        return job.spec.gpus_per_replica
    return Gpus(0 if any(other in view.jobs and view.jobs[other].workers for other in beside) else 1)


def _leaves_room(view: ClusterState, job: Job, node: str, beside: Collection[str]) -> bool:
    """Return whether the GPU that others of these jobs have parts of has so much left as a job asks for."""
    account = view.shares.get(node)
    if job.spec.share is None or account is None or not account.gpus_of(beside):
        return True
    return account.has_room_beside_others(job.spec.share, beside)


def _why_absent(view: ClusterState, job: Job) -> StuckCause:
    if job.refusals:
        return largest_refusal(view, job)
    return Said(text=job.last_error) if job.last_error else NoneAtWork()


def _waits_since(view: ClusterState, job: Job) -> float:
    """Return the instant from which the job had its chance, as far as nodes and cluster are not concerned."""
    placed_at = view.placed_at.get(job.spec.job_id, job.submitted_at)
    halted_at = 0.0 if job.workers else job.last_halted_at or 0.0
    retried_at = 0.0 if job.backoff is None else job.backoff.retry_at
    return max(placed_at, halted_at, retried_at, view.led_at)


def _backed_off(unused: Unused, timeout_s: float) -> JobBackedOff:
    failures = 1 + _failures_before(unused.job)
    return JobBackedOff(
        pool=unused.job.spec.pool,
        job_id=unused.job.spec.job_id,
        at_work=unused.at_work,
        planned=unused.planned,
        since=unused.since,
        reason=unused.reason,
        failures=failures,
        retry_after_s=delay_s(failures, first_s=2 * timeout_s, longest_s=max(LONGEST_S, 2 * timeout_s)),
    )


def _failures_before(job: Job) -> int:
    """Return its failures in a row; none where it worked for as long as its last delay since then."""
    backoff = job.backoff
    return 0 if backoff is None or _worked_s(job, backoff) >= backoff.retry_after_s else backoff.failures


def _worked_s(job: Job, backoff: StartBackoff) -> float:
    started_at = job.last_started_at or 0.0
    if not job.workers:
        return job.last_run_s if started_at > backoff.retry_at - backoff.retry_after_s else 0.0
    assert job.obstacle is not None, "it has workers, and the cluster says that they are of no use"
    return job.obstacle.since - max(backoff.retry_at, started_at)
