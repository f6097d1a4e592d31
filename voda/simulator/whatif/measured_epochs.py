"""What a log says about a job's speed: the epochs that the job timed, and the pieces of the others.

Rule: pure; either the job timed an epoch itself, or the epoch is known as the pieces between changes of workers.
"""

import math
from typing import Final, Literal

from msgspec import Struct

from voda.domain.job import JobSpec
from voda.events import types as facts
from voda.events.envelope import Event
from voda.projections.base import Projection
from voda.projections.job_changes import undisturbed_epoch_s

Size = tuple[int, bool]
"""Replicas, and whether they span nodes."""
WorkerChange = Literal["start", "resize", "migrate"]
_LOSSES: Final = frozenset({"failed", "evicted", "node_lost"})


class EpochPiece(Struct, frozen=True):
    """Part of an epoch, on the same workers throughout."""

    size: Size
    seconds: float
    change: WorkerChange | None
    """What it began with; None = it began with the epoch."""


class MeasuredJob(Struct, kw_only=True):
    """One job's epochs; changed in place."""

    spec: JobSpec
    most_replicas: int
    timed_epochs: dict[int, tuple[Size, float]] = {}
    """Undisturbed epoch (from 0) -> size, seconds as the job timed it."""
    disturbed_epochs: dict[int, tuple[EpochPiece, ...]] = {}
    """Epoch into which changes of the workers fell -> its pieces."""
    epochs_done: float = 0.0
    has_ended: bool = False
    """Completed or failed. A canceled job would have continued: its end says nothing about its length."""
    worker_s: float = 0.0
    """Seconds during which it had workers, times their number."""
    workers: dict[int, str] = {}
    counted_at: float = 0.0
    pieces: list[EpochPiece] = []
    change: WorkerChange | None = None
    workers_before: int = 0
    """Workers before the changes of this instant."""

    @property
    def size(self) -> Size:
        """Its present size."""
        return len(self.workers), len(set(self.workers.values())) > 1

    def end_piece(self, now: float) -> None:
        """End the present piece."""
        seconds = now - self.counted_at
        if seconds <= 0:
            return
        self.counted_at = now
        self.workers_before = len(self.workers)
        if self.workers:
            self.worker_s += len(self.workers) * seconds
            self.pieces.append(EpochPiece(self.size, seconds, self.change))
            self.change = None

    def set_workers(self, workers: dict[int, str]) -> None:
        """Continue with these workers."""
        self.workers = workers
        if not self.workers_before:
            self.change = "start"
        else:
            self.change = "migrate" if len(workers) == self.workers_before else "resize"


class EpochMeasurements(Projection):
    """The timed and disturbed epochs of every job of a log."""

    def __init__(self) -> None:
        self.jobs: dict[str, MeasuredJob] = {}


@EpochMeasurements.folds
def _submitted(measurements: EpochMeasurements, fact: facts.JobSubmitted, event: Event) -> None:
    spec = fact.spec
    measurements.jobs.setdefault(
        spec.job_id, MeasuredJob(spec=spec, most_replicas=spec.max_replicas, counted_at=event.recorded_at)
    )


@EpochMeasurements.folds
def _changed(measurements: EpochMeasurements, fact: facts.JobChanged, event: Event) -> None:
    if (job := measurements.jobs.get(fact.job_id)) is not None:
        job.most_replicas = max(job.most_replicas, fact.max_replicas or 0)


@EpochMeasurements.folds
def _started(measurements: EpochMeasurements, fact: facts.WorkerStarted, event: Event) -> None:
    if (job := measurements.jobs.get(fact.job_id)) is not None:
        job.end_piece(event.recorded_at)
        job.set_workers({**job.workers, **fact.workers})


@EpochMeasurements.folds
def _exited(measurements: EpochMeasurements, fact: facts.WorkerExited, event: Event) -> None:
    if (job := measurements.jobs.get(fact.job_id)) is not None:
        job.end_piece(event.recorded_at)
        job.set_workers({index: node for index, node in job.workers.items() if index not in fact.workers})
        if fact.cause in _LOSSES:
            # How much of the epoch a checkpoint saved is not in the log.
            job.pieces.clear()


@EpochMeasurements.folds
def _progressed(measurements: EpochMeasurements, fact: facts.JobProgressed, event: Event) -> None:
    if (job := measurements.jobs.get(fact.job_id)) is None:
        return
    epoch_s = undisturbed_epoch_s(fact, event.recorded_at, job.counted_at if job.change else -math.inf)
    job.end_piece(event.recorded_at)
    epoch = math.ceil(fact.epochs_done) - 1
    if epoch_s is not None and epoch_s > 0 and fact.workers > 0:
        job.timed_epochs[epoch] = ((fact.workers, job.size[1]), epoch_s)
    elif fact.epochs_done - job.epochs_done == 1.0 and any(piece.change for piece in job.pieces):
        job.disturbed_epochs[epoch] = tuple(job.pieces)
    job.pieces.clear()
    job.epochs_done = max(job.epochs_done, fact.epochs_done)


@EpochMeasurements.folds
def _ended(measurements: EpochMeasurements, fact: facts.JobEnd, event: Event) -> None:
    if (job := measurements.jobs.get(fact.job_id)) is not None:
        job.end_piece(event.recorded_at)
        job.has_ended = job.has_ended or not isinstance(fact, facts.JobCanceled)
