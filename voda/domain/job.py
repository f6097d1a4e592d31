"""Jobs: what a user asks for (`JobSpec`), what became of it (`Job`), and the phases."""

import enum
import re
from collections.abc import Mapping
from typing import Any, Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from voda.domain.dependency import Dependency
from voda.domain.errors import InvalidInput
from voda.domain.gpus import NO_GPUS, GpuRequest, Gpus
from voda.domain.job_array import ArrayTask
from voda.domain.node import Node, PodNeeds
from voda.domain.reasons.nodes import NodeRefusal
from voda.domain.reasons.policies import AtMaximum
from voda.domain.reasons.requests import Requested, Unmet
from voda.domain.reasons.stalls import StallReason, StuckCause
from voda.domain.sizes import JobSizes

# A job id is one token of a stream name (and of a NATS subject later), hence no dots or blanks.
_JOB_ID = re.compile(r"[a-z0-9]([a-z0-9_-]{0,126}[a-z0-9])?")
MOST_REPLICAS = 4_096
"""Of one job. Estimates hold a figure for every size a job can have, so a size without bounds would fill the memory."""
PREEMPTED = "preempted"
HALTED = "halted"
DRAINED = "drained"
REFUSED = "refused"
FINISHED = "finished"
RIGHT_AFTER_S = 60.0
"""A program that fails so soon after a resize fails by it, unless it has reported since."""
_SUFFIX = re.compile(r"-(\d[\dt-]*|[0-9a-f]{8,})$")

MetricValue = float | Literal["nan", "inf", "-inf"]
"""Of a metric that a program reports: JSON has no other way to write what is no finite number."""


class Phase(enum.StrEnum):
    """Where a job stands. A job that lost all its workers is Waiting again."""

    SUBMITTED = "Submitted"
    WAITING = "Waiting"
    RUNNING = "Running"
    COMPLETED = "Completed"
    FAILED = "Failed"
    CANCELED = "Canceled"


