"""How long a job would take alone, from its true profile: the yardstick of finish-time fairness.

Rule: one start is charged and nothing else; workers sit on as few nodes as the cluster allows.
"""

import functools
import math
from collections.abc import Sequence

from voda.domain.node import Node
from voda.simulator.fairness import IdealTime
from voda.simulator.profile import Arrival, Workload


def ideal_times(workload: Workload) -> IdealTime:
    """Return the function (job id, GPUs) -> seconds from start to end; it remembers what it was asked.

    Between two whole numbers of replicas the job runs part of the time at either, so that its speed lies
    between theirs in proportion.
    """
    arrivals = {arrival.spec.job_id: arrival for arrival in workload.arrivals}

    @functools.cache
    def whole_s(job_id: str, replicas: int) -> float:
        return _alone_s(arrivals[job_id], replicas, workload.nodes)

    def ideal_s(job_id: str, gpus: float) -> float:
        replicas = gpus / arrivals[job_id].spec.gpus_per_replica
        low = max(1, math.floor(replicas))
        share = replicas - low
        if share <= 0:
            return whole_s(job_id, low)
        return 1.0 / ((1.0 - share) / whole_s(job_id, low) + share / whole_s(job_id, low + 1))

    return ideal_s


def packed(replicas: int, gpus_per_replica: int, nodes: Sequence[Node]) -> tuple[int, ...]:
    """Return replicas per node when the largest nodes are filled first; what finds no room shares the last one."""
    per_node: list[int] = []
    left = replicas
    for gpus in sorted((node.usable_gpus for node in nodes), reverse=True):
        here = min(left, gpus // gpus_per_replica)
        if here == 0:
            break
        per_node.append(here)
        left -= here
    if left:
        per_node[-1:] = [sum(per_node[-1:]) + left]
    return tuple(per_node)


def _alone_s(arrival: Arrival, replicas: int, nodes: Sequence[Node]) -> float:
    per_node = packed(replicas, arrival.spec.gpus_per_replica, nodes)
    profile = arrival.profile
    return profile.costs.start_s + math.fsum(profile.epoch_s(epoch, per_node) for epoch in range(profile.epochs))
