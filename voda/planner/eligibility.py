"""Finds the jobs that may have no workers now, whatever is free: those that are halted, those that wait for others to
end or for the next try of their program, those that are late to give cells back, and the tasks of an array beyond the
number that may be at work at once.

Rules: no policy sees these jobs. Of an array, the tasks that are at work stay, and the lowest indices come next. A job
whose program failed queues anew from its next try on, so that it takes no GPUs back from the jobs that got them.

Workers that a plan takes away from a job are waited for (`ClusterState.reclaimed_at`). After `reclaim_grace_s` they are
overdue if a guaranteed worker needs their node: plans then give their job no workers until they have left, and they are
killed. A worker that moves is never overdue, because it waits for its new place; one that is in the way there may be.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Final

from msgspec.structs import replace

from voda.domain.dependency import Dependency
from voda.domain.job import Job, JobSpec
from voda.domain.reasons.holds import After, ArrayBound, Awaited, InVain, LostRun, NextTry, Overdue
from voda.domain.reasons.outcomes import Halted, Preempted, Reason, Waits
from voda.domain.sizes import JobSizes
from voda.domain.state import ClusterState, ExpectedRetry
from voda.planner.feasibility import without_jobs
from voda.planner.fixed_jobs import beyond_user_bound

_WAITS_FOR_RETRY: Final = Waits(why=(NextTry(),))
_NAMED: Final = 3
"""Jobs that a reason names; it counts the others."""


def eligible_view(view: ClusterState, now: float) -> tuple[ClusterState, dict[str, Reason]]:
    """Return the view without the jobs that are held, and why they are."""
    held = held_jobs(view, now)
    eligible = without_jobs(view, held.keys()) if held else view
    return _with_retries(view, _without_avoided_sizes(eligible, now), now), held


def _without_avoided_sizes(view: ClusterState, now: float) -> ClusterState:
    """Return the view in which jobs have no sizes at which a resize failed lately; at first the one that ran alone."""
    shown: dict[str, Job] = {}
    for job_id, job in view.jobs.items():
        if job.avoided_sizes and (avoided := {size for size, until in job.avoided_sizes.items() if until > now}):
            spec = _without_sizes(job.spec, avoided)
            is_away = not job.workers or len(view.plan.placement.get(job_id, ())) in avoided
            if is_away and spec.size_within(job.ran_size) == job.ran_size:
                size = job.ran_size
                spec = replace(spec, sizes=None, min_replicas=size, max_replicas=size, requested_replicas=size)
            shown[job_id] = replace(job, spec=spec)
    return replace(view, jobs={**view.jobs, **shown}) if shown else view


def _without_sizes(spec: JobSpec, avoided: Set[int]) -> JobSpec:
    """Return the spec without some of its sizes; as it is where that would leave none."""
    of = spec.sizes or range(spec.min_replicas, spec.max_replicas + 1)
    if not (left := [size for size in of if size not in avoided]):
        return spec
    sizes = JobSizes.of(left)
    requested = sizes.floor(spec.requested) or left[0]
    return replace(spec, sizes=sizes, min_replicas=left[0], max_replicas=left[-1], requested_replicas=requested)


def held_jobs(view: ClusterState, now: float) -> dict[str, Reason]:
    """Return the jobs that may have no workers now, and why; without those that are being canceled."""
    held: dict[str, Reason] = {
        job_id: _overdue(view, workers) for job_id, workers in overdue_workers(view, now).items()
    }
    bounded: dict[str, list[Job]] = {}
    for job_id, job in view.special_jobs.items():
        if not job.spec.is_restartable and job.has_lost_run and not job.is_canceling:
            held[job_id] = Waits(why=(LostRun(cause=job.loss or job.interruption),))
        elif (job.halt or job.waits_for or job.retry_at > now) and not job.is_canceling:
            if job.halt:
                held[job_id] = Halted(by=job.halt.by, text=job.halt.text)
            elif job.waits_for:
                held[job_id] = _after(view, job)
            elif not job.workers:
                held[job_id] = _WAITS_FOR_RETRY
        if (array := job.spec.array) is not None and array.at_once:
            bounded.setdefault(array.array_id, []).append(job)
    if bounded:
        outlived = Counter(job.spec.array.array_id for job in view.outlived.values() if job.spec.array is not None)
        for array_id, tasks in bounded.items():
            held |= _beyond_bound(view, tasks, held.keys(), at_work=outlived[array_id])
    return {**held, **beyond_user_bound(view, held.keys())}


def _beyond_bound(view: ClusterState, tasks: Sequence[Job], held: Set[str], *, at_work: int) -> dict[str, Reason]:
    """Return the tasks of one array that are beyond its bound; `at_work` tasks have ended and still have workers."""

    def has_gpus(job: Job) -> bool:
        return bool(job.workers) or job.spec.job_id in view.plan.placement

    def rank(job: Job) -> tuple[bool, int, str]:
        assert job.spec.array is not None, "it is a task"
        return not has_gpus(job), job.spec.array.index, job.spec.job_id

    eligible = [job for job in tasks if job.spec.job_id not in held and not job.is_canceling]
    # A task that is being stopped gives its place away only once its workers are gone.
    at_work += sum(has_gpus(job) for job in tasks) - sum(has_gpus(job) for job in eligible)
    array = tasks[0].spec.array
    assert array is not None, "it is a task"
    reason = Waits(why=(ArrayBound(array=array.name, at_once=array.at_once),))
    return {job.spec.job_id: reason for job in sorted(eligible, key=rank)[max(0, array.at_once - at_work) :]}


def next_retry_at(view: ClusterState, now: float) -> float:
    """Return when the next program may be started again whose job has no workers; infinite: none."""
    retries = (job.retry_at for job in view.special_jobs.values() if job.retry_at > now and not job.workers)
    return min(retries, default=math.inf)


def _with_retries(view: ClusterState, eligible: ClusterState, now: float) -> ClusterState:
    """Return the eligible view, in which jobs queue from their last retry on, and the retries that are to come."""
    failed = {job_id: job for job_id, job in view.special_jobs.items() if job.retry_at}
    if not failed:
        return eligible
    jobs = [eligible.jobs[job_id] for job_id in failed.keys() & eligible.jobs.keys()]
    later = {job.spec.job_id: replace(job, submitted_at=max(job.submitted_at, job.retry_at)) for job in jobs}
    retries = tuple(
        ExpectedRetry(
            gpus=job.spec.min_replicas * job.spec.gpus_per_replica,
            priority=job.spec.priority,
            in_s=job.retry_at - now,
        )
        for job in failed.values()
        if job.retry_at > now and not (job.workers or job.halt or job.is_canceling)
    )
    return replace(eligible.with_jobs(later), retries=retries)


def _after(view: ClusterState, job: Job) -> Reason:
    if job.unsatisfiable:
        return Waits(why=(InVain(why=job.unsatisfiable),))
    named = tuple(_awaited(view, dependency) for dependency in job.waits_for[:_NAMED])
    return Waits(why=(After(jobs=named, more=max(0, len(job.waits_for) - _NAMED)),))


def _overdue(view: ClusterState, workers: int) -> Reason:
    return Preempted(why=(Overdue(workers=workers, grace_s=view.settings.reclaim_grace_s),))


def _awaited(view: ClusterState, dependency: Dependency) -> Awaited:
    job = view.jobs.get(dependency.key)
    return Awaited(name=dependency.target, phase="" if job is None else job.phase)


def overdue_workers(view: ClusterState, now: float) -> Mapping[str, int]:
    """Return job -> workers that are overdue, for every job that has some."""
    if not view.reclaimed_at:
        return {}
    awaited = _awaited_nodes(view)
    due = ((job_id, node) for job_id, node, ends_at in _deadlines(view) if ends_at <= now)
    return Counter(job_id for job_id, node in due if node in awaited)


def next_deadline_at(view: ClusterState, now: float) -> float:
    """Return when the next worker may be overdue, without another fact; infinite: none."""
    return min((ends_at for _, _, ends_at in _deadlines(view) if ends_at > now), default=math.inf)


def _deadlines(view: ClusterState) -> Iterator[tuple[str, str, float]]:
    """Yield (job, node, until when it may stay) of the workers that are to leave."""
    for job_id, workers in view.reclaimed_at.items():
        job = view.jobs.get(job_id)
        if job is not None and not job.is_canceling:
            for index, since in workers.items():
                # A leader has to have had the time to carry the plan out.
                yield job_id, job.workers[index], max(since, view.led_at) + view.settings.reclaim_grace_s


def _awaited_nodes(view: ClusterState) -> set[str]:
    """Return the nodes that guaranteed workers wait for, and those that workers in their way wait for."""
    plan, awaited, moves = view.plan, set[str](), []
    for job_id, nodes in plan.placement.items():
        job = view.jobs.get(job_id)
        if job is None or job.is_canceling:
            continue
        guaranteed = len(plan.guaranteed.get(job_id, ()))
        awaited.update(node for index, node in enumerate(nodes[:guaranteed]) if _is_missing(job, index, node))
        if leaves := {node for index, node in job.workers.items() if index < len(nodes) and nodes[index] != node}:
            moves.append((leaves, {node for index, node in enumerate(nodes) if _is_missing(job, index, node)}))
    while more := {node for leaves, needs in moves if leaves & awaited for node in needs - awaited}:
        awaited |= more
    return awaited


def _is_missing(job: Job, index: int, node: str) -> bool:
    return index not in job.done and job.workers.get(index) != node
