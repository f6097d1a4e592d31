"""The records that travel over HTTP, shared by the server, the command line and the OpenAPI document.

What is answered is called a `...View`, a page of them a `...List`; a body is its use case's own type. Rule: times are
RFC 3339 in UTC; spans end in `_s`; a field is never renamed within /api/v1, only added.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, TypeVar, overload

from msgspec import Meta, Struct

from voda.domain.dependency import Condition
from voda.domain.job import Phase
from voda.domain.state import ParameterValue

Instant = Annotated[datetime, Meta(tz=True)]


class View(Struct, frozen=True, kw_only=True):
    """Base of all that is answered."""


V = TypeVar("V", bound=View)


def view_of(view: type[V], source: object, **fields: Any) -> V:
    """Return a record with the given fields; the others are the attributes of `source` that have their names."""
    same = {name: getattr(source, name) for name in view.__struct_fields__ if name not in fields}
    return view(**same, **fields)


@overload
def instant(seconds: float) -> datetime: ...
@overload
def instant(seconds: None) -> None: ...
def instant(seconds: float | None) -> datetime | None:
    """Return seconds since the Unix epoch as a time in UTC; None stays None."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


class Problem(View, frozen=True, kw_only=True, omit_defaults=True):
    """RFC 9457, application/problem+json."""

    type: str = "about:blank"
    title: str
    status: int
    detail: Annotated[str, Meta(description="One sentence: what, which, expected, got, and what to do next.")]
    field: Annotated[
        str, Meta(description="Path of the field that is wrong, e.g. spec.mpiReplicaSpecs.Worker.replicas.")
    ] = ""
    job_id: str = ""


class ServiceView(View, frozen=True, kw_only=True):
    """Version and health of the server; GET /api/v1."""

    version: str
    pools: tuple[str, ...]
    position: int


class WarningView(View, frozen=True, kw_only=True):
    """A part of the manifest that this cluster does not honour."""

    field: str
    message: str


class WorkerView(View, frozen=True, kw_only=True):
    """One worker as observed."""

    index: int
    node: str


class ProgressView(View, frozen=True, kw_only=True):
    """How far a job is, as it reported itself."""

    epochs_done: float
    epochs: Annotated[int, Meta(description="0 = unknown.")]
    epoch_s: Annotated[float | None, Meta(description="Seconds of the last epoch it timed.")] = None
    metrics: Mapping[str, float] = {}
    reported_at: Instant | None = None


class ForecastView(View, frozen=True, kw_only=True):
    """What a simulation of the live state says, if nobody submits anything more."""

    position: Annotated[int | None, Meta(description="In the queue, 1 = next; None: it does not wait.")] = None
    starts_at: Annotated[Instant | None, Meta(description="Only while it waits.")] = None
    finishes_at: Instant | None = None
    made_at: Annotated[Instant | None, Meta(description="What has happened since is not in it.")] = None


class DependencyView(View, frozen=True, kw_only=True):
    """What a job comes after."""

    job_id: Annotated[str, Meta(description="Of the other job; of an array, its id.")]
    owner: Annotated[
        str,
        Meta(description="Of the other job; empty where only the submitter of the dependent job has one of that name."),
    ]
    array: Annotated[str, Meta(description="Name of the array, of which every task counts; empty: a single job.")]
    condition: Annotated[Condition, Meta(description="ok: it has to complete; any: it has to end, however.")]


class ArrayTaskView(View, frozen=True, kw_only=True):
    """The place of a job in its array."""

    array_id: Annotated[str, Meta(description="The job id of the task that was submitted first.")]
    name: Annotated[str, Meta(description="Of the array.")]
    index: Annotated[int, Meta(description="VODA_ARRAY_TASK_ID of its processes.")]
    indices: Annotated[str, Meta(description="Of all tasks, such as 0-99.")]
    count: Annotated[int, Meta(description="Tasks in all.")]
    at_once: Annotated[int, Meta(description="So many tasks may be at work at once; 0 = all.")]