class JobSpec(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a user asks for. min_replicas == max_replicas means rigid; epochs == 0 means unknown."""

    job_id: str
    pool: str = "default"
    pools: Mapping[str, str] = {}
    """Pool that it may start in -> its virtual cluster there; once a plan has placed it, it stays in `pool`.
    Empty: it may start in `pool` only.
    """
    min_replicas: int = 1
    max_replicas: int = 1
    requested_replicas: int = 0
    sizes: JobSizes | None = None
    """At which it runs, the bounds among them; None: at each from min_replicas to max_replicas."""
    gpus_per_replica: Gpus = Gpus(1)
    launcher_gpus: Gpus = NO_GPUS
    """Of the launcher, on one node and no more than a worker's: plans have a place for it beside the workers."""
    share: GpuRequest | None = None
    """The part of one GPU that its one worker gets, which then has no whole GPU; None: it gets whole ones."""
    needs: PodNeeds | None = None
    """What a worker asks of its node besides GPUs; None: nothing."""
    epochs: int = 0
    is_restartable: bool = True
    """False: its program is never begun a second time, so that once it has begun nothing stops it but its owner."""
    priority: int = 0
    """Higher goes first, whatever the policy; in a pool with virtual clusters, inside of the job's own."""
    virtual_cluster: str = ""
    """Whose guarantee it is under; empty: the pool had none when it was submitted, and it is in `default` now."""
    pinned_cell: str = ""
    """Id of the pinned cell of its virtual cluster that it runs in, and nowhere else; empty: it may run anywhere."""
    category: str = ""
    name: str = ""
    namespace: str = "default"
    user: str = ""
    kind: str = "MPIJob"
    labels: Mapping[str, str] = {}
    """By which users choose jobs (voda.domain.labels)."""
    manifest: Mapping[str, Any] | None = None
    after: tuple[Dependency, ...] = ()
    """Jobs and arrays that have to end first."""
    array: ArrayTask | None = None
    """Its place in an array of jobs, if it is in one."""
    rerun_task: Mapping[str, str] = {}
    """The variables of the array's task that it runs again: it is an ordinary job, in no array itself."""
    continues: str = ""
    """Id of the ended job in whose folder it goes on, on one machine; empty: its folder is its own."""

    @property
    def requested(self) -> int:
        return self.requested_replicas or self.min_replicas

    @property
    def needs_gpus(self) -> bool:
        """Whether its workers get GPUs, or a part of one; others start whatever GPUs are free."""
        return bool(self.gpus_per_replica or self.share)

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables by which the job's processes know which job they are."""
        own = {"VODA_JOB_ID": self.job_id, "VODA_JOB_NAME": self.name or self.job_id}
        return {**own, **self.task_environment}

    @property
    def task_environment(self) -> Mapping[str, str]:
        """The variables of its task of an array, or of the task that it runs again."""
        return self.array.environment if self.array is not None else self.rerun_task

    @property
    def is_elastic(self) -> bool:
        return self.min_replicas < self.max_replicas

    def size_within(self, most: int) -> int:
        """Return the largest size at which it runs of at most so many workers; 0: there is none."""
        size = min(most, self.max_replicas)
        if self.sizes is not None:
            size = self.sizes.floor(size)
        return size if size >= self.min_replicas else 0

    def size_above(self, size: int) -> int:
        """Return the least size at which it runs with more workers than that; 0: there is none."""
        if size < self.min_replicas:
            return self.min_replicas
        if size >= self.max_replicas:
            return 0
        return size + 1 if self.sizes is None else self.sizes.above(size)

    @property
    def asked_of_nodes(self) -> tuple[object, ...]:
        """What the answer of a node to one of its workers depends on."""
        return self.pool, self.virtual_cluster, self.needs, self.gpus_per_replica, self.launcher_gpus

    @property
    def is_guaranteed(self) -> bool:
        """Whether it has a part in its virtual cluster's guarantee; a job of negative priority is opportunistic."""
        return self.priority >= 0

    @property
    def as_planned(self) -> "JobSpec":
        """Where nothing may resize the job once it has begun: it asks for as many workers as were requested."""
        if self.is_restartable or not self.is_elastic:
            return self
        return replace(self, min_replicas=self.requested, max_replicas=self.requested)

    @property
    def history_category(self) -> str:
        """The group whose measured epochs a new job starts from."""
        return self.category or category_of(self.name or self.job_id)


class Obstacle(Struct, frozen=True):
    """What keeps the workers of a job from their work, by the word of the cluster."""

    reason: StallReason
    since: float
    at_work: int
    """Workers before the first one that it concerns, by index."""


class StartBackoff(Struct, frozen=True, kw_only=True):
    """The job did not use the GPUs planned for it in time: until `retry_at` others go first."""

    reason: StuckCause
    at_work: int
    """Workers before the first one that was not at work, by index."""
    planned: int
    failures: int
    """In a row."""
    retry_at: float
    retry_after_s: float


GONE: Final = "gone"
"""Of a GPU that its node's ResourceSlices have no more."""
CONTESTED: Final = "contested"
"""Of a GPU that another pod was given as well."""
CONTESTED_AGAIN: Final = "contested again"
"""The same, after its worker has moved in vain: kube-scheduler takes it for free since."""


class SickGpu(Struct, frozen=True):
    """A GPU of a worker that is not healthy any more."""

    gpu: str
    reason: str
    """As in the fact of it."""
    since: float
    other: str = ""
    """As in the fact, too."""


class VainDisplacement(Struct, frozen=True, kw_only=True):
    """Others left GPUs for the job, and a node refused it then: no plan takes any for it until it may be taken."""

    node: str
    why: NodeRefusal
    openings: int
    """Of nodes of its pool until then (`ClusterState.opened`)."""
    refused: Mapping[str, Node]
    """Nodes that refused it -> as they were then, by the word of the cluster."""
    least: int
    """Workers that it needed then."""


class Job(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A live job as the log shows it.

    The totals (`running_s`, `waiting_s`, `attained_service_gpu_s`, `served_since_start_gpu_s`) hold up to
    `counted_at`, the instant the number of replicas last changed; the `..._by(now)` methods carry them on.
    """

    spec: JobSpec
    submitted_at: float
    counted_at: float
    phase: Phase = Phase.SUBMITTED
    has_anchor: bool = False
    """Whether all its workers begin anew when worker 0 does, as its kind has it."""
    workers: Mapping[int, str] = {}
    done: tuple[int, ...] = ()
    """Replicas that succeeded for good, of a kind whose replicas do so one by one: none of them runs again."""
    done_of: int = 0
    """Of how many replicas; 0 = none was done. The job keeps this size."""
    first_started_at: float | None = None
    last_started_at: float | None = None
    last_halted_at: float | None = None
    running_s: float = 0.0
    waiting_s: float = 0.0
    attained_service_gpu_s: float = 0.0
    served_since_start_gpu_s: float = 0.0
    last_run_s: float = 0.0
    queue_level: int = 0
    queued_since: float | None = None
    """Instant it was moved to its queue; None while it is where it began."""
    epochs_done: float = 0.0
    restarts: int = 0
    """Starts after the first one."""
    failures: int = 0
    evictions_for_limits: int = 0
    """Times that a worker failed as its kubelet found it beyond its own limits, since its object was made first."""
    maximum: AtMaximum | None = None
    """Who set its maximum since it was submitted; None: nobody."""
    is_canceling: bool = False
    is_killed: bool = False
    """Whether it is canceled without time for a checkpoint."""
    halt: Requested | None = None
    """Why it shall have no workers until it is resumed; None: it is not halted."""
    interruption: str = ""
    """Why its last workers left, of a job that ran and has none: `preempted` by a plan, `drained` by a plan after
    the drain of a node, `moved` by a plan that frees its GPU, `refused` by a plan as nodes take too few of them,
    `halted` by a user, or what happened to them (`failed`, `evicted`, `node_lost`, ...); empty while it has workers, or
    never had any, and where a plan only changes them."""
    loss: str = ""
    """Of a job with workers: `halted` once that was requested, `drained` once a plan after a drain takes them, `moved`
    once a plan halts it to free its GPU, `refused` once a plan gives it none as nodes refuse it, else the first cause
    since its last start for which it lost one, unless a plan took it; it becomes the interruption once all have left.
    """
    uid: str = ""
    """Of its object in the cluster; empty while none is known, and where the cluster keeps none."""
    waits_for: tuple[Dependency, ...] = ()
    """Those of `spec.after` that are not met yet: until then no plan gives it workers."""
    unsatisfiable: Unmet | None = None
    """Why one of them can no longer be met: then the leader cancels the job. None: all can."""
    refusals: Mapping[str, NodeRefusal] = {}
    """Node -> why it cannot take one more worker of the job; without those that were lifted."""
    fits: Mapping[str, int] = {}
    """Node that refuses it -> workers of it that have room there all the same; absent: only those at work may stay."""
    has_displaced: bool = False
    """Whether workers of others leave nodes to which a plan brings workers of it, and these are not all at work yet."""
    displaced_in_vain: VainDisplacement | None = None
    """Since its workers asked for what they ask for, and it for no fewer; of no effect once a node has opened that may
    take it."""
    sick_gpus: Mapping[int, SickGpu] = {}
    """Worker -> its GPU, of those with a sick one."""
    last_error: str = ""
    """Of the last action on it that failed since a worker of it started."""
    obstacle: Obstacle | None = None
    backoff: StartBackoff | None = None
    whole_size: int = 0
    """Workers when all that were planned were there last; 0: they never were."""
    ran_size: int = 0
    """The last size at which it ran for more than a moment; 0: none."""
    avoided_sizes: Mapping[int, float] = {}
    """Sizes at which its program failed right after a resize -> until when no plan gives it so many workers."""
    retry_at: float = 0.0
    """When its program may be started again after its last failure, seconds since the epoch; until then no plan gives
    workers to the job if it has none."""

    @property
    def is_special(self) -> bool:
        """Whether a rule of plans is about it that is about few jobs: because of its request, or of what befell it."""
        spec = self.spec
        return bool(
            self.is_canceling
            or self.halt
            or self.waits_for
            or self.retry_at
            or self.done_of
            or self.backoff
            or self.displaced_in_vain
            or self.refusals
            or self.sick_gpus
            or spec.array
            or spec.share
            or spec.launcher_gpus
            or not (spec.is_restartable and spec.gpus_per_replica)
        )

    @property
    def replicas(self) -> int:
        """Workers observed, not desired."""
        return len(self.workers)

    def is_refused_by(self, node: str, workers: int) -> bool:
        """Return whether so many workers of it, new ones among them, are more than a node is known to take."""
        return node in self.refusals and workers > self.fits.get(node, 0)

    def in_vain_for(self, spec: JobSpec) -> VainDisplacement | None:
        """Return what was in vain, where it would be for another request of the job too."""
        vain = self.displaced_in_vain
        is_same = spec.asked_of_nodes == self.spec.asked_of_nodes
        return vain if vain is not None and is_same and spec.min_replicas >= vain.least else None

    @property
    def has_lost_run(self) -> bool:
        """Whether its program has begun, does not run as it began, and is not to begin a second time: it has failed."""
        if self.spec.is_restartable or self.first_started_at is None:
            return False
        return bool(self.loss) if self.workers else self.interruption != FINISHED

    @property
    def is_fixed(self) -> bool:
        """Whether it keeps its workers as they are until it ends: they were begun, and are not to begin again."""
        return not self.spec.is_restartable and self.first_started_at is not None and not self.has_lost_run

    @property
    def is_halted(self) -> bool:
        """Whether no plan gives it workers until it is resumed."""
        return self.halt is not None

    @property
    def is_preempted(self) -> bool:
        """Whether it waits because a plan gave its GPUs to others."""
        return self.phase is Phase.WAITING and self.interruption == PREEMPTED and not self.is_halted

    @property
    def gpus(self) -> Gpus:
        return len(self.workers) * self.spec.gpus_per_replica

    def service_by(self, now: float) -> float:
        return self.attained_service_gpu_s + self.gpus * (now - self.counted_at)

    def service_since_start_by(self, now: float) -> float:
        return self.served_since_start_gpu_s + self.gpus * (now - self.counted_at)

    def waiting_by(self, now: float) -> float:
        return self.waiting_s + (0.0 if self.workers else now - self.counted_at)

    def running_by(self, now: float) -> float:
        return self.running_s + (now - self.counted_at if self.workers else 0.0)


def category_of(name: str) -> str:
    """Return the submitted name without its running number, timestamp or hash suffix."""
    while (stripped := _SUFFIX.sub("", name)) != name:
        name = stripped
    return name


def validated(spec: JobSpec) -> JobSpec:
    """Return the spec unchanged, or raise InvalidInput naming the first field that is wrong."""
    if not _JOB_ID.fullmatch(spec.job_id):
        raise InvalidInput(
            f"job {spec.job_id[:80]!r}: expected a name of 1 to 128 of a-z, 0-9, '-' and '_', which begins and"
            " ends with a letter or digit"
        )
    least = {"min_replicas": 1, "gpus_per_replica": 0, "max_replicas": spec.min_replicas, "epochs": 0}
    for field, bound in least.items():
        if (value := getattr(spec, field)) < bound:
            raise InvalidInput(f"job {spec.job_id}: {field} is {value}, expected {bound} or more")
    if spec.max_replicas > MOST_REPLICAS:
        raise InvalidInput(f"job {spec.job_id}: max_replicas is {spec.max_replicas}, expected {MOST_REPLICAS} or less")
    if spec.share is not None and (not spec.share.is_share or spec.max_replicas > 1 or spec.gpus_per_replica):
        raise InvalidInput(f"job {spec.job_id}: a part of a GPU is for one worker without whole GPUs")
    if not spec.min_replicas <= spec.requested <= spec.max_replicas:
        raise InvalidInput(
            f"job {spec.job_id}: requested_replicas is {spec.requested}, expected"
            f" {spec.min_replicas} (min) to {spec.max_replicas} (max)"
        )
    for field in ("min_replicas", "max_replicas", "requested"):
        if spec.sizes is not None and (value := getattr(spec, field)) not in spec.sizes:
            raise InvalidInput(f"job {spec.job_id}: {field} is {value}, expected one of its sizes, {spec.sizes}")
    return spec
