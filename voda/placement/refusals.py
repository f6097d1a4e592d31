"""Nodes that refuse a job's workers: the room that the others leave, and the sentence for the job's owner.

Rule: pure; a node that refuses the job and left the pool counts for nothing.
"""

from collections import Counter

from voda.domain.job import Job
from voda.domain.state import ClusterState


def room_for(view: ClusterState, job: Job, slots: int) -> int:
    """Return how many workers of the job its pool could hold, were it empty otherwise.

    Args:
        view: the pool.
        job: of the pool.
        slots: workers of its size that all nodes together have room for.
    """
    at_work = Counter(job.workers.values())
    for name in job.refusals:
        if (node := view.nodes.get(name)) is not None:
            slots -= max(0, node.usable_gpus // job.spec.gpus_per_replica - at_work[name])
    return slots


def largest_refusal(view: ClusterState, job: Job) -> str:
    """Return why the job is refused by the node with the most GPUs that refuses it, and how many more do.

    Returns:
        Such as `gpu-1: 2 CPUs free, 4 needed; 3 more refuse it`.
    """

    def rank(name: str) -> tuple[int, str]:
        node = view.nodes.get(name)
        return -(node.usable_gpus if node else 0), name

    name, *others = sorted(job.refusals, key=rank)
    more = f"; {len(others)} more refuse{'' if len(others) > 1 else 's'} it" if others else ""
    reason = job.refusals[name]
    return f"{reason if name in reason else f'{name}: {reason}'}{more}"
