"""One record for every job that ended, folded from the log.

Rule: working memory is O(live jobs) beside the list of ended ones. A job that still holds workers when it ends is
charged for its GPUs until the workers exit. All events of one instant count as one change of the job.
"""

from collections.abc import Mapping, ValuesView
from typing import Final, Literal

import msgspec
from msgspec import Struct

from voda.domain.job import JobSpec
from voda.events import types as facts
from voda.events.envelope import Event
from voda.projections.base import Projection
from voda.projections.jobs.changes import WorkerChanges
from voda.projections.jobs.requests import respecified

Outcome = Literal["completed", "failed", "canceled"]
_OUTCOMES: Final[Mapping[type, Outcome]] = {
    facts.JobCompleted: "completed",
    facts.JobFailed: "failed",
    facts.JobCanceled: "canceled",
}


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
    """Changes from one planned size to another."""
    migrations: int
    """Changes that put a worker on another node."""
    workers_moved: int
    restarts: int
    """Changes after the first start that left it with workers, each of which cost it a restart."""
    was_spanning: bool
    """Whether its workers were ever on more than one node."""
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
        if self.workers:
            self.gpu_s += len(self.workers) * self.spec.gpus_per_replica * (now - self.counted_at)
            if self.end is None:
                self.running_s += now - self.counted_at
        self.counted_at = now

    def settle(self) -> None:
        """Count the net change of the last instant; what follows the job's end is no change."""
        if self.end is None:
            WorkerChanges.settle(self)


class History(Projection):
    """The ended jobs. Facts about unknown or ended jobs change nothing."""

    def __init__(self) -> None:
        self._totals: dict[str, _WorkerTotals] = {}
        self._finished: dict[str, FinishedJob] = {}

    @property
    def finished(self) -> ValuesView[FinishedJob]:
        """The ended jobs, in the order of their ends."""
        return self._finished.values()

    @property
    def live(self) -> Mapping[str, float]:
        """job id -> instant of submission, of the jobs that have not ended."""
        return {job_id: job.submitted_at for job_id, job in self._totals.items() if job.end is None}


@History.folds
def _submitted(history: History, fact: facts.JobSubmitted, event: Event) -> None:
    now = event.recorded_at
    spec = msgspec.structs.replace(fact.spec, manifest=None)
    history._totals.setdefault(spec.job_id, _WorkerTotals(spec=spec, submitted_at=now, counted_at=now))


@History.folds
def _changed(history: History, fact: facts.JobChanged, event: Event) -> None:
    if (job := history._totals.get(fact.job_id)) is not None:
        job.spec = respecified(job.spec, fact)


def _advanced(history: History, job_id: str, now: float) -> _WorkerTotals | None:
    """Return the job with its totals up to `now`, ready for a change."""
    if (job := history._totals.get(job_id)) is not None:
        job.count_to(now)
        job.begin(now)
    return job


@History.folds
def _planned(history: History, fact: facts.PlanAdopted, event: Event) -> None:
    for job_id in (*fact.placed, *fact.released):
        if (job := history._totals.get(job_id)) is not None:
            job.plan(fact.placed.get(job_id, ()), event.recorded_at)


@History.folds
def _started(history: History, fact: facts.WorkerStarted, event: Event) -> None:
    if (job := _advanced(history, fact.job_id, event.recorded_at)) is not None:
        job.start(fact.workers)


@History.folds
def _exited(history: History, fact: facts.WorkerExited, event: Event) -> None:
    if (job := _advanced(history, fact.job_id, event.recorded_at)) is None:
        return
    job.exit(fact.workers, fact.cause)
    if job.end is not None:
        _conclude(history, job)


@History.folds
def _ended(history: History, fact: facts.JobEnd, event: Event) -> None:
    job = history._totals.get(fact.job_id)
    if job is not None and job.end is None:
        job.count_to(event.recorded_at)
        job.settle()
        job.end = _OUTCOMES[type(fact)], event.recorded_at
        _conclude(history, job)


def _conclude(history: History, job: _WorkerTotals) -> None:
    """Write the record of an ended job, again after each late exit of a worker; forget the job after the last."""
    job_id = job.spec.job_id
    history._finished[job_id] = _record(job)
    if not job.workers:
        del history._totals[job_id]


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