class JobView(View, frozen=True, kw_only=True):
    """One job, live or ended."""

    job_id: str
    name: str
    namespace: str
    user: str
    pool: str
    kind: str
    labels: Mapping[str, str] = {}
    priority: Annotated[int, Meta(description="Jobs of higher priority go first, whatever the policy.")]
    phase: Phase
    is_preempted: Annotated[bool, Meta(description="Whether it waits because a plan gave its GPUs to others.")]
    interruption: Annotated[str, Meta(description="Why its last workers left: preempted, halted, failed, ...")] = ""
    is_canceling: bool
    is_halted: Annotated[bool, Meta(description="Whether it gets no workers until it is resumed.")] = False
    min_replicas: int
    max_replicas: int
    requested_replicas: int
    gpus_per_replica: int
    replicas: Annotated[int, Meta(description="Workers observed.")]
    gpus: Annotated[int, Meta(description="They hold: `gpu_s` goes on by so many a second after `counted_at`.")] = 0
    planned_replicas: Annotated[int, Meta(description="By the plan in force.")]
    reason: Annotated[str, Meta(description="Why it has what it has, or waits, or how it ended.")]
    workers: tuple[WorkerView, ...]
    submitted_at: Instant
    started_at: Annotated[Instant | None, Meta(description="First start.")]
    finished_at: Instant | None
    running_s: Annotated[float, Meta(description="Up to `counted_at`; it goes on while there are workers.")]
    waiting_s: Annotated[float, Meta(description="Up to `counted_at`; it goes on while there are none.")]
    counted_at: Instant
    gpu_s: Annotated[float, Meta(description="Attained service up to `counted_at`.")]
    restarts: Annotated[int, Meta(description="Starts after the first.")]
    resizes: Annotated[int, Meta(description="Changes from some workers to another number.")]
    failures: Annotated[int, Meta(description="Actions that the cluster refused or missed.")]
    program_failures: Annotated[
        int, Meta(description="Times that a replica's program failed and was started again; on one machine.")
    ] = 0
    last_failure: Annotated[str, Meta(description="How it failed the last time, with the last line it printed.")] = ""
    next_try: Annotated[int, Meta(description="Number of the try that follows, or is under way; 0: not known.")] = 0
    most_tries: Annotated[int, Meta(description="After so many failed tries it has failed; 0: not known.")] = 0
    next_try_at: Annotated[Instant | None, Meta(description="When the next try follows, at the earliest.")] = None
    progress: ProgressView
    forecast: ForecastView
    revision: Annotated[
        str, Meta(description="Changes with every event about the job; the ETag of this resource without its quotes.")
    ]
    after: Annotated[tuple[DependencyView, ...], Meta(description="Jobs and arrays that have to end first.")] = ()
    array: Annotated[ArrayTaskView | None, Meta(description="Where it is a task of an array.")] = None


class ArrayView(View, frozen=True, kw_only=True):
    """An array of jobs."""

    array_id: str
    name: str
    namespace: str
    user: str
    pool: str
    indices: str
    count: Annotated[int, Meta(description="Tasks in all.")]
    at_once: Annotated[int, Meta(description="So many tasks may be at work at once; 0 = all.")]
    states: Annotated[
        Mapping[str, int], Meta(description="Phase, Preempted or Canceling -> tasks; those long ended are left out.")
    ]
    replicas: Annotated[int, Meta(description="Workers observed, of all tasks.")]
    gpu_s: Annotated[float, Meta(description="Attained service of all tasks, up to their last changes.")]
    submitted_at: Instant
    finished_at: Annotated[Instant | None, Meta(description="End of the last task; None while one is live.")]


class JobList(View, frozen=True, kw_only=True):
    """A page of jobs."""

    items: tuple[JobView, ...]
    total: Annotated[int, Meta(description="Jobs that match, on all pages.")]
    next: Annotated[str | None, Meta(description="Continue token of the next page; None on the last one.")] = None


class SubmissionView(View, frozen=True, kw_only=True):
    """What became of a submit."""

    job: Annotated[JobView, Meta(description="Of an array, its lowest task.")]
    tasks: Annotated[int, Meta(description="Jobs that the manifest stands for: 1, or the tasks of an array.")] = 1
    is_dry_run: bool = False
    warnings: tuple[WarningView, ...] = ()


class DecisionView(View, frozen=True, kw_only=True):
    """One plan that was about the job."""

    position: int
    decided_at: Instant
    plan: int
    policy: str
    before: Annotated[tuple[str, ...], Meta(description="Nodes by worker index, in the plan before; empty = none.")]
    after: tuple[str, ...]
    reason: str
    cause: Annotated[str, Meta(description="Type of the event that made the decision due.")]
    cause_position: int | None = None


class ShortageView(View, frozen=True, kw_only=True):
    """What a waiting job needs (minimum, wish), and what the next plan would leave to nobody, in GPUs."""

    needs_gpus: int
    wishes_gpus: int
    capacity_gpus: int
    free_gpus: int
    largest_free_gpus: Annotated[int, Meta(description="Most of those on one node.")]
    jobs_served: Annotated[int, Meta(description="Among which the next plan shares the others.")]


class EndedJobView(View, frozen=True, kw_only=True):
    """What became of a job that ended. queueing_s + running_s = jct_s."""

    outcome: Literal["completed", "failed", "canceled"]
    submitted_at: Instant
    started_at: Annotated[Instant | None, Meta(description="First start; None: it never had a worker.")]
    finished_at: Instant
    jct_s: Annotated[float, Meta(description="Submission to end.")]
    queueing_s: float
    running_s: float
    gpu_s: float
    starts: int
    resizes: int
    migrations: int
    workers_moved: int
    was_spanning: bool


