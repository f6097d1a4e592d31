"""What placers ask of jobs: which is served first, how its workers are spread, and which one is not moved without need.

That is the anchor: worker 0 of a job whose workers all meet there, such as a PyTorchJob. Rule: it stays while it is at
work where the plan in force has it; one that is not there yet can be moved for nothing.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from voda.domain.job import Job
from voda.domain.state import ClusterState
from voda.kinds.registry import KINDS


def largest_first(view: ClusterState, replicas: Mapping[str, int]) -> Sequence[str]:
    """Return the jobs with replicas > 0: most GPUs first, then the earlier submission, then by id."""
    return by_size(view, [job_id for job_id, count in replicas.items() if count], replicas)


def by_size(view: ClusterState, jobs: Iterable[str], replicas: Mapping[str, int]) -> Sequence[str]:
    """Return the given jobs in the order of `largest_first`."""

    def rank(job_id: str) -> tuple[int, float, str]:
        job = view.jobs[job_id]
        return -replicas[job_id] * job.spec.gpus_per_replica, job.submitted_at, job_id

    return sorted(jobs, key=rank)


def per_node(nodes: Iterable[str]) -> Mapping[str, int]:
    """Return node -> workers on it, in the order of the worker indices."""
    counts: dict[str, int] = {}
    for node in nodes:
        counts[node] = counts.get(node, 0) + 1
    return counts


def refusing(job: Job, workers: int) -> Collection[str]:
    """Return the nodes that are known not to take so many workers of a job."""
    return [node for node in job.refusals if job.is_refused_by(node, workers)]


ANCHORED: Final = frozenset(name for name, kind in KINDS.items() if kind.has_anchor)
"""Kinds of jobs whose workers all begin anew when worker 0 does."""


def anchor(view: ClusterState, job_id: str) -> str | None:
    """Return the node that worker 0 of the job is not to leave; None where it may."""
    job = view.jobs[job_id]
    if job.spec.kind not in ANCHORED:
        return None
    node = job.workers.get(0)
    planned = view.plan.placement.get(job_id)
    return node if node is not None and planned and planned[0] == node else None


def is_uprooted(view: ClusterState, job_id: str, nodes: Sequence[str]) -> bool:
    """Return whether such workers would mean that the job's worker 0 leaves the node that it stays on."""
    anchor_node = anchor(view, job_id)
    return anchor_node is not None and bool(nodes) and nodes[0] != anchor_node
