"""The last word on a plan where jobs are bound to nodes: some found no room, and others were capped for them.

1. The plan in force stands unless the new one is better: in the highest class of priority in which they differ, more
   jobs have a place, or have more of the workers that the policy gives them of what their nodes have. So plans do not
   take turns, and the policy's order holds.
2. Jobs with a place grow as the policy says into what is left after all; then others have their minimum beside them.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from voda.domain.gpus import NO_GPUS, Gpus
from voda.domain.plan import Placement
from voda.domain.reasons.outcomes import Keeps, Reason
from voda.domain.state import ClusterState
from voda.placement import Placer
from voda.placement.giving_way import Ways, give_way
from voda.placement.partial_placement import carry_over
from voda.planner.allocation.priority import allocate, place
from voda.planner.candidates import Placed
from voda.planner.feasibility import no_room, shortfall, without_jobs
from voda.policies import Policy, gives_as_requested


def is_better(view: ClusterState, wanted: Mapping[str, int], placement: Placement) -> bool:
    """Return whether a placement is better than the one in force, or that cannot go on.

    `wanted` is what the policy gives, of what the jobs' nodes have where it gave more.
    """
    before, sizes = _in_force(view, wanted), {job_id: len(nodes) for job_id, nodes in placement.items()}
    had = {job_id: len(nodes) for job_id, nodes in before.items()}
    return _worth(view, wanted, sizes) > _worth(view, wanted, had) or not _stands(view, before)


def in_force(view: ClusterState, wanted: Mapping[str, int], new: Placed) -> Placed:
    """Return the plan in force in place of the new one, which is no better."""
    placement, reasons = _in_force(view, wanted), dict(new.reasons)
    for job_id in {*new.placement, *placement}:
        size = len(placement.get(job_id, ()))
        if size != len(new.placement.get(job_id, ())):
            reasons[job_id] = _reason(view, job_id, wanted[job_id], size)
    left_out = {job_id: why for job_id, why in new.left_out.items() if job_id not in placement}
    return Placed(placement=placement, reasons=reasons, left_out=left_out)


def _in_force(view: ClusterState, wanted: Mapping[str, int]) -> Placement:
    return {job_id: nodes for job_id, nodes in view.plan.placement.items() if job_id in wanted}


def _reason(view: ClusterState, job_id: str, wanted: int, size: int) -> Reason:
    return Keeps(workers=size) if size >= wanted and size else no_room(view, job_id, wanted, size)


def _worth(view: ClusterState, wanted: Mapping[str, int], sizes: Mapping[str, int]) -> list[tuple[int, Gpus, int]]:
    """Return for each class of priority, the highest first, the wanted jobs with a place, their GPUs, and all jobs."""
    worth = {view.jobs[job_id].spec.priority: (0, NO_GPUS, 0) for job_id in wanted}
    for job_id, size in sizes.items():
        spec, served = view.jobs[job_id].spec, min(size, wanted[job_id])
        jobs, gpus, placed = worth[spec.priority]
        worth[spec.priority] = jobs + bool(served), gpus + served * spec.gpus_per_replica, placed + 1
    return [worth[priority] for priority in sorted(worth, reverse=True)]


def _stands(view: ClusterState, in_force: Placement) -> bool:
    """Return whether all of the plan in force may go on."""
    sizes = {job_id: len(nodes) for job_id, nodes in in_force.items()}
    specs = {job_id: view.jobs[job_id].spec for job_id in sizes}
    if any(specs[job_id].size_within(size) != size for job_id, size in sizes.items()):
        return False
    return carry_over(view, sizes).whole == in_force


def filled(view: ClusterState, placed: Placed, policy: Policy, placer: Placer, now: float) -> Placed:
    """Return what becomes of the jobs once those with a place have grown, and others have their minimum beside them."""
    may_shrink = not gives_as_requested(policy)
    placement, reasons = placed.placement, dict(placed.reasons)
    served = without_jobs(view, placed.left_out.keys())
    allocation = allocate(served, policy, now)
    begun = replace(served, plan=replace(served.plan, placement=placement))
    grown = place(begun, allocation.replicas, placer, now)
    more = sum(map(len, grown.values())) - sum(map(len, placement.values()))
    if more > 0 and all(len(grown.get(job_id, ())) >= len(nodes) for job_id, nodes in placement.items()):
        placement = grown
        reasons |= {**allocation.reasons, **shortfall(served, allocation.replicas, grown).reasons}
    sizes = {job_id: len(nodes) for job_id, nodes in placement.items()}
    # A policy that lets jobs shrink gave some of them nothing for GPUs that turned out to be of no use to others.
    waiting = {
        job_id: job.spec.min_replicas
        for job_id, job in view.jobs.items()
        if job_id not in sizes and not job.is_canceling and (may_shrink or job_id in placed.left_out)
    }
    begun = replace(view, plan=replace(view.plan, placement=placement))
    last = give_way(Ways(view=begun, replicas={**sizes, **waiting}, may_shrink=may_shrink), placement)
    changed = {job_id: len(nodes) for job_id, nodes in last.items() if len(nodes) != sizes.get(job_id)}
    reasons |= {
        job_id: no_room(view, job_id, view.jobs[job_id].spec.max_replicas, size) for job_id, size in changed.items()
    }
    left_out = {job_id: why for job_id, why in placed.left_out.items() if job_id not in last}
    return Placed(placement=last, reasons=reasons, left_out=left_out)
