"""Jobs, arrays and what became of a submit, as they travel over HTTP."""

from collections.abc import Iterable, Mapping
from html import escape
from typing import Annotated, Final

from msgspec import Meta

from voda.domain.dependency import Condition
from voda.domain.job import MetricValue, Phase
from voda.domain.reasons.outcomes import JobReason
from voda.kinds.launcher import JobLauncher
from voda.wire.base import Instant, UnknownReason, View, WarningView

ENDED: Final = frozenset({Phase.COMPLETED, Phase.FAILED, Phase.CANCELED})


class WorkerView(View, frozen=True, kw_only=True):
    """One worker as observed."""

    index: int
    node: str


class ProgressView(View, frozen=True, kw_only=True):
    """How far a job is, as it reported itself."""

    epochs_done: float
    epochs: Annotated[int, Meta(description="0 = unknown.")]
    epoch_s: Annotated[float | None, Meta(description="Seconds of the last epoch it timed.")] = None
    metrics: Mapping[str, MetricValue] = {}
    reported_at: Instant | None = None


class ReportView(View, frozen=True, kw_only=True):
    """One report of a job's progress, as recorded."""

    epochs_done: float
    reported_at: Instant
    workers: int
    epoch_s: Annotated[
        float | None, Meta(description="Seconds of the epoch; None: not timed, or a resize fell into it.")
    ] = None
    metrics: Mapping[str, MetricValue] = {}


class ReportList(View, frozen=True, kw_only=True):
    """What a job reported, oldest first; the newest 1,000."""

    items: tuple[ReportView, ...]


class ForecastView(View, frozen=True, kw_only=True):
    """What a simulation of the live state says, if nobody submits anything more."""

    position: Annotated[
        int | None, Meta(description="In the order of expected starts, 1 = next; None: it does not wait.")
    ] = None
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


class GpuShareView(View, frozen=True, kw_only=True):
    """A part of one GPU."""

    milli: Annotated[int, Meta(description="Thousandths of its compute.")]
    memory_mib: int


