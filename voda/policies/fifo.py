"""FIFO: first submitted, first served, each as requested.

A later small job may pass a large one that does not fit. The ancestor gives the minimum; a rigid policy owes
the replicas that were requested.
"""

from typing import ClassVar

from voda.domain.plan import Allocation
from voda.domain.state import ClusterState
from voda.policies.toolkit.allocation import as_requested, explained, give_first, requested
from voda.policies.toolkit.order import by_submission


class Fifo:
    name: ClassVar[str] = "fifo"
    title: ClassVar[str] = "First submitted, first served, each as requested"
    gives_as_requested: ClassVar[bool] = True
    paper: ClassVar[str] = (
        "Hsieh and Lee, Voda: A GPU Scheduling Platform for Elastic Deep Learning in Kubernetes Clusters, IC2E 2023"
    )

    def allocate(self, view: ClusterState, now: float) -> Allocation:
        jobs = by_submission(view)
        shares = give_first(jobs, view.capacity_gpus, requested)
        return explained(view, shares, why=as_requested, size=requested)
