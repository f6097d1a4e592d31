"""The planner: how many, where and why, from one view; and the fact that records what differs.

Rules: pure, `voda replay --verify` calls it again; no GPUs are kept for a job that no nodes can hold now: the policy
is asked again without it; no thrash: a growth that does not pay for its resize is left out, and what would have
been taken away for it stays.
"""

from collections.abc import Mapping, Set
from typing import Final

from msgspec.structs import replace

from voda.domain.estimate import Estimate
from voda.domain.job import Job
from voda.domain.plan import Placement, Plan
from voda.domain.state import ClusterState
from voda.events.types import PlanAdopted
from voda.placement import Placer
from voda.placement.refusals import most_telling, room_for
from voda.policies import Policy

_UNKNOWN: Final = Estimate(speedup=())
_MOST_TRIES: Final = 4
"""Of one decision. Each one withholds jobs of another shape, and shapes are few; a bound on time, not on truth."""


def decide(view: ClusterState, policy: Policy, placer: Placer, now: float, *, cause: str) -> Plan:
    """Return the plan that follows the one in force.

    Args:
        view: the pool at one position of the log.
        policy: says how many.
        placer: says where.
        now: seconds since the epoch.
        cause: type of the event that made the decision due, or `tick`.

    Returns:
        The next plan, with one reason for every ready job.
    """
    asked, withheld = _possible(view)
    limited: dict[str, tuple[int, str]] = {}
    for tries_left in reversed(range(_MOST_TRIES)):
        wanted = policy.allocate(asked, now)
        heeds = view.settings.heeds_resize_cost
        replicas, kept = without_thrash(asked, wanted.replicas) if heeds else (wanted.replicas, {})
        placement = placer.place(asked, replicas, now)
        cut = _cut_short(asked, replicas, placement)
        shut_out = _shut_out(asked, cut.keys() - placement.keys(), placement) if tries_left else frozenset()
        more = _refused_more(asked, cut.keys(), placement) if tries_left else {}
        if not shut_out and not more:
            break
        withheld |= {job_id: cut.get(job_id) or _scattered(asked, job_id) for job_id in shut_out}
        limited |= {job_id: (size, cut[job_id]) for job_id, size in more.items()}
        asked = _limited(_without(asked, shut_out), more)
    told = {job_id: why for job_id, (size, why) in limited.items() if len(placement.get(job_id, ())) == size}
    return Plan(
        pool=view.pool,
        number=view.plan.number + 1,
        based_on=view.position,
        policy=policy.name,
        placer=placer.name,
        decided_at=now,
        cause=cause,
        placement=placement,
        reasons={**wanted.reasons, **kept, **cut, **told, **withheld},
    )


def changes(old: Plan, new: Plan, undecided: Set[str]) -> PlanAdopted | None:
    """Return the fact that turns `old` into `new`; None when there is nothing to record.

    Args:
        old: the plan in force.
        new: the plan decided.
        undecided: live jobs that no plan has considered yet; those `new` gives a reason for are recorded.
    """
    before = old.placement
    placed = {job_id: nodes for job_id, nodes in sorted(new.placement.items()) if before.get(job_id) != nodes}
    released = tuple(sorted(job_id for job_id in before if job_id not in new.placement))
    told = sorted(job_id for job_id in {*placed, *released, *undecided} if job_id in new.reasons)
    if not (placed or released or told):
        return None
    return PlanAdopted(
        pool=new.pool,
        number=new.number,
        based_on=new.based_on,
        policy=new.policy,
        placer=new.placer,
        cause=new.cause,
        placed=placed,
        released=released,
        reasons={job_id: new.reasons[job_id] for job_id in told},
    )