class JobView(View, frozen=True, kw_only=True):
    """One job, live or ended."""

    job_id: str
    name: str
    namespace: str
    user: str
    pool: str
    pools: Annotated[
        tuple[str, ...], Meta(description="Those that it may start in, where there are several; then it stays.")
    ] = ()
    kind: Annotated[
        str,
        Meta(
            description="Of its manifest; a program submitted without one has the manifest that voda made, a PyTorchJob"
            " or an MPIJob: whether it is a plain program, `launcher` says."
        ),
    ]
    launcher: Annotated[
        JobLauncher, Meta(description="What starts its processes; program: nothing else does; empty: not known.")
    ] = ""
    interpreter: Annotated[str, Meta(description="The Python that it was submitted with; empty: not known.")] = ""
    kept_script: Annotated[
        str,
        Meta(description="File that runs in place of its script, kept at the submit; empty: each start runs what is."),
    ] = ""
    continues: Annotated[str, Meta(description="Id of the ended job in whose folder it goes on; empty: none.")] = ""
    labels: Mapping[str, str] = {}
    priority: Annotated[int, Meta(description="Jobs of higher priority go first, whatever the policy.")]
    is_restartable: Annotated[
        bool, Meta(description="False: once its program has begun, it is neither stopped for others nor begun again.")
    ] = True
    virtual_cluster: Annotated[str, Meta(description="Empty: its pool had none when it was submitted.")] = ""
    pinned_cell: Annotated[str, Meta(description="The pinned cell that it runs in; empty: none.")] = ""
    phase: Phase
    is_preempted: Annotated[bool, Meta(description="Whether it waits because a plan gave its GPUs to others.")]
    interruption: Annotated[str, Meta(description="Why its last workers left: preempted, halted, failed, ...")] = ""
    is_canceling: bool
    is_halted: Annotated[bool, Meta(description="Whether it gets no workers until it is resumed.")] = False
    min_replicas: int
    max_replicas: int
    requested_replicas: int
    sizes: Annotated[str, Meta(description="All at which it runs, such as 1,2,4,8; empty: all from min to max.")] = ""
    gpus_per_replica: int
    share: Annotated[
        GpuShareView | None, Meta(description="The part of one GPU that it gets, which then has no whole GPU.")
    ] = None
    replicas: Annotated[int, Meta(description="Workers observed.")]
    gpus: Annotated[int, Meta(description="They hold: `gpu_s` goes on by so many a second after `counted_at`.")] = 0
    planned_replicas: Annotated[int, Meta(description="By the plan in force.")]
    reason: Annotated[
        JobReason | UnknownReason | None, Meta(description="Why it has what it has, or waits, or how it ended.")
    ]
    message: Annotated[str, Meta(description="The reason in words, with what keeps it from running as planned.")]
    workers: tuple[WorkerView, ...]
    submitted_at: Instant
    started_at: Annotated[Instant | None, Meta(description="First start.")]
    finished_at: Instant | None
    running_s: Annotated[float, Meta(description="Up to `counted_at`; it goes on while there are workers.")]
    waiting_s: Annotated[float, Meta(description="Up to `counted_at`; it goes on while there are none.")]
    counted_at: Instant
    gpu_s: Annotated[float, Meta(description="Attained service up to `counted_at`.")]
    restarts: Annotated[int, Meta(description="Starts after the first.")]
    resizes: Annotated[int, Meta(description="Changes from one planned size to another.")]
    failures: Annotated[int, Meta(description="Actions that the cluster refused or missed.")]
    program_failures: Annotated[int, Meta(description="Failed tries of its program; on one machine.")] = 0
    last_failure: Annotated[str, Meta(description="How it failed the last time, with the last line it printed.")] = ""
    next_try: Annotated[int, Meta(description="Number of the try that follows, or is under way; 0: not known.")] = 0
    most_tries: Annotated[int, Meta(description="After so many failed tries it has failed; 0: not known.")] = 0
    next_try_at: Annotated[Instant | None, Meta(description="When the next try follows, at the earliest.")] = None
    silent_since: Annotated[
        Instant | None,
        Meta(description="When it was started or resized, if it has printed and reported nothing since; one machine."),
    ] = None
    silent_from: Annotated[int, Meta(description="Workers until then; 0: it was started.")] = 0
    progress: ProgressView
    forecast: ForecastView
    revision: Annotated[str, Meta(description="Changes with every event about the job; its ETag without the quotes.")]
    after: Annotated[tuple[DependencyView, ...], Meta(description="Jobs and arrays that have to end first.")] = ()
    array: Annotated[ArrayTaskView | None, Meta(description="Where it is a task of an array.")] = None

    @property
    def has_ended(self) -> bool:
        return self.phase in ENDED

    @property
    def has_completed(self) -> bool:
        return self.phase is Phase.COMPLETED

    def _repr_html_(self) -> str:
        return html_table([self])


_COLUMNS: Final = ("job", "state", "replicas", "epochs", "user", "submitted", "reason")


def html_table(jobs: Iterable[JobView]) -> str:
    """Return jobs as a table for notebooks; what a job says of itself is only text here."""
    rows = [("th", _COLUMNS), *(("td", _row(job)) for job in jobs)]
    lines = ("".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in row) for tag, row in rows)
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _row(job: JobView) -> tuple[str, ...]:
    progress = job.progress
    done = f"{progress.epochs_done:g}/{progress.epochs or '?'}" if progress.epochs or progress.epochs_done else ""
    size = f"{job.replicas}/{job.min_replicas}/{job.max_replicas}"
    submitted = f"{job.submitted_at:%Y-%m-%d %H:%M}"
    return job.job_id, job.phase, size, done, job.user, submitted, job.message


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

    @property
    def job_id(self) -> str:
        return self.job.job_id
