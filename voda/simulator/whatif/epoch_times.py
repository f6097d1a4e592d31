"""What a log says about the speed of jobs: how long epochs take, by size and place in the job's course.

Either a job timed an epoch itself, or the epoch is known as the pieces between changes of workers, which cost time.
An epoch's seconds are the mean of its size times a trend, which the jobs of a category share: epochs may grow longer
or shorter in the course of a job, and jobs are resized on the way, so that neither can be read off alone.
Rule: pure; where a category has one job, size comes before trend.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from voda.domain.job import JobSpec
from voda.events import types as facts
from voda.events.envelope import Event
from voda.projections.base import Projection
from voda.projections.jobs.changes import undisturbed_epoch_s
from voda.simulator.workload import Costs

Size = tuple[int, bool]
"""Replicas, and whether they span nodes."""
WorkerChange = Literal["start", "resize", "migrate"]
LOSSES: Final = frozenset({"failed", "evicted", "node_lost"})

Means = Mapping[Size, float]
"""Size -> seconds of an epoch on it, were the trend 1."""
_ROUNDS: Final = 6
_FLAT_WITHIN: Final = 0.02
"""Two epochs whose weights differ by less lie where the trend is flat."""
CHANGES: Final[tuple[WorkerChange, ...]] = ("start", "resize", "migrate")


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
    changed_at: float = -math.inf
    pieces: list[EpochPiece] = []
    pieces_from: float = 0.0
    """Epochs done when the first piece began."""
    change: WorkerChange | None = None
    workers_before: int = 0
    """Workers before the changes of this instant."""

    @property
    def size(self) -> Size:
        return len(self.workers), len(set(self.workers.values())) > 1

    def end_piece(self, now: float) -> None:
        seconds = now - self.counted_at
        if seconds <= 0:
            return
        self.counted_at = now
        self.workers_before = len(self.workers)
        if self.workers:
            self.worker_s += len(self.workers) * seconds
            before = self.pieces[-1] if self.pieces else None
            if before is not None and self.change is None and before.size == self.size:
                # A report within the epoch ended the piece, not a change.
                self.pieces[-1] = replace(before, seconds=before.seconds + seconds)
            else:
                self.pieces.append(EpochPiece(self.size, seconds, self.change))
            self.change = None

    def set_workers(self, workers: dict[int, str]) -> None:
        self.workers = workers
        if not self.workers_before:
            self.change = "start"
        else:
            self.change = "migrate" if len(workers) == self.workers_before else "resize"


class EpochMeasurements(Projection):
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
        job.changed_at = event.recorded_at
        job.set_workers({**job.workers, **fact.workers})


@EpochMeasurements.folds
def _exited(measurements: EpochMeasurements, fact: facts.WorkerExited, event: Event) -> None:
    if (job := measurements.jobs.get(fact.job_id)) is not None:
        job.end_piece(event.recorded_at)
        job.changed_at = event.recorded_at
        job.set_workers({index: node for index, node in job.workers.items() if index not in fact.workers})
        if fact.cause in LOSSES:
            # How much of the epoch a checkpoint saved is not in the log.
            job.pieces.clear()


@EpochMeasurements.folds
def _progressed(measurements: EpochMeasurements, fact: facts.JobProgressed, event: Event) -> None:
    if (job := measurements.jobs.get(fact.job_id)) is None:
        return
    has_changed = job.change or any(piece.change for piece in job.pieces)
    epoch_s = undisturbed_epoch_s(fact, event.recorded_at, job.changed_at if has_changed else -math.inf)
    job.end_piece(event.recorded_at)
    epoch = math.ceil(fact.epochs_done) - 1
    if epoch_s is None and int(job.pieces_from) < fact.epochs_done < int(job.pieces_from) + 1:
        # Within the same epoch, whose pieces go on.
        job.epochs_done = max(job.epochs_done, fact.epochs_done)
        return
    if epoch_s is not None and epoch_s > 0 and fact.workers > 0:
        job.timed_epochs[epoch] = ((fact.workers, job.size[1]), epoch_s)
    elif fact.epochs_done - job.pieces_from == 1.0 and any(piece.change for piece in job.pieces):
        job.disturbed_epochs[epoch] = tuple(job.pieces)
    job.pieces.clear()
    job.pieces_from = fact.epochs_done
    job.epochs_done = max(job.epochs_done, fact.epochs_done)


@EpochMeasurements.folds
def _ended(measurements: EpochMeasurements, fact: facts.JobEnd, event: Event) -> None:
    if (job := measurements.jobs.get(fact.job_id)) is not None:
        job.end_piece(event.recorded_at)
        job.has_ended = job.has_ended or not isinstance(fact, facts.JobCanceled)


class EpochTimes(Struct, frozen=True, kw_only=True):
    """The timed epochs of a category's jobs, as means and trend."""

    means: Mapping[str, Means]
    """job id -> its means."""
    trend: Mapping[int, float]
    """Epoch -> how much longer it is than the mean; for epochs that some job timed."""


def fit_epoch_times(jobs: Sequence[MeasuredJob]) -> EpochTimes:
    """Fit means and trend of one category in turns: means given the trend, trend given the means."""
    trend: Mapping[int, float] = {}
    means = {job.spec.job_id: _means(job, trend) for job in jobs}
    for _ in range(_ROUNDS):
        trend = _trend(jobs, means)
        means = {job.spec.job_id: _means(job, trend) for job in jobs}
    return EpochTimes(means=means, trend=trend)