def without_thrash(view: ClusterState, wanted: Mapping[str, int]) -> tuple[Mapping[str, int], Mapping[str, str]]:
    """Leave out growths whose gain does not outweigh the cost, then what nobody needs any more.

    Starts, and shrinks and preemptions that make room for starts, stand: only the GPUs of the growths left out
    are given back. They go to preempted jobs first, then to waiting ones, then to shrunk ones.

    Args:
        view: the plan in force, the jobs and their estimates.
        wanted: job id -> replicas, from the policy.

    Returns:
        The corrected replicas, and a reason for each job that keeps what it had.
    """
    growths = _growths_that_do_not_pay(view, wanted)
    if not growths:
        return wanted, {}
    replicas, reasons = dict(wanted), dict(growths)
    freed = 0
    for job_id in growths:
        size = len(view.plan.placement[job_id])
        freed += (wanted[job_id] - size) * view.jobs[job_id].spec.gpus_per_replica
        replicas[job_id] = size
    served = _served_instead(view, wanted, freed)
    replicas.update(served)
    for job_id, size in served.items():
        done = f"kept at {size}" if job_id in view.plan.placement else f"starts on {size}"
        reasons[job_id] = f"{done}: to grow other jobs by these GPUs would not pay"
        freed -= size * view.jobs[job_id].spec.gpus_per_replica
    undone = _shrinks_undone(view, wanted, freed)
    replicas.update(undone)
    for job_id, size in undone.items():
        is_as_before = size == len(view.plan.placement[job_id])
        done = f"kept at {size}" if is_as_before else f"shrunk to {size} only"
        reasons[job_id] = f"{done}: shrinking to {wanted[job_id]} would free GPUs that no other job needs now"
    return replicas, reasons


def _growths_that_do_not_pay(view: ClusterState, wanted: Mapping[str, int]) -> Mapping[str, str]:
    """Return job id -> why it stays as it is."""
    in_force = view.plan.placement
    kept: dict[str, str] = {}
    for job_id, size in wanted.items():
        before = len(in_force.get(job_id, ()))
        if 0 < before < size and _is_settled(view, job_id):
            estimate = view.estimates.get(job_id, _UNKNOWN)
            saved_s = _saved_s(estimate, before, size)
            if saved_s is not None and saved_s <= estimate.resize_cost_s:
                kept[job_id] = (
                    f"kept at {before}: growing to {size} would save {max(saved_s, 0.0):.0f} s"
                    f" and cost {estimate.resize_cost_s:.0f} s"
                )
    return kept


def _is_settled(view: ClusterState, job_id: str) -> bool:
    """Whether the job runs, has its minimum, and none of its planned nodes is lost."""
    job = view.jobs[job_id]
    planned = view.plan.placement[job_id]
    if min(len(planned), len(job.workers)) < job.spec.min_replicas:
        return False
    return all(node in view.nodes and view.nodes[node].usable_gpus > 0 for node in planned)


def _saved_s(estimate: Estimate, before: int, after: int) -> float | None:
    """Return the seconds by which the job ends earlier; None when its remaining time is not known."""
    if after >= len(estimate.speedup):
        return None
    left_s = estimate.time_left_s(before)
    return left_s - estimate.time_left_s(after) if left_s < float("inf") else None


