"""What voda decides: one frozen record per fact.

Rule: a released record is never edited in place; raise its `SCHEMA` and add an upcaster in codec.py.
"""

from collections.abc import Mapping
from typing import Final

from voda.domain.gpus import ContainerGpus, GpuRequest
from voda.domain.reasons.outcomes import QueueReason, Reason
from voda.domain.reasons.pods import ShareLoss, Withdrawal
from voda.domain.reasons.stalls import StuckCause
from voda.events.records import AccountFact, Data

LEADERSHIP: Final = "leadership"
"""Stream on which replicas claim epochs."""


class LeaderElected(Data, frozen=True, kw_only=True):
    """First record of a leadership: from here on the store refuses decisions of lower epochs."""

    TYPE = "leader.elected"
    MAKES_PLAN_DUE = True
    pool: str
    """Empty: of all pools; a replica claims its epoch by it, before it leads them one by one."""
    leader: str
    cluster: str = ""
    """Of a claim: which cluster the replica leads, by an id that no other has; empty where that is not known."""

    @property
    def stream(self) -> str:
        return f"decisions.{self.pool}" if self.pool else LEADERSHIP


class PlanAdopted(Data, frozen=True, kw_only=True):
    """The plan changes in these jobs; all others keep what they had (see docs/adr/0003)."""

    TYPE = "plan.adopted"
    SCHEMA = 4
    pool: str
    number: int
    based_on: int
    """Position up to which the log was read. The time of decision is the event's `recorded_at`."""
    policy: str
    placer: str
    cause: str
    placed: Mapping[str, tuple[str, ...]] = {}
    """job id -> nodes by worker index, where they differ from the plan before."""
    released: tuple[str, ...] = ()
    """Jobs that had workers in the plan before and have none now."""
    reasons: Mapping[str, Reason] = {}
    """For every job placed or released, and for every job decided on for the first time."""
    guaranteed: Mapping[str, tuple[str, ...]] = {}
    """job id -> quota cell of each guaranteed worker (voda.domain.plan.Quotas), where they differ from the plan before;
    empty: none is guaranteed any longer."""
    devices: Mapping[str, tuple[tuple[int, ...], ...]] = {}
    """job id -> devices of each worker on its node, where they differ from the plan before."""
    only_starts: bool = False
    """Whether it starts jobs on free GPUs, and considers no others."""
    launchers: Mapping[str, str] = {}
    """job id -> node of its launcher, where that asks for GPUs and differs from the plan before; empty: it has none."""

    @property
    def stream(self) -> str:
        return f"decisions.{self.pool}"


class JobQueueLevelChanged(Data, frozen=True, kw_only=True):
    """A policy moved the job to another of its queues (Tiresias: 0 = high, 1 = low)."""

    TYPE = "job.queue_level_changed"
    MAKES_PLAN_DUE = True
    pool: str
    job_id: str
    queue_level: int
    reason: QueueReason | None = None
    based_on: int = 0
    """Position up to which the log was read. The time of decision is the event's `recorded_at`."""

    @property
    def stream(self) -> str:
        return f"decisions.{self.pool}"


class JobBackedOff(Data, frozen=True, kw_only=True):
    """The job did not use the GPUs planned for it within `start_timeout_s`: for a while plans serve others first.

    It ends before its time once the job is halted or resumed, or asks for another priority, other nodes, GPUs or
    sizes.
    """

    TYPE = "job.backed_off"
    MAKES_PLAN_DUE = True
    MAKES_CLUSTER_STALE = False
    pool: str
    job_id: str
    at_work: int
    """Workers before the first one that is not at work, by index."""
    planned: int
    since: float
    """From when on its GPUs were of no use to it."""
    reason: StuckCause
    failures: int = 1
    """In a row."""
    retry_after_s: float
    """From the time of this event on."""

    @property
    def stream(self) -> str:
        return f"decisions.{self.pool}"


class ShareAssigned(AccountFact, frozen=True, kw_only=True):
    """A pod has GPUs of a node, or shares of them; recorded before the pod is bound.

    Void where a GPU has not so much left, or the pod has its GPUs already.
    """

    TYPE = "share.assigned"
    pod: str
    """`namespace/name`."""
    containers: Mapping[str, ContainerGpus]
    """By name; those without GPUs are left out."""


class ShareReleased(AccountFact, frozen=True, kw_only=True):
    """A pod has none of the node's GPUs any more."""

    TYPE = "share.released"
    pod: str = ""
    reason: ShareLoss | None = None


class ShareRequested(AccountFact, frozen=True, kw_only=True):
    """A pod waits for GPUs of a node that jobs have and can spare; the request ends once it gets GPUs anywhere.

    Void where the pod has GPUs already, or has requested others.
    """

    TYPE = "share.requested"
    pod: str
    """`namespace/name`."""
    containers: Mapping[str, GpuRequest]
    """By name; those without GPUs are left out."""


class ShareRequestWithdrawn(AccountFact, frozen=True, kw_only=True):
    """A pod does not wait for the node's GPUs any more, and has got none."""

    TYPE = "share.request_withdrawn"
    pod: str = ""
    reason: Withdrawal | None = None


ShareFact = ShareAssigned | ShareReleased | ShareRequested | ShareRequestWithdrawn
Decision = LeaderElected | PlanAdopted | JobQueueLevelChanged | JobBackedOff | ShareFact
