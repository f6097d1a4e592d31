"""Room for a job whose workers need several GPUs each, when the free ones are scattered over the nodes.

Rule: only smaller workers are moved out of the way, so two jobs never take turns in moving each other; no anchors are.
"""

from collections import defaultdict

from voda.domain.gpus import Gpus
from voda.domain.plan import Placement
from voda.domain.state import ClusterState
from voda.placement.rendezvous_anchor import anchor


def squeezed_in(view: ClusterState, placed: Placement, job_id: str) -> Placement | None:
    """Return the placement with the job's minimum put where the least has to move, the nodes overfull.

    Args:
        view: nodes and jobs.
        placed: a placement that fits and lacks the job.
        job_id: the job, whose workers fit on no node as it is.

    Returns:
        None where even without the smaller workers there is no room.
    """
    spec, refusals = view.jobs[job_id].spec, view.jobs[job_id].refusals
    free, smaller = _free_and_smaller(view, placed, spec.gpus_per_replica)
    seats: list[str] = []
    for node in sorted(free.keys() - refusals.keys(), key=lambda node: (-free[node], node)):
        fitting = (free[node] + smaller[node]) // spec.gpus_per_replica
        seats += [node] * min(fitting, spec.min_replicas - len(seats))
    return {**placed, job_id: tuple(seats)} if len(seats) == spec.min_replicas else None


def _free_and_smaller(view: ClusterState, placed: Placement, gpus: Gpus) -> tuple[dict[str, Gpus], dict[str, Gpus]]:
    """Return node -> free GPUs, and node -> GPUs held by workers of fewer than `gpus`."""
    smaller: dict[str, Gpus] = defaultdict(Gpus)
    for job_id, nodes in placed.items():
        held = view.jobs[job_id].spec.gpus_per_replica
        if held >= gpus:
            continue
        for node in nodes:
            smaller[node] += held
        if anchor(view, job_id) == nodes[0]:
            smaller[nodes[0]] -= held
    return view.free_gpus(placed), smaller
