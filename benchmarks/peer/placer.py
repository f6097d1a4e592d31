"""The peer's placer: worst fit. A job keeps its workers while their number stays; all others are placed from nothing.

Rule: the node with the most free GPUs is filled next, the first one among equals, for the last workers too.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Protocol

from voda.domain.gpus import Gpus
from voda.domain.plan import Placement
from voda.domain.state import ClusterState
from voda.policies import Policy


class Ordering(Protocol):
    """Says who is placed first."""

    def order(self, view: ClusterState, replicas: Mapping[str, int]) -> Sequence[str]:
        """Return the jobs in the order in which they are placed.

        Args:
            view: as in `allocate`.
            replicas: job id -> replicas, as allocated.
        """
        ...


class PeerPolicy(Policy, Ordering, Protocol):
    """What the peer calls a policy: how many, and in which order they are placed."""


class PeerPlacer:
    """Worst fit without any defragmentation, in an order that the policy sets."""

    name: ClassVar[str] = "peer"
    title: ClassVar[str] = "emptiest node first, every resize placed from nothing (simulator of Pollux, OSDI'21)"

    def __init__(self, ordering: Ordering) -> None:
        self._ordering = ordering

    def place(self, view: ClusterState, replicas: Mapping[str, int], now: float) -> Placement:
        """See Placer.place."""
        before = view.plan.placement
        placement = {job_id: before[job_id] for job_id, n in replicas.items() if n and len(before.get(job_id, ())) == n}
        free = {name: view.nodes[name].usable_gpus for name in sorted(view.nodes)}
        for nodes in placement.values():
            for node in nodes:
                free[node] -= 1
        for job_id in self._ordering.order(view, replicas):
            if replicas[job_id] and job_id not in placement:
                placement[job_id] = _worst_fit(free, replicas[job_id])
        return placement


def _worst_fit(free: dict[str, Gpus], replicas: int) -> tuple[str, ...]:
    """Take `replicas` GPUs, of which there must be so many."""
    nodes: list[str] = []
    while len(nodes) < replicas:
        emptiest = max(free, key=free.__getitem__)
        taken = min(free[emptiest], replicas - len(nodes))
        assert taken > 0, f"{replicas} GPUs asked for, {len(nodes)} free"
        free[emptiest] -= taken
        nodes += [emptiest] * taken
    return tuple(nodes)
