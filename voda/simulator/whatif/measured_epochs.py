"""What a log tells of one job's speed: its timed epochs, and what the others were made of.

Rule: pure; an epoch is either timed by the job itself, or known as the pieces between the changes of its workers.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from msgspec import Struct

from voda.domain.job import JobSpec
from voda.events.envelope import Event
from voda.events.types import (
    JobCanceled,
    JobChanged,
    JobCompleted,
    JobFailed,
    JobProgressed,
    JobSubmitted,
    WorkerExited,
    WorkerStarted,
)

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
    """One job's story, as far as speed goes; changed in place."""

    spec: JobSpec
    most_replicas: int
    timed: dict[int, tuple[Size, float]] = {}
    """Undisturbed epoch (from 0) -> size, seconds as the job timed it."""
    disturbed: dict[int, tuple[EpochPiece, ...]] = {}
    """Epoch into which changes of the workers fell -> its pieces."""
    epochs_done: float = 0.0
    has_ended: bool = False
    """Completed or failed. A canceled job would have gone on: its end says nothing about how long it was."""
    worker_s: float = 0.0
    """Sum over its workers of the seconds they were there."""
    workers: dict[int, str] = {}
    counted_at: float = 0.0
    pieces: list[EpochPiece] = []
    change: WorkerChange | None = None
    lasted: int = 0
    """Workers before the changes of this instant."""

    @property
    def size(self) -> Size:
        """Its size by now."""
        return len(self.workers), len(set(self.workers.values())) > 1

    def cut(self, now: float) -> None:
        """End the piece that has been going on."""
        seconds = now - self.counted_at
        if seconds <= 0:
            return
        self.counted_at = now
        self.lasted = len(self.workers)
        if self.workers:
            self.worker_s += len(self.workers) * seconds
            self.pieces.append(EpochPiece(self.size, seconds, self.change))
            self.change = None

    def have(self, workers: dict[int, str]) -> None:
        """Go on with these workers."""
        self.workers = workers
        if not self.lasted:
            self.change = "start"
        else:
            self.change = "migrate" if len(workers) == self.lasted else "resize"


class EpochMeasurements:
    """Projection of a log onto the stories of its jobs."""

    def __init__(self) -> None:
        self.jobs: dict[str, MeasuredJob] = {}

    def apply(self, event: Event) -> None:
        """Fold one event; events must come in the order of their positions."""
        if (fold := _FOLDS.get(type(event.data))) is not None:
            fold(self, event.data, event.recorded_at)


def _submitted(watch: EpochMeasurements, fact: JobSubmitted, now: float) -> None:
    spec = fact.spec
    watch.jobs.setdefault(spec.job_id, MeasuredJob(spec=spec, most_replicas=spec.max_replicas, counted_at=now))


def _changed(watch: EpochMeasurements, fact: JobChanged, _now: float) -> None:
    if (job := watch.jobs.get(fact.job_id)) is not None:
        job.most_replicas = max(job.most_replicas, fact.max_replicas or 0)


def _started(watch: EpochMeasurements, fact: WorkerStarted, now: float) -> None:
    if (job := watch.jobs.get(fact.job_id)) is not None:
        job.cut(now)
        job.have({**job.workers, **fact.workers})


def _exited(watch: EpochMeasurements, fact: WorkerExited, now: float) -> None:
    if (job := watch.jobs.get(fact.job_id)) is not None:
        job.cut(now)
        job.have({index: node for index, node in job.workers.items() if index not in fact.workers})
        if fact.cause in _LOSSES:
            # How much of the epoch a checkpoint saved is not in the log.
            job.pieces.clear()


def _progressed(watch: EpochMeasurements, fact: JobProgressed, now: float) -> None:
    if (job := watch.jobs.get(fact.job_id)) is None:
        return
    job.cut(now)
    epoch = math.ceil(fact.epochs_done) - 1
    if fact.epoch_s is not None and fact.epoch_s > 0 and fact.workers > 0:
        job.timed[epoch] = ((fact.workers, job.size[1]), fact.epoch_s)
    elif fact.epochs_done - job.epochs_done == 1.0 and any(piece.change for piece in job.pieces):
        job.disturbed[epoch] = tuple(job.pieces)
    job.pieces.clear()
    job.epochs_done = max(job.epochs_done, fact.epochs_done)


def _ended(watch: EpochMeasurements, fact: JobCompleted | JobFailed | JobCanceled, now: float) -> None:
    if (job := watch.jobs.get(fact.job_id)) is not None:
        job.cut(now)
        job.has_ended = job.has_ended or not isinstance(fact, JobCanceled)


_FOLDS: Final[Mapping[type, Callable[[EpochMeasurements, Any, float], None]]] = {
    JobSubmitted: _submitted,
    JobChanged: _changed,
    WorkerStarted: _started,
    WorkerExited: _exited,
    JobProgressed: _progressed,
    JobCompleted: _ended,
    JobFailed: _ended,
    JobCanceled: _ended,
}
