"""What a whole log shows of its jobs: how fast each one really was, how long it was, what its restarts cost.

Rule: pure; what was measured is taken as it was measured, epoch by epoch, and only what never happened is estimated:
through the scheduler's own laws, but with all measurements instead of those up to some moment.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal

from msgspec import Struct, field

from voda.domain.job import JobSpec
from voda.domain.state import Settings
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
from voda.projections.beliefs import History, believed
from voda.projections.measured import Epochs
from voda.projections.restarts import Sample, Stretch
from voda.projections.scaling import Scaling
from voda.simulator.profile import Costs

Change = Literal["start", "resize", "migrate"]
CHANGES: Final[tuple[Change, ...]] = ("start", "resize", "migrate")
_UNKNOWN_WORK_S: Final = 3600.0
"""On one replica: of a job that never ran, of a kind that never ran either."""


class HindsightProfile(Struct, frozen=True, kw_only=True):
    """The speed of one job, as its log shows it."""

    epochs: int
    costs: Costs
    scaling: Scaling
    """For sizes at which it never ran."""
    measured_s: Mapping[tuple[int, bool], float]
    """(replicas, whether they span nodes) -> mean seconds of an epoch."""
    weights: Sequence[float]
    """Shape (epochs,): how much longer each epoch was than the mean of its size."""
    span_penalty: float

    def epoch_s(self, epoch: int, per_node: tuple[int, ...]) -> float:
        """Return the seconds of one epoch on this placement."""
        return self.weights[epoch] * self._mean_s(sum(per_node), len(per_node) > 1)

    def _mean_s(self, replicas: int, is_spanning: bool) -> float:
        if (seconds := self.measured_s.get((replicas, is_spanning))) is not None:
            return seconds
        longer = 1.0 + self.span_penalty if is_spanning else 1.0
        if (seconds := self.measured_s.get((replicas, not is_spanning))) is not None:
            return seconds * (longer if is_spanning else 1.0 / (1.0 + self.span_penalty))
        # job.changed may raise the maximum beyond what the scaling was made for.
        size = min(replicas, len(self.scaling.speedup) - 1)
        return self.scaling.e1 / self.scaling.speedup[size] * longer


Size = tuple[int, bool]
"""Replicas, and whether they span nodes."""


class Disturbed(Struct, frozen=True, kw_only=True):
    """An epoch into which one change of the workers fell."""

    epoch: int
    before: Size
    before_s: float
    after: Size
    after_s: float

    @property
    def change(self) -> Change:
        """What kind of change it was."""
        if not self.before[0]:
            return "start"
        return "migrate" if self.before[0] == self.after[0] else "resize"


class Watched(Struct, kw_only=True):
    """One job's story, as far as speed goes."""

    spec: JobSpec
    most_replicas: int
    epochs: Epochs = field(default_factory=Epochs)
    stretch: Stretch = field(default_factory=Stretch)
    disturbed: list[Disturbed] = []
    timed: dict[int, tuple[Size, float]] = {}
    """Epoch (from 0) -> size, seconds."""
    last_size: Size = (0, False)
    """Before all its workers went, for the last time."""
    epochs_done: float = 0.0
    has_ended: bool = False
    counted_at: float = 0.0
    worker_s: float = 0.0
    """Sum over its workers of the seconds they were there."""

    def count_to(self, now: float) -> None:
        """Carry the worker seconds on to `now`."""
        self.worker_s += len(self.stretch.workers) * max(0.0, now - self.counted_at)
        self.counted_at = now


