"""Tiresias: two queues by attained GPU service, inside each by first start; each job as requested.

Gu et al., NSDI 2019: the discretised two-dimensional least-attained-service rule, which needs no estimates.
"""

from typing import ClassVar

from voda.domain.plan import Allocation
from voda.domain.state import ClusterState
from voda.policies.toolkit.allocation import as_requested, explained, give_first, requested
from voda.policies.toolkit.levels import TwoQueues
from voda.policies.toolkit.order import by_first_start, by_queue, by_submission


class Tiresias(TwoQueues):
    name: ClassVar[str] = "tiresias"
    title: ClassVar[str] = "Least GPU service first in two queues, each as requested"
    gives_as_requested: ClassVar[bool] = True
    paper: ClassVar[str] = "Gu et al., Tiresias: A GPU Cluster Manager for Distributed Deep Learning, NSDI 2019"

    def allocate(self, view: ClusterState, now: float) -> Allocation:
        jobs = by_queue(by_first_start(by_submission(view)))
        shares = give_first(jobs, view.capacity_gpus, requested)
        return explained(view, shares, why=as_requested, size=requested)
