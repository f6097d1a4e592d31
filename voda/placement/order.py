"""Requests: in which order placers serve jobs, and how a job's workers are spread."""

from collections.abc import Iterable, Mapping, Sequence

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


def per_node(nodes: Iterable[str]) -> Mapping[str, int]:
    """Return node -> workers on it, in the order of the worker indices."""
    counts: dict[str, int] = {}
    for node in nodes:
        counts[node] = counts.get(node, 0) + 1
    return counts
