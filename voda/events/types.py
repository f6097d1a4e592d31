"""One frozen record per fact. `TYPE` is a stable word of the log, never a class path.

Rule: a released record is never edited in place; raise its `SCHEMA` and add an upcaster in codec.py.
"""

from collections.abc import Mapping
from typing import ClassVar, Final, Literal

from msgspec import Struct

from voda.domain.job import JobSpec
from voda.domain.node import Node
from voda.domain.state import ParameterValue


class Data(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Base of all facts. They are frozen and made of plain values, so that no garbage collector has to visit them."""

    TYPE: ClassVar[str]
    SCHEMA: ClassVar[int] = 1
    MAKES_PLAN_DUE: ClassVar[bool] = False
    """Whether the pool it concerns needs a new plan."""
    MAKES_CLUSTER_STALE: ClassVar[bool] = True
    """Whether the cluster may differ from the plan after it: the plan or what the cluster shows has changed."""

    @property
    def stream(self) -> str:
        """The stream this fact belongs to; `family.key`, so that it can be a NATS subject."""
        raise TypeError(f"{type(self).__name__} names no stream")


class JobFact(Data, frozen=True, kw_only=True):
    job_id: str

    @property
    def stream(self) -> str:
        return f"job.{self.job_id}"


class PoolFact(Data, frozen=True, kw_only=True):
    """A fact about one pool's settings."""

    pool: str

    @property
    def stream(self) -> str:
        return f"settings.{self.pool}"


# ---- intent: what people request


class JobSubmitted(Data, frozen=True, kw_only=True):
    TYPE = "job.submitted"
    SCHEMA = 4
    MAKES_PLAN_DUE = True
    MAKES_CLUSTER_STALE = False
    spec: JobSpec

    @property
    def stream(self) -> str:
        return f"job.{self.spec.job_id}"


class JobCancelRequested(JobFact, frozen=True, kw_only=True):
    TYPE = "job.cancel_requested"
    MAKES_PLAN_DUE = True
    reason: str = ""
    with_array: bool = False
    """Whether its array is canceled as a whole: no task joins it any more."""


class JobHaltRequested(JobFact, frozen=True, kw_only=True):
    """The job shall give its workers back; it stays in the queue, but no plan gives it any until it is resumed."""

    TYPE = "job.halt_requested"
    MAKES_PLAN_DUE = True
    MAKES_CLUSTER_STALE = False
    reason: str = ""
    """Such as `halted by ada`."""


class JobResumeRequested(JobFact, frozen=True, kw_only=True):
    """Plans may give a halted job workers again."""

    TYPE = "job.resume_requested"
    MAKES_PLAN_DUE = True
    MAKES_CLUSTER_STALE = False


class JobChanged(JobFact, frozen=True, kw_only=True):
    """A new request for a live job; None = as before."""

    TYPE = "job.changed"
    MAKES_PLAN_DUE = True
    min_replicas: int | None = None
    max_replicas: int | None = None
    requested_replicas: int | None = None
    priority: int | None = None
    epochs: int | None = None


class PolicyChanged(PoolFact, frozen=True, kw_only=True):
    """From here on the pool has another policy, placer or parameters; None = as before."""

    TYPE = "policy.changed"
    SCHEMA = 2
    MAKES_PLAN_DUE = True
    policy: str | None = None
    parameters: Mapping[str, Mapping[str, ParameterValue]] = {}
    """Policy -> parameter -> value; what is not named stays."""
    placer: str | None = None
    resize_cost_s: float | None = None
    span_penalty: float | None = None
    heeds_resize_cost: bool | None = None
    node_grace_s: float | None = None


class RatelimitChanged(PoolFact, frozen=True, kw_only=True):
    TYPE = "ratelimit.changed"
    MAKES_PLAN_DUE = True
    ratelimit_s: float


class RetentionChanged(PoolFact, frozen=True, kw_only=True):
    """From here on the pool keeps folders and output of its jobs otherwise; None = as before. One machine only."""

    TYPE = "retention.changed"
    MAKES_CLUSTER_STALE = False
    retention_s: float | None = None
    retention_bytes: int | None = None
    output_bytes: int | None = None


# ---- observation: what the cluster shows


class NodeJoined(Data, frozen=True, kw_only=True):
    TYPE = "node.joined"
    SCHEMA = 2
    MAKES_PLAN_DUE = True
    node: Node

    @property
    def stream(self) -> str:
        return f"node.{self.node.name}"


class NodeChanged(Data, frozen=True, kw_only=True):
    TYPE = "node.changed"
    SCHEMA = 2
    MAKES_PLAN_DUE = True
    node: Node

    @property
    def stream(self) -> str:
        return f"node.{self.node.name}"


class NodeLeft(Data, frozen=True, kw_only=True):
    TYPE = "node.left"
    MAKES_PLAN_DUE = True
    name: str
    pool: str = "default"
    reason: str = ""

    @property
    def stream(self) -> str:
        return f"node.{self.name}"


class JobRegistered(JobFact, frozen=True, kw_only=True):
    """The cluster has an object for the job; only a cluster with objects, such as Kubernetes, records this."""

    TYPE = "job.registered"
    MAKES_CLUSTER_STALE = False
    uid: str
    """Of the object. Empty: the former object is gone, and voda will create another one."""
    kind: str = ""


class WorkerRefused(JobFact, frozen=True, kw_only=True):
    """The node cannot take a worker of the job, however many GPUs are free.

    The refusal ends with the same fact without a reason, with any change of the node, and with a new request for the
    job.
    """

    TYPE = "worker.refused"
    MAKES_PLAN_DUE = True
    MAKES_CLUSTER_STALE = False
    node: str
    reason: str = ""
    """Such as `2 CPUs free, 4 needed`; empty: the node can take one again."""


class JobStalled(JobFact, frozen=True, kw_only=True):
    """The job waits for something that no plan can give: an image, its operator, GPUs that others use.

    The wait ends with the same fact without a reason.
    """

    TYPE = "job.stalled"
    reason: str = ""
    """Such as `worker 3 on gpu-1: container train cannot pull its image`; empty: it continues."""


class WorkerStarted(JobFact, frozen=True, kw_only=True):
    """Workers hold their GPUs from now on."""

    TYPE = "worker.started"
    workers: Mapping[int, str]
    """index -> node."""


ExitCause = Literal["stopped", "migrated", "finished", "failed", "evicted", "node_lost"]


class WorkerExited(JobFact, frozen=True, kw_only=True):
    """Workers hold no GPU any more."""

    TYPE = "worker.exited"
    workers: tuple[int, ...]
    cause: ExitCause = "stopped"
    exit_code: int | None = None


class ProgramFailed(JobFact, frozen=True, kw_only=True):
    """The program of a replica failed, and is started again. One machine only."""

    TYPE = "program.failed"
    MAKES_CLUSTER_STALE = False
    replica: str
    reason: str
    """How it ended, and the last line that it printed."""
    next_try: int = 0
    """Number of the try that follows; 0: not known, as in older logs."""
    most_tries: int = 0
    """After so many failed tries the job has failed."""
    next_try_at: float | None = None
    """When it follows, if GPUs are free then; seconds since the epoch."""


class JobProgressed(JobFact, frozen=True, kw_only=True):
    """One or more epochs were finished since the last report."""

    TYPE = "job.progressed"
    SCHEMA = 2
    MAKES_CLUSTER_STALE = False
    epochs_done: float
    """In all, since the job's beginning."""
    workers: int
    """Replicas at the end of the last epoch."""
    epoch_s: float | None = None
    """Seconds of the last epoch, as the job timed it; None: it timed none."""
    is_raw: bool = False
    """Whether `epoch_s` stands also where the workers changed during that epoch, so that readers of the log leave it
    out; False: the writer left it out."""
    step_s: float | None = None
    samples_per_s: float | None = None
    """Throughput of the last epoch, where the job measures it: comparable even if epochs differ in work."""
    metrics: Mapping[str, float] = {}


class JobCompleted(JobFact, frozen=True, kw_only=True):
    TYPE = "job.completed"
    MAKES_PLAN_DUE = True


class JobFailed(JobFact, frozen=True, kw_only=True):
    """The job failed for good."""

    TYPE = "job.failed"
    MAKES_PLAN_DUE = True
    reason: str


class JobCanceled(JobFact, frozen=True, kw_only=True):
    """A requested cancellation is complete: all workers have exited."""

    TYPE = "job.canceled"
    MAKES_PLAN_DUE = True


class JobFolderDeleted(JobFact, frozen=True, kw_only=True):
    """The folder of a job that has ended is gone: its output, and whatever else it left there."""

    TYPE = "job.folder_deleted"
    MAKES_CLUSTER_STALE = False
    by: str
    """Who or what asked for it: `retention (30 days)`, or a user."""
    size_bytes: int = 0


class ActionFailed(JobFact, frozen=True, kw_only=True):
    """An action that the plan needs failed on the cluster; the reconciler tries again."""

    TYPE = "action.failed"
    MAKES_CLUSTER_STALE = False
    action: str
    error: str
    attempt: int = 1


# ---- decision: what the leader decides


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
    SCHEMA = 2
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
    reasons: Mapping[str, str] = {}
    """For every job placed or released, and for every job decided on for the first time."""
    respects_priority: bool = True
    """Whether jobs of higher priority went first; not so before schema 2."""

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
    reason: str = ""
    based_on: int = 0
    """Position up to which the log was read. The time of decision is the event's `recorded_at`."""

    @property
    def stream(self) -> str:
        return f"decisions.{self.pool}"


Intent = (
    JobSubmitted
    | JobCancelRequested
    | JobHaltRequested
    | JobResumeRequested
    | JobChanged
    | PolicyChanged
    | RatelimitChanged
    | RetentionChanged
)
NodeFact = NodeJoined | NodeChanged | NodeLeft
JobEnd = JobCompleted | JobFailed | JobCanceled
Observation = (
    NodeFact
    | JobRegistered
    | WorkerRefused
    | JobStalled
    | WorkerStarted
    | WorkerExited
    | ProgramFailed
    | JobProgressed
    | JobEnd
    | JobFolderDeleted
    | ActionFailed
)
Decision = LeaderElected | PlanAdopted | JobQueueLevelChanged
AnyFact = Intent | Observation | Decision
