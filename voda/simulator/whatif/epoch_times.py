"""The length of epochs by size, by their place in the job's course, and by the cost of changes.

An epoch's seconds are the mean of its size times a trend, which the jobs of a category share: epochs may grow longer
or shorter in the course of a job, and jobs are resized on the way, so that neither can be read off alone.
Rule: pure functions of timed epochs; where a category has one job, size comes before trend.
"""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from voda.simulator.whatif.measured_epochs import EpochPiece, MeasuredJob, Size, WorkerChange
from voda.simulator.workload import Costs

Means = Mapping[Size, float]
"""Size -> seconds of an epoch on it, were the trend 1."""
_ROUNDS: Final = 6
_FLAT_WITHIN: Final = 0.02
"""Two epochs whose weights differ by less lie where the trend is flat."""
CHANGES: Final[tuple[WorkerChange, ...]] = ("start", "resize", "migrate")


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
    cost_s: Mapping[WorkerChange | None, float] = {
        None: 0.0,
        "start": costs.start_s,
        "resize": costs.resize_s,
        "migrate": costs.migrate_s,
    }
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
