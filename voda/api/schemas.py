"""What travels over HTTP: one frozen record per answer, shared by the server, the command line and OpenAPI.

Rule: times are RFC 3339 in UTC; spans end in `_s`; a field is never renamed within /api/v1, only added.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from voda.api import bounds
from voda.domain.job import Phase


class Wire(Struct, frozen=True, kw_only=True):
    """Base of all that is answered."""


class Asked(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all that is sent to us: a field we do not know is refused, not dropped."""


class Problem(Wire, frozen=True, kw_only=True, omit_defaults=True):
    """RFC 9457, application/problem+json."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    """One sentence: what, which, expected, got, and what to do next."""
    field: str = ""
    """Path of the field that is wrong, e.g. spec.mpiReplicaSpecs.Worker.replicas."""
    job_id: str = ""


class Warned(Wire, frozen=True, kw_only=True):
    """A part of the manifest that this cluster does not honour."""

    field: str
    message: str


class Worker(Wire, frozen=True, kw_only=True):
    """One worker as observed."""

    index: int
    node: str


class Progress(Wire, frozen=True, kw_only=True):
    """How far a job is, as it reported itself."""

    epochs_done: float
    epochs: int
    """0 = unknown."""
    epoch_s: float | None = None
    """Seconds of the last epoch it timed."""
    metrics: Mapping[str, float] = {}
    reported_at: datetime | None = None


class Forecast(Wire, frozen=True, kw_only=True):
    """What a simulation of the live state says, if nobody submits anything more."""

    position: int | None = None
    """In the queue, 1 = next; None: it does not wait."""
    starts_at: datetime | None = None
    """Only while it waits."""
    finishes_at: datetime | None = None
    made_at: datetime | None = None
    """What has happened since is not in it."""


class Job(Wire, frozen=True, kw_only=True):
    """One job, live or ended."""

    job_id: str
    name: str
    namespace: str
    user: str
    pool: str
    queue: str
    kind: str
    priority: int
    phase: Phase
    is_preempted: bool
    """Whether it ran before and waits again."""
    is_canceling: bool
    min_replicas: int
    max_replicas: int
    requested_replicas: int
    gpus_per_replica: int
    replicas: int
    """Workers observed."""
    planned_replicas: int
    """By the plan in force."""
    reason: str
    """Why it has what it has, or waits, or how it ended."""
    workers: tuple[Worker, ...]
    submitted_at: datetime
    started_at: datetime | None
    """First start."""
    finished_at: datetime | None
    running_s: float
    """Up to `counted_at`; it goes on while there are workers."""
    waiting_s: float
    """Up to `counted_at`; it goes on while there are none."""
    counted_at: datetime
    gpu_s: float
    """Attained service up to `counted_at`."""
    restarts: int
    """Starts after the first."""
    resizes: int
    """Changes from some workers to another number."""
    failures: int
    """Actions that the cluster refused or missed."""
    progress: Progress
    forecast: Forecast
    revision: str
    """Changes with every event about the job; the ETag of this resource without its quotes."""


class JobList(Wire, frozen=True, kw_only=True):
    """A page of jobs."""

    items: tuple[Job, ...]
    total: int
    """Jobs that match, on all pages."""
    next: str | None = None
    """Continue token of the next page; None on the last one."""


class Submission(Wire, frozen=True, kw_only=True):
    """What became of a submit."""

    job: Job
    is_dry_run: bool = False
    warnings: tuple[Warned, ...] = ()


class Change(Asked, frozen=True, kw_only=True, omit_defaults=True):
    """New wishes for a live job: a JSON merge patch; what is absent stays."""

    min_replicas: bounds.Size | UnsetType = UNSET
    max_replicas: bounds.Size | UnsetType = UNSET
    requested_replicas: bounds.Size | UnsetType = UNSET
    priority: bounds.Figure | UnsetType = UNSET
    epochs: bounds.Count | UnsetType = UNSET


class Report(Asked, frozen=True, kw_only=True, omit_defaults=True):
    """A job's own report of an epoch or step; sent by voda.report."""

    epoch: bounds.Epoch
    """Epochs done, the one just finished included."""
    workers: bounds.Workers | None = None
    epoch_time_s: bounds.Positive | None = None
    step_time_s: bounds.Positive | None = None
    samples_per_s: bounds.Rate | None = None
    metrics: Mapping[str, float] = {}
    report_id: str = ""
    """Chosen by the job; the same report sent again is recorded once."""


class Reported(Wire, frozen=True, kw_only=True):
    """One report of a job's progress, as recorded."""

    epochs_done: float
    reported_at: datetime
    workers: int
    epoch_s: float | None = None
    """Seconds of the epoch; None: not timed, or a resize fell into it."""
    metrics: Mapping[str, float] = {}


class ReportList(Wire, frozen=True, kw_only=True):
    """What a job reported, oldest first; the newest 1,000."""

    items: tuple[Reported, ...]


class Node(Wire, frozen=True, kw_only=True):
    """One node."""

    name: str
    pool: str
    gpus: int
    foreign_gpus: int
    used_gpus: int
    """By workers observed."""
    free_gpus: int
    is_ready: bool
    is_schedulable: bool
    labels: Mapping[str, str]
    jobs: Mapping[str, int]
    """job id -> GPUs it holds here."""


