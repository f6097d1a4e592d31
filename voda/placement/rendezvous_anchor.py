"""The worker that is not moved without need: worker 0 of a job whose workers all meet there, such as a PyTorchJob.

Rule: it is held while it is at work where the plan in force has it; one that is not there yet can be moved for nothing.
"""

from collections.abc import Sequence
from typing import Final

from voda.domain.state import ClusterState
from voda.kinds.registry import KINDS

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
    """Return whether such workers would mean that the job's worker 0 leaves the node it is held on."""
    held = anchor(view, job_id)
    return held is not None and bool(nodes) and nodes[0] != held
