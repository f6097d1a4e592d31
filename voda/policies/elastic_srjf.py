"""Elastic-SRJF: the minimum to each, least time left first, then round robin what is left in the same order.

Hsieh and Lee, IC2E 2023. The ancestor hands out above the maximum when min == max; here no job passes it.
"""

from typing import ClassVar

from voda.domain.plan import Allocation
from voda.domain.state import ClusterState
from voda.policies.toolkit.allocation import explained, give_first, least, sharing, spread
from voda.policies.toolkit.order import by_time_left


class ElasticSrjf:
    name: ClassVar[str] = "elastic-srjf"
    title: ClassVar[str] = "The minimum to each by time left, the rest round robin"
    paper: ClassVar[str] = (
        "Hsieh and Lee, Voda: A GPU Scheduling Platform for Elastic Deep Learning in Kubernetes Clusters, IC2E 2023"
    )

    def allocate(self, view: ClusterState, now: float) -> Allocation:
        jobs = by_time_left(view)
        shares = give_first(jobs, view.capacity_gpus, least)
        spread(jobs, shares)
        return explained(view, shares, why=sharing(view, shares, "time_left"))
