"""Elastic-FIFO: the minimum to each in order of submission, then round robin what is left.

Hsieh and Lee, IC2E 2023.
"""

from typing import ClassVar

from voda.domain.plan import Allocation
from voda.domain.state import ClusterState
from voda.policies.toolkit.allocation import explained, give_first, least, most_for_all, sharing, spread
from voda.policies.toolkit.order import by_submission


class ElasticFifo:
    name: ClassVar[str] = "elastic-fifo"
    title: ClassVar[str] = "The minimum to each by submission, the rest round robin"
    paper: ClassVar[str] = (
        "Hsieh and Lee, Voda: A GPU Scheduling Platform for Elastic Deep Learning in Kubernetes Clusters, IC2E 2023"
    )

    def allocate(self, view: ClusterState, now: float) -> Allocation:
        if (shares := most_for_all(view)) is None:
            jobs = by_submission(view)
            shares = give_first(jobs, view.capacity_gpus, least)
            spread(jobs, shares)
        return explained(view, shares, why=sharing(view, shares, "submission"))