def _served_instead(view: ClusterState, wanted: Mapping[str, int], freed: int) -> Mapping[str, int]:
    """Return job id -> replicas of jobs that were to have none: those in force first, then by submission."""
    in_force = view.plan.placement

    def rank(job_id: str) -> tuple[bool, float, str]:
        return job_id not in in_force, view.jobs[job_id].submitted_at, job_id

    served: dict[str, int] = {}
    for job_id in sorted((job_id for job_id, size in wanted.items() if not size), key=rank):
        spec = view.jobs[job_id].spec
        had = min(len(in_force.get(job_id, ())), spec.max_replicas)
        size = min(max(had, spec.min_replicas), freed // spec.gpus_per_replica)
        if size >= spec.min_replicas:
            served[job_id] = size
            freed -= size * spec.gpus_per_replica
    return served


def _shrinks_undone(view: ClusterState, wanted: Mapping[str, int], freed: int) -> Mapping[str, int]:
    """Return job id -> replicas it keeps after all: whole shrinks first, then parts, earlier submission first."""
    shrunk = sorted(
        (job_id for job_id, size in wanted.items() if 0 < size < _size_to_keep(view, job_id, size)),
        key=lambda job_id: (view.jobs[job_id].submitted_at, job_id),
    )
    undone: dict[str, int] = {}
    for take_parts in (False, True):
        for job_id in shrunk:
            if job_id in undone:
                continue
            gpus = view.jobs[job_id].spec.gpus_per_replica
            lacking = _size_to_keep(view, job_id, wanted[job_id]) - wanted[job_id]
            given = min(lacking, freed // gpus)
            if given == lacking or (take_parts and given):
                undone[job_id] = wanted[job_id] + given
                freed -= given * gpus
    return undone


def _size_to_keep(view: ClusterState, job_id: str, size: int) -> int:
    """Return the size in force, within the job's present bounds, unless the job is no slower at the new one."""
    job = view.jobs[job_id]
    before = min(len(view.plan.placement.get(job_id, ())), job.spec.max_replicas)
    speedup = view.estimates.get(job_id, _UNKNOWN).speedup
    is_no_slower = before < len(speedup) and speedup[size] >= speedup[before]
    return size if is_no_slower else before


def _possible(view: ClusterState) -> tuple[ClusterState, dict[str, str]]:
    """Return the view without the jobs that no nodes could hold, were they empty, and the reasons of those.

    A policy counts GPUs, not nodes: it would keep some for such a job for ever.
    """
    # Of workers of one GPU that fit any node, a policy counts right.
    doubtful = [job for job in view.jobs.values() if job.spec.gpus_per_replica > 1 or job.refusals]
    slots = {gpus: view.slots(gpus) for gpus in {job.spec.gpus_per_replica for job in doubtful}}
    never: dict[str, str] = {}
    for job in doubtful:
        room = slots[job.spec.gpus_per_replica]
        if job.refusals:
            room = room_for(view, job, room)
        if room < job.spec.min_replicas and not job.is_canceling:
            never[job.spec.job_id] = _impossible(view, job, room)
    return (_without(view, never.keys()) if never else view), never


def _impossible(view: ClusterState, job: Job, room: int) -> str:
    if job.refusals and room == 0:
        return f"waits: no node can take it: {most_telling(view, job)}"
    workers = _workers(job.spec.min_replicas, job.spec.gpus_per_replica)
    if job.refusals:
        return f"waits: needs room for {workers}, the nodes that take it have it for {room} ({most_telling(view, job)})"
    return f"waits: needs room for {workers}, the nodes have it for {room}"


def _without(view: ClusterState, job_ids: Set[str]) -> ClusterState:
    return replace(view, jobs={job_id: job for job_id, job in view.jobs.items() if job_id not in job_ids})


def _shut_out(view: ClusterState, unplaced: Set[str], placement: Placement) -> Set[str]:
    """Return the jobs that found no room, and those that wait and are no easier to place than one of them."""
    # What shuts out a job that nodes refuse need not shut out any other.
    harder_than = [job.spec for job_id in unplaced if not (job := view.jobs[job_id]).refusals]
    shapes = {(spec.gpus_per_replica, spec.min_replicas) for spec in harder_than}
    if not shapes:
        return unplaced
    waiting = view.jobs.keys() - placement.keys() - view.plan.placement.keys()
    harder = {job_id for job_id in waiting if _is_no_easier(view.jobs[job_id], shapes)}
    return unplaced | harder


def _refused_more(view: ClusterState, cut: Set[str], placement: Placement) -> Mapping[str, int]:
    """Return the jobs that have less than they were given because nodes refuse them -> the size they have."""
    return {job_id: len(placement[job_id]) for job_id in cut if job_id in placement and view.jobs[job_id].refusals}


def _limited(view: ClusterState, sizes: Mapping[str, int]) -> ClusterState:
    """Return the view in which these jobs want no more than that: the rest is for others."""
    if not sizes:
        return view
    jobs = dict(view.jobs)
    for job_id, size in sizes.items():
        spec = jobs[job_id].spec
        spec = replace(spec, max_replicas=size, requested_replicas=min(spec.requested, size))
        jobs[job_id] = replace(jobs[job_id], spec=spec)
    return replace(view, jobs=jobs)


def _is_no_easier(job: Job, shapes: Set[tuple[int, int]]) -> bool:
    spec = job.spec
    return not job.is_canceling and any(
        spec.gpus_per_replica >= gpus and spec.min_replicas >= least for gpus, least in shapes
    )


def _cut_short(view: ClusterState, replicas: Mapping[str, int], placement: Placement) -> Mapping[str, str]:
    """Return the reasons of jobs for which the free GPUs are too scattered, or on nodes that refuse them."""
    reasons: dict[str, str] = {}
    for job_id, size in replicas.items():
        placed = len(placement.get(job_id, ()))
        if placed < size:
            reasons[job_id] = _scattered(view, job_id, size, placed)
    return reasons


def _scattered(view: ClusterState, job_id: str, size: int = 0, placed: int = 0) -> str:
    job = view.jobs[job_id]
    workers = _workers(size or job.spec.min_replicas, job.spec.gpus_per_replica)
    does = f"runs at {placed}" if placed else "waits"
    if job.refusals:
        return f"{does}: the nodes that take it have no GPUs free for {workers} ({most_telling(view, job)})"
    return f"{does}: the free GPUs are too scattered for {workers}"


def _workers(workers: int, gpus: int) -> str:
    return f"{_count(workers, 'worker')} of {_count(gpus, 'GPU')}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