class ExplanationView(View, frozen=True, kw_only=True):
    """Why a job has what it has, or waits, at one moment; of a job that ended, its story."""

    job_id: str
    pool: str
    position: int
    at: Instant
    phase: Phase
    is_preempted: Annotated[bool, Meta(description="Whether it waits because a plan gave its GPUs to others.")]
    is_halted: Annotated[bool, Meta(description="Whether it gets no workers until it is resumed.")] = False
    is_canceling: Annotated[bool, Meta(description="Whether it is live and its cancellation was requested.")] = False
    interruption: Annotated[str, Meta(description="As of the job: why its last workers left.")] = ""
    since: Annotated[Instant, Meta(description="Instant from which it has been in this phase.")]
    min_replicas: int
    max_replicas: int
    requested_replicas: int
    gpus_per_replica: int
    policy: str
    placer: str
    nodes: Annotated[tuple[str, ...], Meta(description="Of its workers as observed, by index.")]
    planned: Annotated[tuple[str, ...], Meta(description="By the plan in force.")]
    next: Annotated[tuple[str, ...], Meta(description="By the plan that would be decided now.")]
    reason: Annotated[
        str,
        Meta(description="That of the job: by the plan in force; once it has ended, why it failed or was canceled."),
    ]
    obstacle: Annotated[str, Meta(description="What keeps it from running as planned; empty: nothing.")]
    next_reason: Annotated[str, Meta(description="By the plan that would be decided now.")] = ""
    next_try: Annotated[int, Meta(description="As of the job, now: the try that follows, or is under way.")] = 0
    most_tries: int = 0
    next_try_at: Instant | None = None
    queue_level: int
    queue_position: Annotated[int, Meta(description="1 = first of those that wait; 0 = does not wait.")]
    queue_length: int
    shortage: ShortageView | None
    suggestions: tuple[str, ...]
    expected_start_at: Instant | None
    decisions: Annotated[tuple[DecisionView, ...], Meta(description="Oldest first.")]
    ended: EndedJobView | None


class NodeView(View, frozen=True, kw_only=True):
    """One node."""

    name: str
    pool: str
    gpus: int
    foreign_gpus: int
    used_gpus: Annotated[int, Meta(description="By workers observed.")]
    free_gpus: int
    is_ready: bool
    is_schedulable: Annotated[bool, Meta(description="False: cordoned; those that run there stay.")]
    is_draining: Annotated[bool, Meta(description="Whether its workers are to go elsewhere.")]
    labels: Mapping[str, str]
    jobs: Annotated[Mapping[str, int], Meta(description="job id -> GPUs it holds here.")]


class NodeList(View, frozen=True, kw_only=True):
    """All nodes that were asked for, by name."""

    items: tuple[NodeView, ...]


class SettingsView(View, frozen=True, kw_only=True):
    """How a pool is decided."""

    policy: str
    placer: str
    ratelimit_s: float
    parameters: Annotated[
        Mapping[str, Mapping[str, ParameterValue]],
        Meta(description="Of the policies that have some: policy -> parameter -> value in force."),
    ]
    resize_cost_s: float
    span_penalty: float
    heeds_resize_cost: bool
    node_grace_s: Annotated[float, Meta(description="How long workers stay on a node that is silent.")]
    retention_s: Annotated[
        float, Meta(description="How long an ended job's folder is kept on one machine; 0 = without a limit.")
    ]
    retention_bytes: Annotated[int, Meta(description="Up to which size together; 0 = without a limit.")]
    output_bytes: Annotated[int, Meta(description="Most that a job's replicas together may have printed there.")]


class PoolView(View, frozen=True, kw_only=True):
    """One pool at a glance."""

    name: str
    nodes: int
    gpus: Annotated[int, Meta(description="That plans may hand out.")]
    used_gpus: int
    waiting: int
    running: int
    plan: Annotated[int, Meta(description="Number of the plan in force.")]
    settings: SettingsView
    revision: str


class PoolList(View, frozen=True, kw_only=True):
    """All pools, by name."""

    items: tuple[PoolView, ...]


class PlanView(View, frozen=True, kw_only=True):
    """A plan: who gets which nodes, and why."""

    pool: str
    number: int
    position: Annotated[int, Meta(description="Of the event; 0 before the first plan.")]
    based_on: int
    policy: str
    placer: str
    cause: str
    decided_at: Instant | None
    placement: Annotated[Mapping[str, tuple[str, ...]], Meta(description="job id -> node of each worker, by index.")]
    reasons: Mapping[str, str]
    changed: Annotated[
        tuple[str, ...],
        Meta(
            description="Jobs that this plan placed otherwise than the one before; only of a plan asked for by number."
        ),
    ] = ()


class EventView(View, frozen=True, kw_only=True):
    """One event of the log."""

    position: int
    stream: str
    version: int
    event_id: str
    type: str
    recorded_at: Instant
    actor: str
    data: Annotated[Mapping[str, Any], Meta(description="As in the log; manifests are left out unless asked for.")]


class EventList(View, frozen=True, kw_only=True):
    """A page of events."""

    items: tuple[EventView, ...]
    last_position: Annotated[int, Meta(description="Ask with after=last_position for what follows.")]
    end: Annotated[
        int,
        Meta(
            description="Where the log ends: there is more to ask for while last_position < end, even if this page is"
            " not full."
        ),
    ]
