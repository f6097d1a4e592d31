"""What placers ask of jobs: which is served first, how its workers are spread, and which one is not moved without need.

That is the anchor: worker 0 of a job whose workers all meet there, such as a PyTorchJob. Rule: it stays while it is at
work where the plan in force has it; one that is not there yet can be moved for nothing.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import compress, repeat
from operator import gt

from voda.domain.gpus import Gpus, total
from voda.domain.job import Job
from voda.domain.plan import Placement
from voda.domain.state import ClusterState


def largest_first(view: ClusterState, replicas: Mapping[str, int]) -> Sequence[str]:
    """Return the jobs with replicas > 0: most GPUs first, then the earlier submission, then by id."""
    return by_size(view, [job_id for job_id, count in replicas.items() if count], replicas)


def by_size(view: ClusterState, jobs: Iterable[str], replicas: Mapping[str, int]) -> Sequence[str]:
    """Return the given jobs in the order of `largest_first`."""

    def rank(job_id: str) -> tuple[int, float, str]:
        job = view.jobs[job_id]
        return -replicas[job_id] * job.spec.gpus_per_replica, job.submitted_at, job_id

    return sorted(jobs, key=rank)


def lacking(replicas: Mapping[str, int], placement: Placement) -> Sequence[str]:
    """Return the jobs that have fewer workers by a placement than they are to have."""
    return [*compress(replicas, map(gt, replicas.values(), map(len, map(placement.get, replicas, repeat(())))))]


def per_node(nodes: Iterable[str]) -> Mapping[str, int]:
    """Return node -> workers on it, in the order of the worker indices."""
    counts: dict[str, int] = {}
    for node in nodes:
        counts[node] = counts.get(node, 0) + 1
    return counts


def shape(job: Job) -> tuple[object, ...]:
    """Return what jobs have in common whose workers ask the same and are refused by the same nodes."""
    needs = job.spec.needs.key if job.spec.needs else b""
    refusals, fits = id(job.refusals) if job.refusals else 0, id(job.fits) if job.fits else 0
    return refusals, fits, job.spec.gpus_per_replica, needs


def refusing(job: Job, workers: int) -> Collection[str]:
    """Return the nodes that are known not to take so many workers of a job."""
    return [node for node in job.refusals if job.is_refused_by(node, workers)]


def is_confined(view: ClusterState, job: Job) -> bool:
    """Return whether some nodes refuse the job that take others, or fewer of its workers than they have GPUs for."""
    return bool(job.refusals) and not job.refusals.keys() <= view.closed_nodes.keys()


def most_confined_first(view: ClusterState, jobs: Sequence[str]) -> Sequence[str]:
    """Return the jobs, those first that the fewest GPUs are for, otherwise as they were."""
    if not any(is_confined(view, view.jobs[job_id]) for job_id in jobs):
        return jobs
    # Jobs of one class have the very same refusals.
    reach: dict[tuple[int, int], Gpus] = {}

    def rank(job_id: str) -> float:
        job = view.jobs[job_id]
        key = id(job.refusals), id(job.fits)
        if is_confined(view, job) and key not in reach:
            reach[key] = total(node.usable_gpus for name, node in view.nodes.items() if not job.is_refused_by(name, 1))
        return reach.get(key, math.inf)

    return sorted(jobs, key=rank)


def anchor(view: ClusterState, job_id: str) -> str | None:
    """Return the node that worker 0 of the job is not to leave; None where it may."""
    job = view.jobs[job_id]
    if not job.has_anchor:
        return None
    node = job.workers.get(0)
    planned = view.plan.placement.get(job_id)
    return node if node is not None and planned and planned[0] == node else None


def is_uprooted(view: ClusterState, job_id: str, nodes: Sequence[str]) -> bool:
    """Return whether such workers would mean that the job's worker 0 leaves the node that it stays on."""
    anchor_node = anchor(view, job_id)
    return anchor_node is not None and bool(nodes) and nodes[0] != anchor_node