def timed_weights(job: MeasuredJob, means: Means) -> Mapping[int, float]:
    """Return each timed epoch's length relative to the mean of its size."""
    return {epoch: seconds / means[size] for epoch, (size, seconds) in job.timed_epochs.items()}


def _means(job: MeasuredJob, trend: Mapping[int, float]) -> Means:
    of_size: dict[Size, list[float]] = {}
    for epoch, (size, seconds) in job.timed_epochs.items():
        of_size.setdefault(size, []).append(seconds / trend.get(epoch, 1.0))
    return {size: statistics.fmean(all_s) for size, all_s in of_size.items()}


def _trend(jobs: Iterable[MeasuredJob], means: Mapping[str, Means]) -> Mapping[int, float]:
    weights: dict[int, list[float]] = {}
    for job in jobs:
        for epoch, weight in timed_weights(job, means[job.spec.job_id]).items():
            weights.setdefault(epoch, []).append(weight)
    return {epoch: statistics.geometric_mean(of_epoch) for epoch, of_epoch in sorted(weights.items())}


class ChangeCosts:
    """The costs of changes of workers, as medians by category and kind.

    The cost is the extra time of the epoch with the change. The epoch's time without it is known well where other jobs
    timed that epoch or this job timed the epochs around it, and poorly where only later epochs are known, as for a
    job's first epoch.
    """

    def __init__(self) -> None:
        self._good: dict[tuple[str, WorkerChange], list[float]] = {}
        self._poor: dict[tuple[str, WorkerChange], list[float]] = {}

    def add(self, job: MeasuredJob, times: EpochTimes) -> None:
        """Add the costs that the job's epochs with exactly one change show."""
        means = times.means[job.spec.job_id]
        weights = timed_weights(job, means)
        for epoch, pieces in job.disturbed_epochs.items():
            change = pieces[-1].change
            if change is None or len(pieces) > 2 or (len(pieces) == 2 and pieces[0].change):
                continue
            expected = _expected(epoch, weights, times.trend)
            if expected is None or not all(piece.size in means for piece in pieces):
                continue
            weight, is_good = expected
            before = sum(piece.seconds / means[piece.size] for piece in pieces[:-1])
            cost_s = max(0.0, pieces[-1].seconds - max(0.0, weight - before) * means[pieces[-1].size])
            grade = self._good if is_good else self._poor
            grade.setdefault((job.spec.history_category, change), []).append(cost_s)

    def costs(self, category: str, otherwise_s: float) -> Costs:
        """Return the costs of a category, or `otherwise_s` where none was measured."""
        start_s, resize_s, migrate_s = (self._cost_s(category, kind, otherwise_s) for kind in CHANGES)
        return Costs(start_s=start_s, resize_s=resize_s, migrate_s=migrate_s)

    def _cost_s(self, category: str, kind: WorkerChange, otherwise_s: float) -> float:
        for grade in (self._good, self._poor):
            of_kind = grade.get((category, kind), [])
            of_category = [cost_s for (name, _), costs in grade.items() if name == category for cost_s in costs]
            if of_kind or of_category:
                return statistics.median(of_kind or of_category)
        return otherwise_s


def weight_of(pieces: Sequence[EpochPiece], mean_s: Callable[[Size], float], costs: Costs) -> float:
    """Return the weight at which the pieces, less the costs of the changes, make one epoch."""
    return sum(_worked_s(piece, costs) / mean_s(piece.size) for piece in pieces)


def mean_epoch_times(job: MeasuredJob, times: EpochTimes, costs: Costs) -> Means:
    """Return the job's means, with those of sizes at which every epoch was disturbed."""
    means = dict(times.means[job.spec.job_id])
    untimed: dict[Size, list[float]] = {}
    for epoch, pieces in job.disturbed_epochs.items():
        if (size := pieces[0].size) not in means and all(piece.size == size for piece in pieces):
            worked_s = sum(_worked_s(piece, costs) for piece in pieces)
            untimed.setdefault(size, []).append(worked_s / times.trend.get(epoch, 1.0))
    return means | {size: seconds for size, all_s in untimed.items() if (seconds := statistics.fmean(all_s)) > 0}


def _worked_s(piece: EpochPiece, costs: Costs) -> float:
    cost_s = {None: 0.0, "start": costs.start_s, "resize": costs.resize_s, "migrate": costs.migrate_s}
    return max(0.0, piece.seconds - cost_s[piece.change])


def _expected(epoch: int, weights: Mapping[int, float], trend: Mapping[int, float]) -> tuple[float, bool] | None:
    """Return the weight of the epoch without the change, and whether it is well known."""
    near = [at for at in (epoch - 1, epoch + 1) if at in weights]
    if not near:
        return None
    if epoch in trend:
        return trend[epoch] * statistics.fmean(weights[at] / trend[at] for at in near), True
    beyond = [weights[at] for at in (epoch - 2, epoch + 2) if at in weights]
    is_flat = any(abs(weight - weights[near[0]]) <= _FLAT_WITHIN * weight for weight in beyond)
    return statistics.fmean(weights[at] for at in near), len(near) == 2 or is_flat
