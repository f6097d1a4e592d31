"""What the cluster shows: one frozen record per fact.

Rule: a released record is never edited in place; raise its `SCHEMA` and add an upcaster in codec.py.
"""

from collections.abc import Mapping
from typing import Final, Literal

from msgspec.structs import force_setattr, replace

from voda.domain.cells import GangPlacement, GangRequest
from voda.domain.job import MetricValue
from voda.domain.node import Node, with_known_labels
from voda.domain.reasons.failures import JobFailure, ObjectVoid, ProgramFailure
from voda.domain.reasons.nodes import NodeRefusal
from voda.domain.reasons.pods import PodGone
from voda.domain.reasons.stalls import StallReason
from voda.events.decisions import ShareFact
from voda.events.records import Data, JobFact


class _NodeSeen(Data, frozen=True, kw_only=True):
    MAKES_PLAN_DUE = True
    node: Node

    def __post_init__(self) -> None:
        # Thousands are decoded at once at a start.
        force_setattr(self, "node", with_known_labels(self.node))

    @property
    def stream(self) -> str:
        return f"node.{self.node.name}"


class NodeJoined(_NodeSeen, frozen=True, kw_only=True):
    TYPE = "node.joined"
    SCHEMA = 3


class NodeChanged(_NodeSeen, frozen=True, kw_only=True):
    TYPE = "node.changed"
    SCHEMA = 3


class NodeRoomChanged(Data, frozen=True, kw_only=True):
    """Pods of others came to a node or left it: what they leave of its resources has changed, and nothing else."""

    TYPE = "node.room_changed"
    MAKES_PLAN_DUE = True
    MAKES_CLUSTER_STALE = False
    name: str
    pool: str = "default"
    room: Mapping[str, int] | None
    """As in Node."""

    @property
    def stream(self) -> str:
        return f"node.{self.name}"


class NodeLeft(Data, frozen=True, kw_only=True):
    TYPE = "node.left"
    MAKES_PLAN_DUE = True
    name: str
    pool: str = "default"
    how: Literal["", "deleted", "no_pool", "unseen"] = ""
    """Its object was deleted, or belongs to no pool any more; unseen: it was gone when voda looked."""

    @property
    def stream(self) -> str:
        return f"node.{self.name}"


class _OfGangs(Data, frozen=True, kw_only=True):
    MAKES_CLUSTER_STALE = False
    pool: str

    @property
    def stream(self) -> str:
        return f"gangs.{self.pool}"


class GangPlaced(_OfGangs, frozen=True, kw_only=True):
    """A gang of pods that voda does not make has cells; again, where it loses or regains a guarantee for them."""

    TYPE = "gang.placed"
    MAKES_PLAN_DUE = True
    request: GangRequest
    placement: GangPlacement


class GangJoined(_OfGangs, frozen=True, kw_only=True):
    """A pod has its place in a gang; recorded before the pod is bound."""

    TYPE = "gang.joined"
    gang: str
    slot: int
    """Index in the gang's placement."""
    pod_uid: str
    pod: str
    """`namespace/name`."""


class GangLeft(_OfGangs, frozen=True, kw_only=True):
    """A pod is gone; with the last one of a gang, its cells are free."""

    TYPE = "gang.left"
    MAKES_PLAN_DUE = True
    gang: str
    pod_uid: str
    pod: str = ""
    reason: PodGone | None = None


class JobRegistered(JobFact, frozen=True, kw_only=True):
    """The cluster has an object for the job; only a cluster with objects, such as Kubernetes, records this."""

    TYPE = "job.registered"
    MAKES_CLUSTER_STALE = False
    uid: str
    """Of the object. Empty: the former object is gone, and voda will create another one."""
    kind: str = ""
    reason: ObjectVoid | None = None
    """Why voda replaces the former object, where its pods do not say so themselves."""


class WorkerRefused(JobFact, frozen=True, kw_only=True):
    """The node cannot take one more worker of the job, however many GPUs are free.

    The refusal ends with the same fact without a reason, with any change of the node, and with a new request for the
    job.
    """

    TYPE = "worker.refused"
    MAKES_PLAN_DUE = True
    MAKES_CLUSTER_STALE = False
    node: str
    reason: NodeRefusal | None = None
    """None: the node can take one again."""
    fits: int | None = None
    """Workers of the job that the node takes all the same; without a reason it is to be tried with so many. None: not
    known, as in older logs, and no new worker comes there; without a reason, nothing is refused any more.
    """


class WorkerGpuSick(JobFact, frozen=True, kw_only=True):
    """A GPU of a worker is not healthy any more; after `node_grace_s` the worker moves.

    It is well again by the same fact without a reason; a worker that exits leaves it.
    """

    TYPE = "worker.gpu_sick"
    MAKES_CLUSTER_STALE = False
    worker: int
    node: str
    gpu: str = ""
    reason: str = ""
    """Unhealthy, as a kubelet has it, GONE, CONTESTED or CONTESTED_AGAIN; empty: the GPU is well again."""
    other: str = ""
    """`namespace/name` of the pod that has a contested one as well."""


