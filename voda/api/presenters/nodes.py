"""Nodes as the API shows them: who holds which GPUs."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from voda.api.schemas.pools import NodeView
from voda.domain.job import Job
from voda.domain.node import Node


def nodes_of(nodes: Iterable[Node], jobs: Iterable[Job]) -> tuple[NodeView, ...]:
    """Return the nodes by name.

    Args:
        nodes: of one pool.
        jobs: all live jobs of that pool.
    """
    held = _held(jobs)
    return tuple(_shown(node, held.get(node.name, {})) for node in sorted(nodes, key=lambda node: node.name))


def _held(jobs: Iterable[Job]) -> Mapping[str, Mapping[str, int]]:
    """Return node -> job id -> GPUs that the job's workers hold there."""
    held: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for job in jobs:
        for node in job.workers.values():
            held[node][job.spec.job_id] += job.spec.gpus_per_replica
    return held


def _shown(node: Node, jobs: Mapping[str, int]) -> NodeView:
    used = sum(jobs.values())
    return NodeView(
        name=node.name,
        pool=node.pool,
        gpus=node.gpus,
        foreign_gpus=node.foreign_gpus,
        used_gpus=used,
        free_gpus=max(0, node.usable_gpus - used),
        is_ready=node.is_ready,
        is_schedulable=node.is_schedulable,
        labels=node.labels,
        jobs=dict(sorted(jobs.items())),
    )
