"""Jobs: how they are, what is asked of them, what they report."""

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta

from voda.api.schemas.base import Instant, View
from voda.domain.job import Phase


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


class JobView(View, frozen=True, kw_only=True):
    """One job, live or ended."""

    job_id: str
    name: str
    namespace: str
    user: str
    pool: str
    kind: str
    priority: Annotated[int, Meta(description="Jobs of higher priority go first, whatever the policy.")]
    phase: Phase
    is_preempted: Annotated[bool, Meta(description="Whether it ran before and waits again.")]
    is_canceling: bool
    min_replicas: int
    max_replicas: int
    requested_replicas: int
    gpus_per_replica: int
    replicas: Annotated[int, Meta(description="Workers observed.")]
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
    progress: ProgressView
    forecast: ForecastView
    revision: Annotated[
        str, Meta(description="Changes with every event about the job; the ETag of this resource without its quotes.")
    ]


class JobList(View, frozen=True, kw_only=True):
    """A page of jobs."""

    items: tuple[JobView, ...]
    total: Annotated[int, Meta(description="Jobs that match, on all pages.")]
    next: Annotated[str | None, Meta(description="Continue token of the next page; None on the last one.")] = None


class SubmissionView(View, frozen=True, kw_only=True):
    """What became of a submit."""

    job: JobView
    is_dry_run: bool = False
    warnings: tuple[WarningView, ...] = ()


class ReportView(View, frozen=True, kw_only=True):
    """One report of a job's progress, as recorded."""

    epochs_done: float
    reported_at: Instant
    workers: int
    epoch_s: Annotated[
        float | None, Meta(description="Seconds of the epoch; None: not timed, or a resize fell into it.")
    ] = None
    metrics: Mapping[str, float] = {}


class ReportList(View, frozen=True, kw_only=True):
    """What a job reported, oldest first; the newest 1,000."""

    items: tuple[ReportView, ...]
