"""What the client returns: the records of the API, as frozen dataclasses.

Rule: a field has the name and the meaning that it has in the API (GET /docs describes each); times are aware
datetimes; what a server does not tell is None.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from html import escape
from typing import Any, Final, Protocol, overload

ENDED: Final = frozenset({"Completed", "Failed", "Canceled"})
_COLUMNS: Final = ("job", "state", "replicas", "epochs", "user", "submitted", "reason")


class HasJobId(Protocol):
    """A job, or what else names one."""

    @property
    def job_id(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One worker as observed."""

    index: int
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a job is, as it reported itself; `epochs` 0 = unknown."""

    epochs_done: float
    epochs: int
    epoch_s: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    reported_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What a simulation of the live state says, if nobody submits anything more; `position` 1 = next in the queue."""

    position: int | None = None
    starts_at: datetime | None = None
    finishes_at: datetime | None = None
    made_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDependency:
    """What a job comes after: another job, or an array, of which every task counts."""

    job_id: str
    owner: str
    """Of the other job, unless only its submitter has a job of that name."""
    array: str
    condition: str
    """ok: it has to complete; any: it has to end, however."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayPlace:
    """The place of a job in its array."""

    array_id: str
    name: str
    index: int
    indices: str
    count: int
    at_once: int
    """So many tasks may be at work at once; 0 = all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job, live or ended, as it was when the server was asked."""

    job_id: str
    name: str
    namespace: str
    user: str
    pool: str
    kind: str
    launcher: str = ""
    """mpirun or torchrun; program: nothing else starts its processes; empty: not known."""
    interpreter: str = ""
    """The Python that it was submitted with; empty: not known."""
    phase: str
    """Submitted, Waiting, Running, Completed, Failed or Canceled."""
    reason: Mapping[str, Any] | None = None
    """Why it has what it has, or waits, or how it ended: its `kind` and its figures."""
    message: str = ""
    """The same in words, with what keeps it from running as planned."""
    priority: int
    virtual_cluster: str = ""
    pinned_cell: str = ""
    is_preempted: bool
    is_canceling: bool
    is_halted: bool | None = None
    """Whether it gets no workers until it is resumed."""
    labels: Mapping[str, str] | None = None
    after: tuple[JobDependency, ...] | None = None
    """Jobs and arrays that have to end first."""
    array: ArrayPlace | None = None
    """Where it is a task of an array."""
    min_replicas: int
    max_replicas: int
    requested_replicas: int
    gpus_per_replica: int
    replicas: int
    planned_replicas: int
    workers: tuple[Replica, ...]
    submitted_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    counted_at: datetime | None = None
    running_s: float
    waiting_s: float
    gpu_s: float
    gpus: int | None = None
    """They hold; `gpu_s` goes on by so many a second."""
    restarts: int
    resizes: int
    failures: int
    progress: Progress
    forecast: Forecast
    revision: str

    @property
    def has_ended(self) -> bool:
        return self.phase in ENDED

    @property
    def has_completed(self) -> bool:
        return self.phase == "Completed"

    def _repr_html_(self) -> str:
        return Jobs([self])._repr_html_()


class Jobs(Sequence[Job]):
    """A list of jobs; notebooks show it as a table."""

    def __init__(self, items: Iterable[Job], *, total: int | None = None) -> None:
        self._items = tuple(items)
        self.total = len(self._items) if total is None else total
        """Of all that match on the server."""

    @overload
    def __getitem__(self, index: int) -> Job: ...
    @overload
    def __getitem__(self, index: slice) -> "Jobs": ...
    def __getitem__(self, index: int | slice) -> "Job | Jobs":
        found = self._items[index]
        return Jobs(found) if isinstance(found, tuple) else found

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Job]:
        return iter(self._items)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Jobs) and self._items == other._items

    def __hash__(self) -> int:
        return hash(self._items)

    def __repr__(self) -> str:
        return f"Jobs({', '.join(f'{job.job_id} {job.phase}' for job in self._items)})"

    def _repr_html_(self) -> str:
        rows = [_COLUMNS, *map(_row, self._items)]
        tags = ["th", *("td" for _ in self._items)]
        lines = ("".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in row) for tag, row in zip(tags, rows, strict=True))
        return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _row(job: Job) -> tuple[str, ...]:
    """Return the cells of a job; what a job says of itself is only text here."""
    progress = job.progress
    done = f"{progress.epochs_done:g}/{progress.epochs or '?'}" if progress.epochs or progress.epochs_done else ""
    size = f"{job.replicas}/{job.min_replicas}/{job.max_replicas}"
    submitted = f"{job.submitted_at:%Y-%m-%d %H:%M}"
    return job.job_id, job.phase, size, done, job.user, submitted, job.message


@dataclass(frozen=True, slots=True, kw_only=True)
class IgnoredField:
    """A part of the manifest that this cluster does not honour."""

    field: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """What became of a submit."""

    job: Job
    """Of an array, its lowest task."""
    tasks: int = 1
    """Jobs that the manifest stands for."""
    is_dry_run: bool = False
    warnings: tuple[IgnoredField, ...] = ()

    @property
    def job_id(self) -> str:
        return self.job.job_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event of the log; `data` is as in the log."""

    position: int
    type: str
    stream: str
    version: int
    event_id: str
    recorded_at: datetime
    actor: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a pool is decided; `parameters`: policy -> parameter -> value in force."""

    policy: str
    placer: str
    ratelimit_s: float
    parameters: Mapping[str, Mapping[str, Any]]
    resize_cost_s: float
    span_penalty: float
    heeds_resize_cost: bool
    node_grace_s: float
    start_timeout_s: float
    reclaim_grace_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Whom the server takes the caller for."""

    user: str
    role: str
    job_id: str = ""
    found_by: str | None = None
    """By what the server knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsPage:
    """A page of jobs."""

    items: tuple[Job, ...]
    total: int
    next: str | None = None
