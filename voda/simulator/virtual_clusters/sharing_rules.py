"""Other rules of sharing, to compare with: quotas in numbers, and cells of which nothing is lent.

Rule: each stands in for a policy, which it asks; the rest of the planner is that of production.
"""

from collections.abc import Mapping
from typing import ClassVar

from msgspec.structs import replace

from voda.domain.gpus import Gpus
from voda.domain.job import Job
from voda.domain.plan import Allocation
from voda.domain.reasons.outcomes import Reason, Waits
from voda.domain.state import ClusterState
from voda.policies import Policy, Queueing, has_queues


class NumberQuotas:
    """Each virtual cluster has so many GPUs, wherever some are free; the policy shares them among its jobs.

    This is what cells replace: free GPUs within the number may lie on too many nodes for a job.
    """

    name: ClassVar[str] = "number-quotas"
    title: ClassVar[str] = "Each virtual cluster has its number of GPUs"
    paper: ClassVar[str] = "Zhao et al., HiveD: Sharing a GPU Cluster for Deep Learning with Guarantees, OSDI 2020"

    def __init__(self, policy: Policy, quotas: Mapping[str, int]) -> None:
        """`quotas`: virtual cluster -> GPUs."""
        self._policy = policy
        self._quotas = quotas

    def allocate(self, view: ClusterState, now: float) -> Allocation:
        """See Policy.allocate."""
        members: dict[str, dict[str, Job]] = {name: {} for name in self._quotas}
        for job_id, job in view.jobs.items():
            members[job.spec.virtual_cluster][job_id] = job
        replicas: dict[str, int] = {}
        reasons: dict[str, Reason] = {}
        for name, jobs in members.items():
            quota = min(Gpus(self._quotas[name]), view.capacity_gpus)
            answer = self._policy.allocate(replace(view, jobs=jobs, capacity_limit_gpus=quota), now)
            replicas |= answer.replicas
            reasons |= answer.reasons
        return Allocation(replicas=replicas, reasons=reasons)


class NothingLent:
    """A pool's policy that gives idle cells to nobody."""

    name: ClassVar[str] = "nothing-lent"
    title: ClassVar[str] = "Idle cells stay idle"
    paper: ClassVar[str] = NumberQuotas.paper

    def allocate(self, view: ClusterState, now: float) -> Allocation:
        """See Policy.allocate."""
        return Allocation(replicas=dict.fromkeys(view.jobs, 0), reasons=dict.fromkeys(view.jobs, Waits()))


class WithQueues:
    """A policy over another one that has queues: they are of single jobs, so no rule of sharing changes them."""

    name: ClassVar[str] = "with-queues"
    title: ClassVar[str] = "Another policy's queues"
    paper: ClassVar[str] = NumberQuotas.paper

    def __init__(self, policy: Policy, queues: Queueing) -> None:
        self.allocate = policy.allocate
        self.requeue = queues.requeue
        self.requeue_due_at = queues.requeue_due_at


def number_quotas(policy: Policy, quotas: Mapping[str, int]) -> Policy:
    """Return a policy that shares numbers of GPUs; `quotas`: virtual cluster -> GPUs."""
    return _with_queues_of(policy, NumberQuotas(policy, quotas))


def nothing_lent(policy: Policy) -> Policy:
    """Return a policy for the pool whose virtual clusters name `policy` themselves."""
    return _with_queues_of(policy, NothingLent())


def _with_queues_of(policy: Policy, rule: Policy) -> Policy:
    return WithQueues(rule, policy) if has_queues(policy) else rule
