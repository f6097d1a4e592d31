"""The record of one job, live or ended: what a user sees of it.

Rule: what decisions read of a live job (phase, totals, starts) is folded by the same functions here.
"""

from collections.abc import Collection, Mapping
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from voda.domain.job import Job, JobSpec, Phase
from voda.events.types import ExitCause, JobProgressed, PlanAdopted
from voda.projections.job_folds import charge, exit_workers, start_workers
from voda.projections.worker_changes import WorkerChanges

_MOST_REPORTS: Final = 1_000
"""Newest ones kept of a job; some 75 bytes each, packed."""


class ProgressReport(Struct, frozen=True, array_like=True, gc=False):
    """One report of a job's progress."""

    epochs_done: float
    at: float
    """Seconds since the epoch."""
    workers: int
    epoch_s: float | None
    metrics: Mapping[str, float]


class JobRecord(Struct, kw_only=True, omit_defaults=True):
    """One job. Belongs to the roster, which changes it in place: read it, and keep no part but what is frozen."""

    job: Job
    """As decisions see it while it is live; but its spec has no manifest, and it tells of no refusals."""
    submitted_position: int
    """Of the event that submitted it, which holds the manifest: `store.read(submitted_position - 1, 1)`."""
    revision: int
    """Position of the last event that changed the record."""
    finished_at: float | None = None
    planned: tuple[str, ...] = ()
    """Node of each worker, by the plan in force; empty once it has ended."""
    reason: str = ""
    """Of the last decision about it; once it has ended, why it failed or was canceled."""
    cancel_reason: str = ""
    """Why it is to be canceled, in the words of who asked for it."""
    resizes: int = 0
    """Changes from some workers to another number."""
    migrations: int = 0
    """Changes that put a worker on another node."""
    tenure: WorkerChanges | None = None
    """While it is live and had workers."""
    epoch_s: float | None = None
    """Seconds of the last epoch that it timed."""
    metrics: Mapping[str, float] = {}
    """The latest value of each."""
    reported_at: float | None = None
    packed: list[bytes] = []
    """Encoded `ProgressReport`s."""
    last_error: str = ""
    """Of the last action on it that failed: which, and why."""
    last_error_at: float | None = None
    stall: str = ""
    """What it waits for that no plan can give it; empty once that has come, or the job has ended."""

    @property
    def spec(self) -> JobSpec:
        """What is asked for by now, without the manifest."""
        return self.job.spec

    @property
    def phase(self) -> Phase:
        """Where it stands."""
        return self.job.phase

    @property
    def is_live(self) -> bool:
        """Whether it has not ended."""
        return self.finished_at is None

    @property
    def is_canceling(self) -> bool:
        """Whether it is live and is to be canceled."""
        return self.job.is_canceling and self.is_live

    @property
    def explanation(self) -> str:
        """Why it has what it has: the plan's sentence, and what keeps it from having, or using, what it shall."""
        if self.is_canceling:
            return self.cancel_reason or self.reason
        hindrance = self.stall
        if not hindrance and self.is_live and len(self.job.workers) != len(self.planned):
            hindrance = self.last_error
        return "; ".join(part for part in (self.reason, hindrance) if part)

    @property
    def is_preempted(self) -> bool:
        """Whether it ran before and waits again."""
        return self.job.phase is Phase.WAITING and self.job.first_started_at is not None

    @property
    def may_have_workers(self) -> bool:
        """Whether workers can come or go: it is live, or outlived by some."""
        return self.is_live or bool(self.job.workers)

    @property
    def reports(self) -> tuple[ProgressReport, ...]:
        """The newest reports, oldest first; unpacked anew at each call."""
        return tuple(msgspec.msgpack.decode(one, type=ProgressReport) for one in self.packed)

    @property
    def reports_kept(self) -> int:
        """How many reports are kept."""
        return len(self.packed)

    def start(self, workers: Mapping[int, str], now: float) -> None:
        """Let workers start."""
        if not self.is_live:
            self._outlive({**self.job.workers, **workers}, now)
            return
        self.job = start_workers(self.job, workers, now)
        self._changes(now).come(workers)
        self._note_changes()

    def exit(self, gone: Collection[int], cause: ExitCause, now: float) -> None:
        """Let workers exit."""
        if not self.is_live:
            self._outlive({index: node for index, node in self.job.workers.items() if index not in gone}, now)
            return
        self.job = exit_workers(self.job, gone, cause, now)
        self._changes(now).go(gone, cause)
        self._note_changes()

    def report(self, fact: JobProgressed, now: float) -> None:
        """Keep a report."""
        if fact.epochs_done > self.job.epochs_done:
            self.job = replace(self.job, epochs_done=fact.epochs_done)
        if fact.epoch_s is not None:
            self.epoch_s = fact.epoch_s
        if fact.metrics:
            self.metrics = {**self.metrics, **fact.metrics}
        self.reported_at = now
        reported = ProgressReport(fact.epochs_done, now, fact.workers, fact.epoch_s, fact.metrics)
        self.packed.append(msgspec.msgpack.encode(reported))
        del self.packed[:-_MOST_REPORTS]

    def plan(self, fact: PlanAdopted) -> None:
        """Take over what a plan says of the job."""
        job_id = self.spec.job_id
        self.reason = fact.reasons.get(job_id, "" if job_id in fact.released else self.reason)
        if job_id in fact.placed:
            self.planned = fact.placed[job_id]
        elif job_id in fact.released:
            self.planned = ()

    def end(self, phase: Phase, reason: str, now: float) -> None:
        """End the job."""
        self.job = replace(charge(self.job, now), phase=phase)
        self._note_changes()
        self.finished_at, self.planned, self.tenure, self.stall = now, (), None, ""
        self.reason = self.cancel_reason if phase is Phase.CANCELED else reason

    def forget_reports(self) -> None:
        """Drop the reports; what they say of the present stays."""
        self.packed = []

    def _changes(self, now: float) -> WorkerChanges:
        if self.tenure is None:
            self.tenure = WorkerChanges()
        self.tenure.begin(now)
        return self.tenure

    def _note_changes(self) -> None:
        if self.tenure is not None:
            so_far = self.tenure.so_far()
            self.resizes, self.migrations = so_far.resizes, so_far.migrations

    def _outlive(self, workers: Mapping[int, str], now: float) -> None:
        """Charge an ended job for the GPUs that its last workers held until now."""
        gpu_s = self.job.attained_service_gpu_s + self.job.gpus * (now - self.job.counted_at)
        self.job = replace(self.job, workers=workers, counted_at=now, attained_service_gpu_s=gpu_s)


def new_record(spec: JobSpec, now: float, position: int) -> JobRecord:
    """Return the record of a job that has just been submitted."""
    job = Job(spec=replace(spec, manifest=None), submitted_at=now, counted_at=now)
    return JobRecord(job=job, submitted_position=position, revision=position)
