"""Jobs whose programs have begun and are not to begin a second time: they keep their workers until they end.

1. `without_fixed` leaves them out of a decision: what they have is others'. In a pool with virtual clusters they keep
   their cells as pods do that voda does not make (`voda/planner/virtual_clusters/fixed_gangs.py`).
2. Where such a job loses a worker all the same, no plan gives it any (`eligibility`), and the controller ends it.

Rules: pure; before its program begins, such a job is planned as a rigid one of the size that it requested, as nothing
could take a surplus back, and on no idle cells of others; only within what the pool lets its user's have together.
"""

from collections import Counter
from collections.abc import Mapping, Set

from msgspec.structs import replace

from voda.domain.gpus import NO_GPUS, Gpus
from voda.domain.job import Job
from voda.domain.node import Node, demand_of
from voda.domain.reasons.holds import FixedBound
from voda.domain.reasons.outcomes import Reason, Waits
from voda.domain.state import ClusterState
from voda.planner.feasibility import without_jobs


def without_fixed(view: ClusterState) -> tuple[ClusterState, Mapping[str, Job]]:
    """Return the view without the jobs that keep their workers, others of their kind as rigid ones, and these jobs.

    Those that share a GPU stay in it: in a pool without virtual clusters nobody takes that away once they run.
    """
    in_force = view.plan.placement
    fixed: dict[str, Job] = {}
    rigid: dict[str, Job] = {}
    for job_id, job in view.special_jobs.items():
        if job.spec.is_restartable or job.is_canceling:
            continue
        if job.is_fixed and job.spec.share is None and job_id in in_force:
            fixed[job_id] = job
        elif job.spec.is_elastic:
            rigid[job_id] = replace(job, spec=job.spec.as_planned)
    view = view.with_jobs(rigid)
    return (leaving_out(view, fixed) if fixed else view), fixed


def leaving_out(view: ClusterState, fixed: Mapping[str, Job]) -> ClusterState:
    """Return the view without these planned jobs: what they have is others'."""
    return replace(without_jobs(view, fixed.keys()), nodes=_left_by(view, fixed))


def beyond_user_bound(view: ClusterState, held: Set[str]) -> dict[str, Reason]:
    """Return the jobs that wait as their users' have as many GPUs as the pool lets them; `held` ones wait anyway.

    What has workers, or is in the plan, stays; others follow by priority, then as they were submitted.
    """
    if not (most := view.settings.most_user_fixed_gpus):
        return {}
    in_force, had = view.plan.placement, Counter[str]()
    coming: list[Job] = []
    for job_id, job in view.special_jobs.items():
        if job.spec.is_restartable:
            continue
        if size := len(in_force.get(job_id, job.workers)):
            had[job.spec.user] += _gpus(job, size)
        elif job_id not in held and not job.is_canceling:
            coming.append(job)
    beyond: dict[str, Reason] = {}
    for job in sorted(coming, key=lambda job: (-job.spec.priority, job.submitted_at, job.spec.job_id)):
        user, needs = job.spec.user, _gpus(job, job.spec.requested)
        if needs and had[user] + needs > most:
            why = FixedBound(needs=needs, others=Gpus(had[user]), most=Gpus(most))
            beyond[job.spec.job_id] = Waits(why=(why,))
        else:
            had[user] += needs
    return beyond


def _gpus(job: Job, size: int) -> Gpus:
    return size * job.spec.gpus_per_replica + job.spec.launcher_gpus


def _left_by(view: ClusterState, fixed: Mapping[str, Job]) -> Mapping[str, Node]:
    """Return the nodes without what these jobs have of them; cells of virtual clusters know the GPUs themselves."""
    nodes = dict(view.nodes)
    for job_id, job in fixed.items():
        left = [name for index, name in enumerate(view.plan.placement[job_id]) if index not in job.done]
        gpus = NO_GPUS if view.cells is not None else job.spec.gpus_per_replica
        for name, count in Counter(left).items():
            if (node := nodes.get(name)) is not None:
                used = {resource: count * each for resource, each in demand_of(job.spec.needs).items()}
                room = node.room and {key: amount - used.get(key, 0) for key, amount in node.room.items()}
                nodes[name] = replace(node, foreign_gpus=Gpus(node.foreign_gpus + count * gpus), room=room)
    return nodes