class JobStalled(JobFact, frozen=True, kw_only=True):
    """The job waits for something that no plan can give: an image, its operator, GPUs that others use.

    The wait ends with the same fact without a reason.
    """

    TYPE = "job.stalled"
    reason: StallReason | None = None
    """None: it continues."""
    at_work: int | None = None
    """Workers before the first one that is kept from its work, by index; None: not known, or their GPUs are not free.
    """
    since: float | None = None
    """When it was first seen; None: not known."""
    run_again: tuple[int, ...] | None = None
    """Replicas that were done and are to run again, as in a JobSet that restarts: they need their GPUs. None: not
    known, as in older logs; with a reason, all that were done may.
    """


class JobSilent(JobFact, frozen=True, kw_only=True):
    """The job has printed nothing for a while since it was started or resized. One machine only.

    That it prints again is told by the same fact without an instant; so does any change of its workers.
    """

    TYPE = "job.silent"
    MAKES_CLUSTER_STALE = False
    since: float | None = None
    """When it was, seconds since the epoch; None: it prints again."""
    workers_before: int = 0
    """Until then; 0: it was started."""


class WorkerStarted(JobFact, frozen=True, kw_only=True):
    """Workers hold their GPUs from now on."""

    TYPE = "worker.started"
    workers: Mapping[int, str]
    """index -> node."""


ExitCause = Literal["stopped", "migrated", "finished", "failed", "failed_for_good", "evicted", "node_lost"]
LASTING_CAUSES: Final[frozenset[ExitCause]] = frozenset({"finished", "failed_for_good"})
"""After these a replica whose ends last runs no more."""
RETRIED_CAUSES: Final[frozenset[ExitCause]] = frozenset({"failed", "evicted"})
"""After these one machine waits before it starts a program again."""


class WorkerExited(JobFact, frozen=True, kw_only=True):
    """Workers hold no GPU any more."""

    TYPE = "worker.exited"
    workers: tuple[int, ...]
    cause: ExitCause = "stopped"
    exit_code: int | None = None
    is_over_limit: bool = False
    """Whether a kubelet ended them as they went beyond their own limits, such as that of local storage."""
    retry_at: float | None = None
    """When the job may have workers again, if it has none left, seconds since the epoch; None: at once."""


class ProgramFailed(JobFact, frozen=True, kw_only=True):
    """The program of a replica failed, and is started again: by voda, by its operator, or inside it by its launcher."""

    TYPE = "program.failed"
    MAKES_CLUSTER_STALE = False
    replica: str
    reason: ProgramFailure
    """How it ended, with the last line that it printed."""
    next_try: int = 0
    """Number of the try that follows; 0: not known, as in older logs."""
    most_tries: int = 0
    """After so many failed tries the job has failed."""
    next_try_at: float | None = None
    """When it follows, if GPUs are free then; seconds since the epoch."""
    times_inside: int = 0
    """Of failures inside a replica that goes on; 0: the replica ended."""


class JobProgressed(JobFact, frozen=True, kw_only=True):
    """A job reports epochs that it finished, or its share of one."""

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
    """Throughput of the last epoch, where the job measures it: comparable even if epochs differ in work; within an
    epoch, and of one that no `epoch_s` belongs to, since the last change of the workers."""
    epoch_samples: float | None = None
    """Samples of the last epoch, or of the one that is not over, as far as the job knows them."""
    metrics: Mapping[str, MetricValue] = {}


class JobCompleted(JobFact, frozen=True, kw_only=True):
    TYPE = "job.completed"
    MAKES_PLAN_DUE = True


class JobFailed(JobFact, frozen=True, kw_only=True):
    """The job failed for good."""

    TYPE = "job.failed"
    MAKES_PLAN_DUE = True
    reason: JobFailure | None = None
    """None: not known."""


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
    """An action that the plan needs failed on the cluster, which tries again."""

    TYPE = "action.failed"
    MAKES_CLUSTER_STALE = False
    action: str
    error: str
    attempt: int = 1
    retry_at: float | None = None
    """When it is tried again, at the latest, seconds since the epoch; None: with the next change."""


NodeFact = NodeJoined | NodeChanged | NodeRoomChanged | NodeLeft
JobEnd = JobCompleted | JobFailed | JobCanceled
GangFact = GangPlaced | GangJoined | GangLeft
Observation = (
    NodeFact
    | ShareFact
    | GangFact
    | JobRegistered
    | WorkerRefused
    | WorkerGpuSick
    | JobSilent
    | JobStalled
    | WorkerStarted
    | WorkerExited
    | ProgramFailed
    | JobProgressed
    | JobEnd
    | JobFolderDeleted
    | ActionFailed
)


def changed_node(before: Node, now: Node) -> NodeChanged | NodeRoomChanged:
    """Return what says that a node is another than before."""
    if replace(before, room=now.room) == now:
        return NodeRoomChanged(name=now.name, pool=now.pool, room=now.room)
    return NodeChanged(node=now)
