"""What running jobs can spare for parts of cards, and where new parts may come to. Pure."""

from collections import Counter
from collections.abc import Mapping

from voda.domain.state import ClusterState


def spare_gpus(view: ClusterState) -> Mapping[str, int]:
    """Return node -> its GPUs that no running job needs for its minimum."""
    kept = Counter[str]()
    for job in view.jobs.values():
        for index, node in () if job.is_canceling else job.workers.items():
            kept[node] += job.spec.gpus_per_replica if index < job.spec.min_replicas else 0
    return {name: max(0, node.usable_gpus - kept[name]) for name, node in view.nodes.items()}


def takes_shares(view: ClusterState, name: str) -> bool:
    """Return whether new parts of cards may come to a node."""
    node = view.nodes.get(name)
    return node is not None and node.is_open and name not in view.closed_nodes
