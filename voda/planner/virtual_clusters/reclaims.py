"""Workers that are to give cells back to a guarantee, and the deadline until which that may take.

1. A plan takes workers away from a job. From then on each of them is waited for (`ClusterState.reclaimed_at`).
2. After `reclaim_grace_s`, if a guaranteed worker needs its node, it is overdue: plans then give its job no workers
   until they have left, and they are killed.

Rules: pure, the time is a parameter. A worker that moves is never overdue, because it waits for its new place; a worker
that is in the way there may be.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping

from voda.domain.job import Job
from voda.domain.state import ClusterState


def overdue_workers(view: ClusterState, now: float) -> Mapping[str, int]:
    """Return job -> workers that are overdue, for every job that has some."""
    if not view.reclaimed_at:
        return {}
    awaited = _awaited_nodes(view)
    due = ((job_id, node) for job_id, node, ends_at in _deadlines(view) if ends_at <= now)
    return Counter(job_id for job_id, node in due if node in awaited)


def next_deadline_at(view: ClusterState, now: float) -> float:
    """Return when the next worker may be overdue, without another fact; infinite: none."""
    return min((ends_at for _, _, ends_at in _deadlines(view) if ends_at > now), default=math.inf)


def _deadlines(view: ClusterState) -> Iterator[tuple[str, str, float]]:
    """Yield (job, node, until when it may stay) of the workers that are to leave."""
    for job_id, workers in view.reclaimed_at.items():
        job = view.jobs.get(job_id)
        if job is not None and not job.is_canceling:
            for index, since in workers.items():
                # A leader has to have had the time to carry the plan out.
                yield job_id, job.workers[index], max(since, view.led_at) + view.settings.reclaim_grace_s


def _awaited_nodes(view: ClusterState) -> set[str]:
    """Return the nodes that guaranteed workers wait for, and those that workers in their way wait for."""
    plan, awaited, moves = view.plan, set[str](), []
    for job_id, nodes in plan.placement.items():
        job = view.jobs.get(job_id)
        if job is None or job.is_canceling:
            continue
        guaranteed = len(plan.guaranteed.get(job_id, ()))
        awaited.update(node for index, node in enumerate(nodes[:guaranteed]) if _is_missing(job, index, node))
        if leaves := {node for index, node in job.workers.items() if index < len(nodes) and nodes[index] != node}:
            moves.append((leaves, {node for index, node in enumerate(nodes) if _is_missing(job, index, node)}))
    while more := {node for leaves, needs in moves if leaves & awaited for node in needs - awaited}:
        awaited |= more
    return awaited


def _is_missing(job: Job, index: int, node: str) -> bool:
    return index not in job.done and job.workers.get(index) != node
