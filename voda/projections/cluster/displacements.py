"""Whom others leave GPUs for, and when they do so again for a job that nodes refused then."""

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from voda.domain.job import Job
from voda.domain.node import PODS, Node, demand_of
from voda.domain.plan import Placement
from voda.events.types import PlanAdopted
from voda.projections.cluster.live_jobs import LiveJobs


def let_displace_again(jobs: LiveJobs, node: Node | str) -> None:
    """Let others leave GPUs again for the jobs that a node refused, which may take them now; a name: whatever it is."""
    name = node if isinstance(node, str) else node.name
    for job_id in sorted(jobs.in_vain):
        job = jobs[job_id]
        if (vain := job.displaced_in_vain) is None or (before := vain.refused.get(name)) is None:
            continue
        if isinstance(node, str) or _may_be_taken_now(job, before, node):
            jobs[job_id] = replace(job, displaced_in_vain=None)


def _may_be_taken_now(job: Job, before: Node, node: Node) -> bool:
    """Return whether a node that refused a job, being as `before`, may answer otherwise as it is now.

    What other pods use counts where it leaves more GPUs, or room for more workers, than the node had then. Launchers
    are among these pods: they come and go with the jobs that others displace.
    """
    if not node.is_open:
        return False
    if not before.is_open or (node.labels, node.taints) != (before.labels, before.taints):
        return True
    has_more = node.gpus > before.gpus or (
        node.launchers == before.launchers and node.foreign_gpus < before.foreign_gpus
    )
    return has_more or _most_workers(job, node) > _most_workers(job, before)


def _most_workers(job: Job, node: Node) -> int:
    """Return how many workers of a job a node has room for, beside pods that voda does not manage."""
    slots = node.gpus // max(1, job.spec.gpus_per_replica)
    if (room := node.room) is None:
        return slots
    known = room if PODS in room else {**room, PODS: slots * demand_of(None)[PODS]}
    demand = demand_of(job.spec.needs)
    return min([slots, *(known.get(resource, 0) // asked for resource, asked in demand.items() if asked > 0)])


def displacing(before: Placement, fact: PlanAdopted, jobs: Mapping[str, Job]) -> Sequence[str]:
    """Return the live jobs to which a plan brings workers on nodes that workers of others leave by it.

    `before` is the placement until then.
    """
    leavers: dict[str, set[str]] = {}
    for job_id, nodes in ((job_id, fact.placed.get(job_id, ())) for job_id in (*fact.placed, *fact.released)):
        job = jobs.get(job_id)
        if job is not None and job.workers and not (job.is_canceling or job.is_halted):
            for node in Counter(job.workers.values()) - Counter(nodes):
                leavers.setdefault(node, set()).add(job_id)
    if not leavers:
        return ()
    return [
        job_id
        for job_id, nodes in fact.placed.items()
        if any(leavers.get(node, set()) - {job_id} for node in Counter(nodes) - Counter(before.get(job_id, ())))
    ]
