"""Tiresias: two queues by attained GPU service, inside each by first start; each job as requested.

Gu et al., NSDI 2019: the discretised two-dimensional least-attained-service rule, which needs no estimates.
"""

from collections.abc import Mapping
from typing import ClassVar

from voda.domain.plan import Allocation
from voda.domain.state import ClusterState
from voda.policies.toolkit import levels
from voda.policies.toolkit.allocation import as_requested, explained, give_first, requested
from voda.policies.toolkit.order import by_first_start, by_queue, by_submission
from voda.policies.toolkit.parameters import parameters


class Tiresias:
    name: ClassVar[str] = "tiresias"
    title: ClassVar[str] = "Least GPU service first in two queues, each as requested"
    paper: ClassVar[str] = "Gu et al., Tiresias: A GPU Cluster Manager for Distributed Deep Learning, NSDI 2019"
    parameters: ClassVar[type[levels.QueueThresholds]] = levels.QueueThresholds

    def allocate(self, view: ClusterState, now: float) -> Allocation:
        jobs = by_queue(by_first_start(by_submission(view)))
        shares = give_first(jobs, view.capacity_gpus, requested)
        return explained(view, jobs, shares, why=as_requested, size=requested)

    def requeue(self, view: ClusterState, now: float) -> Mapping[str, tuple[int, str]]:
        return levels.moves(view, now, parameters(view, self.name, levels.QueueThresholds))

    def requeue_due_at(self, view: ClusterState, now: float) -> float:
        return levels.next_move_at(view, now, parameters(view, self.name, levels.QueueThresholds))