class PriceList:
    """What the changes of workers cost, by category and kind.

    Medians of single changes, each judged by the epochs right before and after it, because epochs may grow longer
    or shorter in the course of a job; where there are none, by those after it alone.
    """

    def __init__(self, jobs: Iterable[Watched]) -> None:
        self._good: dict[tuple[str, Change], list[float]] = {}
        self._poor: dict[tuple[str, Change], list[float]] = {}
        for job in jobs:
            for epoch in job.disturbed:
                self._judge(job, epoch)

    def costs(self, category: str, settings: Settings) -> Costs:
        """Return the costs of a category; `settings` tell what is assumed where nothing was measured."""
        start_s, resize_s, migrate_s = (self._cost_s(category, kind, settings) for kind in CHANGES)
        return Costs(start_s=start_s, resize_s=resize_s, migrate_s=migrate_s)

    def _judge(self, job: Watched, epoch: Disturbed) -> None:
        index = epoch.epoch
        near = {
            at: timed[1] for at in (index - 1, index + 1) if (timed := job.timed.get(at)) and timed[0] == epoch.after
        }
        if not near or (epoch.before_s > 0 and epoch.before != epoch.after):
            return
        cost_s = max(0.0, epoch.before_s + epoch.after_s - sum(near.values()) / len(near))
        grade = self._good if len(near) == 2 else self._poor
        grade.setdefault((job.spec.history_category, epoch.change), []).append(cost_s)

    def _cost_s(self, category: str, kind: Change, settings: Settings) -> float:
        for grade in (self._good, self._poor):
            of_kind = grade.get((category, kind), [])
            of_category = [cost_s for (name, _), costs in grade.items() if name == category for cost_s in costs]
            if of_kind or of_category:
                return statistics.median(of_kind or of_category)
        return settings.resize_cost_s


class Hindsight:
    """Projection of a whole log, from which the profiles of its jobs are made."""

    def __init__(self) -> None:
        self._jobs: dict[str, Watched] = {}
        self._histories: dict[str, History] | None = None
        self._prices = PriceList(())

    @property
    def jobs(self) -> Mapping[str, Watched]:
        """Every job ever submitted, in the order of submission."""
        return self._jobs

    def apply(self, event: Event) -> None:
        """Fold one event; events must come in the order of their positions."""
        if (fold := _FOLDS.get(type(event.data))) is not None:
            fold(self, event.data, event.recorded_at)

    def profile(self, job_id: str, settings: Settings) -> HindsightProfile:
        """Return the speed of a job; ask only when the whole log is folded.

        Args:
            job_id: of a job in `jobs`.
            settings: tell what is assumed where nothing was measured.
        """
        job = self._jobs[job_id]
        history = self._review().get(job.spec.history_category) or History(Epochs())
        epochs = _total_epochs(job)
        scaling = believed(job.epochs, history, job.most_replicas)
        if not math.isfinite(scaling.e1):
            work_s = job.worker_s if job.worker_s > 0 else _UNKNOWN_WORK_S
            scaling = Scaling(work_s / epochs, scaling.speedup, is_assumed=True)
        penalty = history.span_penalty
        measured_s = _means(job.epochs)
        costs = self._prices.costs(job.spec.history_category, settings)
        return HindsightProfile(
            epochs=epochs,
            costs=costs,
            scaling=scaling,
            measured_s=measured_s,
            weights=_weights(job, measured_s, costs, epochs),
            span_penalty=settings.span_penalty if penalty is None else penalty,
        )

    def _review(self) -> Mapping[str, History]:
        """Gather what the categories and the kinds of change say, once."""
        if self._histories is None:
            pooled: dict[str, Epochs] = {}
            for job in self._jobs.values():
                _settle(job.epochs)
                _pool(pooled.setdefault(job.spec.history_category, Epochs()), job)
            for epochs in pooled.values():
                _settle(epochs)
            self._histories = {category: History(epochs) for category, epochs in pooled.items()}
            self._prices = PriceList(self._jobs.values())
        return self._histories


def _total_epochs(job: Watched) -> int:
    """Return the epochs that the job had when it ended, or is expected to have."""
    done = math.ceil(job.epochs_done)
    if job.has_ended:
        return max(1, done or job.spec.epochs)
    return max(1, done, job.spec.epochs)


def _weights(job: Watched, means: Mapping[Size, float], costs: Costs, epochs: int) -> Sequence[float]:
    """Return each epoch's length relative to the mean of its size.

    A disturbed epoch's is what is left of its time without the cost of the change; where there were several
    changes, it is taken to be like the last epoch before it.
    """
    timed = {epoch: seconds / means[size] for epoch, (size, seconds) in job.timed.items()}
    single = {epoch.epoch: weight for epoch in job.disturbed if (weight := _weight(epoch, means, costs)) > 0}
    weights: list[float] = []
    usual = timed[min(timed)] if timed else 1.0
    for index in range(epochs):
        usual = timed.get(index, usual)
        weights.append(timed.get(index, single.get(index, usual)))
    return weights