class NodeList(Wire, frozen=True, kw_only=True):
    """All nodes that were asked for, by name."""

    items: tuple[Node, ...]


class Settings(Wire, frozen=True, kw_only=True):
    """How a pool is decided."""

    policy: str
    placer: str
    ratelimit_s: float
    tiresias_demote_gpu_s: float
    tiresias_promote_knob: float
    tiresias_compact_pending: int
    resize_cost_s: float
    span_penalty: float
    heeds_resize_cost: bool


class SettingsChange(Asked, frozen=True, kw_only=True, omit_defaults=True):
    """New settings of a pool: a JSON merge patch."""

    policy: str | UnsetType = UNSET
    placer: str | UnsetType = UNSET
    ratelimit_s: bounds.SpanOfADay | UnsetType = UNSET
    tiresias_demote_gpu_s: bounds.Service | UnsetType = UNSET
    tiresias_promote_knob: bounds.Knob | UnsetType = UNSET
    tiresias_compact_pending: bounds.Pending | UnsetType = UNSET
    resize_cost_s: bounds.SpanOfADay | UnsetType = UNSET
    span_penalty: bounds.Share | UnsetType = UNSET
    heeds_resize_cost: bool | UnsetType = UNSET


class Pool(Wire, frozen=True, kw_only=True):
    """One pool at a glance."""

    name: str
    nodes: int
    gpus: int
    """That plans may hand out."""
    used_gpus: int
    waiting: int
    running: int
    plan: int
    """Number of the plan in force."""
    settings: Settings
    revision: str


class PoolList(Wire, frozen=True, kw_only=True):
    """All pools, by name."""

    items: tuple[Pool, ...]


class Plan(Wire, frozen=True, kw_only=True):
    """A plan: who gets which nodes, and why."""

    pool: str
    number: int
    position: int
    """Of the event; 0 before the first plan."""
    based_on: int
    policy: str
    placer: str
    cause: str
    decided_at: datetime | None
    placement: Mapping[str, tuple[str, ...]]
    """job id -> node of each worker, by index."""
    reasons: Mapping[str, str]
    changed: tuple[str, ...] = ()
    """Jobs that this plan placed otherwise than the one before; only of a plan asked for by number."""


class Event(Wire, frozen=True, kw_only=True):
    """One event of the log."""

    position: int
    stream: str
    version: int
    event_id: str
    type: str
    recorded_at: datetime
    actor: str
    data: Mapping[str, Any]
    """As in the log; manifests are left out unless asked for."""


class EventList(Wire, frozen=True, kw_only=True):
    """A page of events."""

    items: tuple[Event, ...]
    last_position: int
    """Ask with after=last_position for what follows."""
    end: int
    """Where the log ends: there is more to ask for while last_position < end, even if this page is not full."""


class Decision(Wire, frozen=True, kw_only=True):
    """One plan that was about the job."""

    position: int
    decided_at: datetime
    plan: int
    policy: str
    before: tuple[str, ...]
    """Nodes by worker index, in the plan before; empty = none."""
    after: tuple[str, ...]
    reason: str
    cause: str
    """Type of the event that made the decision due."""
    cause_position: int | None = None


class Shortage(Wire, frozen=True, kw_only=True):
    """What a waiting job needs (minimum, wish), and what the next plan would leave to nobody, in GPUs."""

    needs_gpus: int
    wishes_gpus: int
    capacity_gpus: int
    free_gpus: int
    largest_free_gpus: int
    """Most of those on one node."""
    jobs_served: int
    """Among which the next plan shares the others."""


class Story(Wire, frozen=True, kw_only=True):
    """What became of a job that ended. queueing_s + running_s = jct_s."""

    outcome: Literal["completed", "failed", "canceled"]
    submitted_at: datetime
    started_at: datetime | None
    """First start; None: it never had a worker."""
    finished_at: datetime
    jct_s: float
    """Submission to end."""
    queueing_s: float
    running_s: float
    gpu_s: float
    starts: int
    resizes: int
    migrations: int
    workers_moved: int
    was_spanning: bool


class Explanation(Wire, frozen=True, kw_only=True):
    """Why a job has what it has, or waits, at one moment; of a job that ended, its story."""

    job_id: str
    pool: str
    position: int
    at: datetime
    phase: Phase
    is_preempted: bool
    since: datetime
    """Instant from which it has been in this phase."""
    min_replicas: int
    max_replicas: int
    requested_replicas: int
    gpus_per_replica: int
    policy: str
    placer: str
    nodes: tuple[str, ...]
    """Of its workers as observed, by index."""
    planned: tuple[str, ...]
    """By the plan in force."""
    next: tuple[str, ...]
    """By the plan that would be decided now."""
    reason: str
    queue_level: int
    queue_position: int
    """1 = first of those that wait; 0 = does not wait."""
    queue_length: int
    shortage: Shortage | None
    suggestions: tuple[str, ...]
    expected_start_at: datetime | None
    decisions: tuple[Decision, ...]
    """Oldest first."""
    ended: Story | None


class Who(Wire, frozen=True, kw_only=True):
    """Whom the server takes the caller for."""

    user: str
    role: Literal["admin", "user", "viewer", "job"]
    job_id: str = ""


class Page(Wire, frozen=True, kw_only=True):
    """Version and health of the server; GET /api/v1."""

    version: str
    pools: tuple[str, ...]
    position: int
