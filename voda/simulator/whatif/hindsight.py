"""The real speed of each job of a whole log: how fast it was, how long it was, what its restarts cost.

Rule: pure; a measured epoch counts as it was measured. Only what never happened is estimated, by the scheduler's own
laws, but from all measurements instead of those up to some moment.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from voda.domain.settings import Settings
from voda.projections.learning import CategoryHistory, EpochMeans, RunningMean, Scaling, Sizes, estimate_scaling
from voda.simulator.whatif.epoch_times import (
    ChangeCosts,
    EpochTimes,
    Means,
    MeasuredJob,
    Size,
    fit_epoch_times,
    mean_epoch_times,
    timed_weights,
    weight_of,
)
from voda.simulator.workload import Costs

_UNKNOWN_WORK_S: Final = 3600.0
"""On one replica: of a job that never ran and whose category never ran."""
_MOST_EPOCHS: Final = 100_000
"""Of a job that is simulated: each has its weight and its events, and users may ask for a billion."""


class HindsightProfile(Struct, frozen=True, kw_only=True):
    epochs: int
    costs: Costs
    scaling: Scaling
    """For sizes at which it never ran."""
    means: Means
    """For those at which it did."""
    weights: Sequence[float]
    """Shape (epochs,): how much longer each epoch is than the mean of its size."""
    span_penalty: float

    def epoch_s(self, epoch: int, per_node: tuple[int, ...]) -> float:
        return self.weights[epoch] * self.mean_s((sum(per_node), len(per_node) > 1))

    def mean_s(self, size: Size) -> float:
        replicas, is_spanning = size
        if (seconds := self.means.get(size)) is not None:
            return seconds
        longer = 1.0 + self.span_penalty
        if (seconds := self.means.get((replicas, not is_spanning))) is not None:
            return seconds * longer if is_spanning else seconds / longer
        # job.changed may raise the maximum beyond what the scaling was made for.
        speedup = self.scaling.speedup[min(replicas, len(self.scaling.speedup) - 1)]
        return self.scaling.e1 / speedup * (longer if is_spanning else 1.0)


class Hindsight:
    """The real speed of every job, from the measurements of all jobs of a whole log.

    Where nothing was measured, the settings say what to assume.
    """

    def __init__(self, jobs: Mapping[str, MeasuredJob], settings: Settings) -> None:
        self._jobs = jobs
        self._settings = settings
        by_category: dict[str, list[MeasuredJob]] = {}
        for job in jobs.values():
            by_category.setdefault(job.spec.history_category, []).append(job)
        self._epoch_times = {category: fit_epoch_times(members) for category, members in by_category.items()}
        self._histories = {
            category: CategoryHistory(_epochs(members, self._epoch_times[category]))
            for category, members in by_category.items()
        }
        self._change_costs = ChangeCosts()
        for job in jobs.values():
            self._change_costs.add(job, self._epoch_times[job.spec.history_category])

    def profile(self, job_id: str) -> HindsightProfile:
        job = self._jobs[job_id]
        category = job.spec.history_category
        times, history = self._epoch_times[category], self._histories[category]
        epochs = _total_epochs(job)
        scaling = estimate_scaling(_epochs([job], times), history, Sizes(job.most_replicas))
        if not math.isfinite(scaling.e1):
            work_s = job.worker_s if job.worker_s > 0 else _UNKNOWN_WORK_S
            scaling = Scaling(work_s / epochs, scaling.speedup)
        costs = self._change_costs.costs(category, self._settings.resize_cost_s)
        penalty = history.span_penalty
        mean = HindsightProfile(
            epochs=epochs,
            costs=costs,
            scaling=scaling,
            means=mean_epoch_times(job, times, costs),
            weights=(1.0,) * epochs,
            span_penalty=self._settings.span_penalty if penalty is None else penalty,
        )
        return replace(mean, weights=_weights(job, times, mean))


def _total_epochs(job: MeasuredJob) -> int:
    """Return how many epochs the job had when it ended, or is expected to have; at most _MOST_EPOCHS."""
    done = math.ceil(job.epochs_done)
    if job.has_ended:
        return min(max(1, done or job.spec.epochs), _MOST_EPOCHS)
    return min(max(1, done, job.spec.epochs), _MOST_EPOCHS)


def _weights(job: MeasuredJob, times: EpochTimes, mean: HindsightProfile) -> Sequence[float]:
    """Return each epoch's weight: as timed, else from its pieces, else as in other jobs, else as the one before."""
    timed_epochs = timed_weights(job, times.means[job.spec.job_id])
    usual = timed_epochs[min(timed_epochs)] if timed_epochs else 1.0
    weights: list[float] = []
    for epoch in range(mean.epochs):
        usual = timed_epochs.get(epoch, times.trend.get(epoch, usual))
        pieces = job.disturbed_epochs.get(epoch, ()) if epoch not in timed_epochs else ()
        weights.append(weight_of(pieces, mean.mean_s, mean.costs) or usual)
    return weights


def _epochs(jobs: Sequence[MeasuredJob], times: EpochTimes) -> EpochMeans:
    """Return the means of these jobs as the projections keep them, settled to the last digit."""
    epochs = EpochMeans()
    for job in jobs:
        for size, count in Counter(size for size, _ in job.timed_epochs.values()).items():
            replicas, is_spanning = size
            means = epochs.spanning if is_spanning else epochs.packed
            before = means.get(replicas, RunningMean())
            total = before.count + count
            mean = (before.mean * before.count + times.means[job.spec.job_id][size] * count) / total
            means[replicas] = RunningMean(count=total, mean=mean, settled_count=total, settled=mean)
    return epochs