def _weight(epoch: Disturbed, means: Mapping[Size, float], costs: Costs) -> float:
    """Return the weight with which the parts before and after the change make one epoch; 0 where it is unknown."""
    if epoch.after not in means or (epoch.before_s > 0 and epoch.before not in means):
        return 0.0
    before = epoch.before_s / means[epoch.before] if epoch.before_s > 0 else 0.0
    cost_s = {"start": costs.start_s, "resize": costs.resize_s, "migrate": costs.migrate_s}[epoch.change]
    return before + max(0.0, epoch.after_s - cost_s) / means[epoch.after]


def _means(epochs: Epochs) -> Mapping[Size, float]:
    packed = {(size, False): mean.mean for size, mean in epochs.packed.items()}
    return packed | {(size, True): mean.mean for size, mean in epochs.spanning.items()}


def _settle(epochs: Epochs) -> None:
    for mean in (*epochs.packed.values(), *epochs.spanning.values()):
        mean.settled, mean.settled_count = mean.mean, mean.count


def _pool(category: Epochs, job: Watched) -> None:
    for (replicas, is_spanning), seconds in job.timed.values():
        category.add(replicas, seconds, is_spanning=is_spanning)


def _submitted(hindsight: Hindsight, fact: JobSubmitted, now: float) -> None:
    spec = fact.spec
    hindsight._jobs.setdefault(spec.job_id, Watched(spec=spec, most_replicas=spec.max_replicas, counted_at=now))


def _changed(hindsight: Hindsight, fact: JobChanged, _now: float) -> None:
    if (job := hindsight._jobs.get(fact.job_id)) is not None:
        job.most_replicas = max(job.most_replicas, fact.max_replicas or 0)


def _started(hindsight: Hindsight, fact: WorkerStarted, now: float) -> None:
    if (job := hindsight._jobs.get(fact.job_id)) is not None:
        job.count_to(now)
        job.stretch.start(fact.workers, now)


def _exited(hindsight: Hindsight, fact: WorkerExited, now: float) -> None:
    if (job := hindsight._jobs.get(fact.job_id)) is not None:
        job.count_to(now)
        if job.stretch.workers:
            job.last_size = (len(job.stretch.workers), job.stretch.is_spanning)
        job.stretch.exit(fact.workers, now, is_migration=fact.cause == "migrated")


def _progressed(hindsight: Hindsight, fact: JobProgressed, now: float) -> None:
    if (job := hindsight._jobs.get(fact.job_id)) is None:
        return
    stretch = job.stretch
    if fact.epoch_s is not None and fact.epoch_s > 0 and fact.workers > 0:
        job.epochs.add(fact.workers, fact.epoch_s, is_spanning=stretch.is_spanning)
        job.timed[math.ceil(fact.epochs_done) - 1] = ((fact.workers, stretch.is_spanning), fact.epoch_s)
    before = stretch.sample
    stretch.report(fact.epochs_done, fact.workers, now)
    if (sample := stretch.sample) is not None and sample is not before and sample.epochs == 1.0:
        job.disturbed.append(_disturbed(sample, math.ceil(fact.epochs_done) - 1, job.last_size))
    job.epochs_done = max(job.epochs_done, fact.epochs_done)


def _disturbed(sample: Sample, epoch: int, last_size: Size) -> Disturbed:
    before = (sample.before_workers, sample.was_spanning)
    # Preempted in the middle of the epoch: the sample knows only that nobody was there when it started again.
    if sample.before_s > 0 and not sample.before_workers:
        before = last_size
    return Disturbed(
        epoch=epoch,
        before=before,
        before_s=sample.before_s,
        after=(sample.workers, sample.is_spanning),
        after_s=sample.after_s,
    )


def _ended(hindsight: Hindsight, fact: JobCompleted | JobFailed | JobCanceled, now: float) -> None:
    if (job := hindsight._jobs.get(fact.job_id)) is not None:
        job.count_to(now)
        # A canceled job would have gone on: what it did says nothing about how long it was.
        job.has_ended = job.has_ended or not isinstance(fact, JobCanceled)


_FOLDS: Final[Mapping[type, Callable[[Hindsight, Any, float], None]]] = {
    JobSubmitted: _submitted,
    JobChanged: _changed,
    WorkerStarted: _started,
    WorkerExited: _exited,
    JobProgressed: _progressed,
    JobCompleted: _ended,
    JobFailed: _ended,
    JobCanceled: _ended,
}
