"""What became of every job: one record per job that ended, folded from the log.

Rule: working memory is O(live jobs) beside the list of ended ones. A job that still holds workers when it ends
is charged for its GPUs until they are seen to go. Whatever is seen at one instant is one change of the job.
"""

from collections.abc import Callable, Mapping, ValuesView
from typing import Any, ClassVar, Final, Literal

import msgspec
from msgspec import Struct

from voda.domain.job import JobSpec
from voda.events.envelope import Event
from voda.events.spec_changes import respecified
from voda.events.types import (
    JobCanceled,
    JobChanged,
    JobCompleted,
    JobFailed,
    JobSubmitted,
    WorkerExited,
    WorkerStarted,
)
from voda.projections.worker_changes import WorkerChanges

Outcome = Literal["completed", "failed", "canceled"]


class FinishedJob(Struct, frozen=True, kw_only=True):
    """One job that ended. queueing_s + running_s = jct_s."""

    job_id: str
    pool: str
    user: str
    category: str
    outcome: Outcome
    submitted_at: float
    first_started_at: float | None
    """None: it never had a worker."""
    finished_at: float
    jct_s: float
    """Job completion time: submission to end."""
    queueing_s: float
    """All time without workers, preemptions and gaps of migrations included."""
    running_s: float
    gpu_s: float
    """Attained service: GPU-seconds held, those after the job's end included."""
    starts: int
    """Changes from no workers to some; a migration of all workers is none."""
    resizes: int
    """Changes from some workers to another number, failures of workers included."""
    migrations: int
    """Changes that put a worker on another node."""
    workers_moved: int
    restarts: int
    """Changes after the first start that left it with workers, each of which cost it a restart."""
    was_spanning: bool
    """Whether its workers ever sat on more than one node."""
    requested: int
    min_replicas: int
    max_replicas: int
    gpus_per_replica: int


class _WorkerTotals(WorkerChanges, kw_only=True):
    """A job that is live or still holds workers."""

    spec: JobSpec
    submitted_at: float
    counted_at: float
    running_s: float = 0.0
    gpu_s: float = 0.0
    end: tuple[Outcome, float] | None = None

    def count_to(self, now: float) -> None:
        """Carry the totals on to `now`."""
        if self.workers:
            self.gpu_s += len(self.workers) * self.spec.gpus_per_replica * (now - self.counted_at)
            if self.end is None:
                self.running_s += now - self.counted_at
        self.counted_at = now

    def settle(self) -> None:
        """Count what the changes of the last instant came to in the end; what follows the job's end is none."""
        if self.end is None:
            WorkerChanges.settle(self)


class _HistoryState(Struct):
    tenures: dict[str, _WorkerTotals]
    finished: dict[str, FinishedJob]


class History:
    """Projection of ended jobs. Facts about unknown or ended jobs do no harm."""

    FORMAT: ClassVar[str] = "history-1"

    def __init__(self) -> None:
        self._tenures: dict[str, _WorkerTotals] = {}
        self._finished: dict[str, FinishedJob] = {}

    @property
    def finished(self) -> ValuesView[FinishedJob]:
        """The ended jobs, in the order of their ends."""
        return self._finished.values()

    @property
    def live(self) -> Mapping[str, float]:
        """job id -> instant of submission, of the jobs that have not ended."""
        return {job_id: job.submitted_at for job_id, job in self._tenures.items() if job.end is None}

    def apply(self, event: Event) -> None:
        """Fold one event; events must come in the order of their positions."""
        if (fold := _FOLDS.get(type(event.data))) is not None:
            fold(self, event.data, event.recorded_at)

    def dump(self) -> bytes:
        """Return the whole state; equal states give equal bytes."""
        return msgspec.msgpack.encode(_HistoryState(self._tenures, self._finished))

    def load(self, state: bytes) -> None:
        """Replace the state by a dumped one."""
        loaded = msgspec.msgpack.decode(state, type=_HistoryState)
        self._tenures, self._finished = loaded.tenures, loaded.finished


def _submitted(history: History, fact: JobSubmitted, now: float) -> None:
    spec = msgspec.structs.replace(fact.spec, manifest=None)
    history._tenures.setdefault(spec.job_id, _WorkerTotals(spec=spec, submitted_at=now, counted_at=now))


def _changed(history: History, fact: JobChanged, _now: float) -> None:
    if (job := history._tenures.get(fact.job_id)) is not None:
        job.spec = respecified(job.spec, fact)


def _at(history: History, job_id: str, now: float) -> _WorkerTotals | None:
    """Return the job, ready for a change at `now`."""
    if (job := history._tenures.get(job_id)) is not None:
        job.count_to(now)
        job.begin(now)
    return job


def _started(history: History, fact: WorkerStarted, now: float) -> None:
    if (job := _at(history, fact.job_id, now)) is not None:
        job.come(fact.workers)


def _exited(history: History, fact: WorkerExited, now: float) -> None:
    if (job := _at(history, fact.job_id, now)) is None:
        return
    job.go(fact.workers, fact.cause)
    if job.end is not None:
        _conclude(history, job)


def _completed(history: History, fact: JobCompleted, now: float) -> None:
    _end(history, fact.job_id, ("completed", now))


def _failed(history: History, fact: JobFailed, now: float) -> None:
    _end(history, fact.job_id, ("failed", now))


def _canceled(history: History, fact: JobCanceled, now: float) -> None:
    _end(history, fact.job_id, ("canceled", now))


def _end(history: History, job_id: str, end: tuple[Outcome, float]) -> None:
    job = history._tenures.get(job_id)
    if job is not None and job.end is None:
        job.count_to(end[1])
        job.settle()
        job.end = end
        _conclude(history, job)


def _conclude(history: History, job: _WorkerTotals) -> None:
    """Write the job's record, anew when workers outlived their job, and forget the job once it holds none."""
    job_id = job.spec.job_id
    history._finished[job_id] = _record(job)
    if not job.workers:
        del history._tenures[job_id]


_FOLDS: Final[Mapping[type, Callable[[History, Any, float], None]]] = {
    JobSubmitted: _submitted,
    JobChanged: _changed,
    WorkerStarted: _started,
    WorkerExited: _exited,
    JobCompleted: _completed,
    JobFailed: _failed,
    JobCanceled: _canceled,
}


def _record(job: _WorkerTotals) -> FinishedJob:
    assert job.end is not None
    outcome, finished_at = job.end
    spec = job.spec
    jct_s = finished_at - job.submitted_at
    return FinishedJob(
        job_id=spec.job_id,
        pool=spec.pool,
        user=spec.user,
        category=spec.history_category,
        outcome=outcome,
        submitted_at=job.submitted_at,
        first_started_at=job.first_started_at,
        finished_at=finished_at,
        jct_s=jct_s,
        queueing_s=jct_s - job.running_s,
        running_s=job.running_s,
        gpu_s=job.gpu_s,
        starts=job.starts,
        resizes=job.resizes,
        migrations=job.migrations,
        workers_moved=job.workers_moved,
        restarts=job.restarts,
        was_spanning=job.was_spanning,
        requested=spec.requested,
        min_replicas=spec.min_replicas,
        max_replicas=spec.max_replicas,
        gpus_per_replica=spec.gpus_per_replica,
    )
