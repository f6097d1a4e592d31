"""Bounds what a job costs others: once nodes have refused it after others had left GPUs for it, none leave any again.

1. The log notes whom others leave GPUs for, and whether nodes refuse it then (`voda/projections/jobs/changes.py`).
2. Such a job keeps the workers that nodes have taken (`taken_sizes`), and the others are decided about as if it wanted
   no more (`without_more`).
3. It may have what they leave (`left_for`).

Rule: this ends once the job asks for something else, a node that refused it may take it now, or another one opens.
"""

from collections import Counter
from collections.abc import Mapping, Set

from msgspec.structs import replace

from voda.domain.job import Job, VainDisplacement
from voda.domain.plan import Placement
from voda.domain.reasons.nodes import RoomInVain
from voda.domain.state import ClusterState
from voda.planner.allocation.priority import on_the_rest
from voda.planner.feasibility import with_caps, without_jobs


def displaced_in_vain(view: ClusterState) -> dict[str, RoomInVain]:
    """Return the jobs for which others left GPUs in vain, and why it was in vain."""
    return {
        job_id: RoomInVain(node=vain.node, why=vain.why)
        for job_id, job in view.special_jobs.items()
        if (vain := job.displaced_in_vain) is not None and not job.is_canceling and not _may_try(view, job, vain)
    }


def _may_try(view: ClusterState, job: Job, vain: VainDisplacement) -> bool:
    """Return whether a node has opened since that is not known to refuse the job."""
    names = [name for name, opening in view.opened.items() if opening > vain.openings and name not in vain.refused]
    nodes = [view.nodes[name] for name in names if name in view.nodes and not job.is_refused_by(name, 1)]
    return any(node.usable_gpus >= job.spec.gpus_per_replica for node in nodes)


def taken_sizes(view: ClusterState, vain: Set[str]) -> dict[str, int]:
    """Return, of these jobs, those of which nodes have taken the minimum -> the size that the workers taken make."""
    sizes = {job_id: view.jobs[job_id].spec.size_within(_taken(view, view.jobs[job_id])) for job_id in vain}
    return {job_id: size for job_id, size in sizes.items() if size}


def without_more(view: ClusterState, vain: Set[str]) -> ClusterState:
    """Return the view in which these jobs want no more than nodes have taken of them."""
    sizes = taken_sizes(view, vain)
    return with_caps(without_jobs(view, vain - sizes.keys()), sizes)


def left_for(vain: Set[str], view: ClusterState, placed: Placement) -> ClusterState:
    """Return the view of these jobs alone on what others leave of the nodes; `placed` is that of `without_more`."""
    jobs = {job_id: job for job_id, job in view.jobs.items() if job_id in vain}
    in_force = {job_id: nodes for job_id, nodes in view.plan.placement.items() if job_id in vain and job_id in placed}
    jobs |= {job_id: _at_least(jobs[job_id], len(placed[job_id])) for job_id in in_force}
    others = {job_id: nodes for job_id, nodes in placed.items() if job_id not in vain}
    rest = on_the_rest(view, others)
    return replace(rest, jobs=jobs, plan=replace(view.plan, placement=in_force), retries=())


def _taken(view: ClusterState, job: Job) -> int:
    """Return how many workers of a job nodes have taken, or say that they take: they may have yet to start."""
    at_work, planned = Counter(job.workers.values()), Counter(view.plan.placement.get(job.spec.job_id, ()))
    sizes: Mapping[str, int] = {node: min(job.fits.get(node, 0), count) for node, count in planned.items()}
    return sum(max(at_work[node], sizes.get(node, 0)) for node in at_work.keys() | sizes.keys())


def _at_least(job: Job, size: int) -> Job:
    return replace(job, spec=replace(job.spec, min_replicas=size, requested_replicas=size))
