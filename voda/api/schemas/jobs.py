"""Jobs: how they are, what is asked of them, what they report."""

from collections.abc import Mapping
from datetime import datetime

from msgspec import UNSET, UnsetType

from voda.api import fields
from voda.api.schemas.base import Request, View
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
    epochs: int
    """0 = unknown."""
    epoch_s: float | None = None
    """Seconds of the last epoch it timed."""
    metrics: Mapping[str, float] = {}
    reported_at: datetime | None = None


class ForecastView(View, frozen=True, kw_only=True):
    """What a simulation of the live state says, if nobody submits anything more."""

    position: int | None = None
    """In the queue, 1 = next; None: it does not wait."""
    starts_at: datetime | None = None
    """Only while it waits."""
    finishes_at: datetime | None = None
    made_at: datetime | None = None
    """What has happened since is not in it."""


class JobView(View, frozen=True, kw_only=True):
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
    workers: tuple[WorkerView, ...]
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
    progress: ProgressView
    forecast: ForecastView
    revision: str
    """Changes with every event about the job; the ETag of this resource without its quotes."""


class JobList(View, frozen=True, kw_only=True):
    """A page of jobs."""

    items: tuple[JobView, ...]
    total: int
    """Jobs that match, on all pages."""
    next: str | None = None
    """Continue token of the next page; None on the last one."""


class SubmissionView(View, frozen=True, kw_only=True):
    """What became of a submit."""

    job: JobView
    is_dry_run: bool = False
    warnings: tuple[WarningView, ...] = ()


class JobChange(Request, frozen=True, kw_only=True, omit_defaults=True):
    """New wishes for a live job: a JSON merge patch; what is absent stays."""

    min_replicas: fields.Size | UnsetType = UNSET
    max_replicas: fields.Size | UnsetType = UNSET
    requested_replicas: fields.Size | UnsetType = UNSET
    priority: fields.Figure | UnsetType = UNSET
    epochs: fields.Count | UnsetType = UNSET


class ProgressReport(Request, frozen=True, kw_only=True, omit_defaults=True):
    """A job's own report of an epoch or step; sent by voda.report."""

    epoch: fields.Epoch
    """Epochs done, the one just finished included."""
    workers: fields.Workers | None = None
    epoch_time_s: fields.Positive | None = None
    step_time_s: fields.Positive | None = None
    samples_per_s: fields.Rate | None = None
    metrics: Mapping[str, float] = {}
    report_id: str = ""
    """Chosen by the job; the same report sent again is recorded once."""


class ReportView(View, frozen=True, kw_only=True):
    """One report of a job's progress, as recorded."""

    epochs_done: float
    reported_at: datetime
    workers: int
    epoch_s: float | None = None
    """Seconds of the epoch; None: not timed, or a resize fell into it."""
    metrics: Mapping[str, float] = {}


class ReportList(View, frozen=True, kw_only=True):
    """What a job reported, oldest first; the newest 1,000."""

    items: tuple[ReportView, ...]
