"""How long a job would take alone on a given number of GPUs, at its profile's true speed.

Rule: pure; it is the yardstick of finish-time fairness and is never shown to a policy.
"""

from collections.abc import Sequence
from functools import lru_cache

from voda.simulator.profile import Arrival, Workload


class IdealTimes:
    """Answers (job id, GPUs) -> seconds for one workload; an IdealTime of fairness.py."""

    def __init__(self, workload: Workload) -> None:
        self._arrivals = {arrival.spec.job_id: arrival for arrival in workload.arrivals}
        self._node_gpus = tuple(sorted((node.gpus for node in workload.nodes), reverse=True))
        self._at_size = lru_cache(maxsize=None)(self._seconds)

    def __call__(self, job_id: str, gpus: float) -> float:
        """Return the seconds from start to end on `gpus` GPUs, its start's cost included.

        Between two whole sizes the speed is interpolated: a share of 2.5 replicas is 2 and 3, half the time each.
        """
        replicas = gpus / self._arrivals[job_id].spec.gpus_per_replica
        below = int(replicas)
        if below == replicas:
            return self._at_size(job_id, below)
        share = replicas - below
        slow = 1.0 / self._at_size(job_id, below) if below else 0.0
        return 1.0 / (slow + share * (1.0 / self._at_size(job_id, below + 1) - slow))

    def _seconds(self, job_id: str, replicas: int) -> float:
        arrival = self._arrivals[job_id]
        per_node = packed(replicas, arrival.spec.gpus_per_replica, self._node_gpus)
        return _alone_s(arrival, per_node)


def packed(replicas: int, gpus_per_replica: int, node_gpus: Sequence[int]) -> tuple[int, ...]:
    """Return replicas per node when as few nodes as possible are used; what fits nowhere is left out.

    Args:
        replicas: to be placed.
        gpus_per_replica: each needs on its node.
        node_gpus: sizes of the empty nodes, largest first.
    """
    per_node: list[int] = []
    for gpus in node_gpus:
        if replicas > 0 and (fitting := min(replicas, gpus // gpus_per_replica)) > 0:
            per_node.append(fitting)
            replicas -= fitting
    return tuple(per_node)


def _alone_s(arrival: Arrival, per_node: tuple[int, ...]) -> float:
    profile = arrival.profile
    if not per_node:
        return float("inf")
    return profile.costs.start_s + sum(profile.epoch_s(epoch, per_node) for epoch in range(profile.epochs))
