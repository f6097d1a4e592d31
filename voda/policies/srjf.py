"""SRJF, shortest remaining job first: least time left on the requested replicas first, each as requested.

The preemptive rule of Schrage (1968), as Voda applies it to training jobs (Hsieh and Lee, IC2E 2023).
"""

from typing import ClassVar

from voda.domain.plan import Allocation
from voda.domain.state import ClusterState
from voda.policies.toolkit.allocation import as_requested, explained, give_first, requested
from voda.policies.toolkit.order import by_time_left_as_requested


class Srjf:
    name: ClassVar[str] = "srjf"
    title: ClassVar[str] = "Least time left first, each as requested"
    gives_as_requested: ClassVar[bool] = True
    paper: ClassVar[str] = (
        "Schrage, A Proof of the Optimality of the Shortest Remaining Processing Time Discipline, Oper. Res. 1968"
    )

    def allocate(self, view: ClusterState, now: float) -> Allocation:
        jobs = by_time_left_as_requested(view)
        shares = give_first(jobs, view.capacity_gpus, requested)
        return explained(view, shares, why=as_requested, size=requested)
