"""What a whole log shows of its jobs: how fast each one really was, how long it was, what its restarts cost.

Rule: pure; what was measured is taken as it was measured, epoch by epoch, and only what never happened is estimated:
through the scheduler's own laws, but with all measurements instead of those up to some moment.
"""

import math
from collections.abc import Callable, Mapping, Sequence
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
from voda.projections.measured import Epochs, Mean
from voda.projections.restarts import Sample, Stretch
from voda.projections.scaling import Scaling
from voda.simulator.profile import Costs

Change = Literal["start", "resize", "migrate"]
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


class Watched(Struct, kw_only=True):
    """One job's story, as far as speed goes."""

    spec: JobSpec
    most_replicas: int
    epochs: Epochs = field(default_factory=Epochs)
    stretch: Stretch = field(default_factory=Stretch)
    samples: list[Sample] = []
    timed: dict[int, tuple[int, bool, float]] = {}
    """Epoch (from 0) -> replicas, whether they spanned nodes, seconds."""
    epochs_done: float = 0.0
    has_ended: bool = False
    counted_at: float = 0.0
    worker_s: float = 0.0
    """Sum over its workers of the seconds they were there."""

    def count_to(self, now: float) -> None:
        """Carry the worker seconds on to `now`."""
        self.worker_s += len(self.stretch.workers) * max(0.0, now - self.counted_at)
        self.counted_at = now


class Hindsight:
    """Projection of a whole log, from which the profiles of its jobs are made."""

    def __init__(self) -> None:
        self._jobs: dict[str, Watched] = {}
        self._histories: dict[str, History] | None = None
        self._costs: dict[tuple[str, Change], Mean] = {}

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
        return HindsightProfile(
            epochs=epochs,
            costs=self._costs_of(job.spec.history_category, settings),
            scaling=scaling,
            measured_s=measured_s,
            weights=_weights(job, measured_s, epochs),
            span_penalty=settings.span_penalty if penalty is None else penalty,
        )

    def _review(self) -> Mapping[str, History]:
        """Gather what the categories and the kinds of change say, once."""
        if self._histories is None:
            pooled: dict[str, Epochs] = {}
            for job in self._jobs.values():
                category = job.spec.history_category
                _settle(job.epochs)
                _pool(pooled.setdefault(category, Epochs()), job)
                for sample in job.samples:
                    if (cost_s := Stretch(sample=sample).judged(job.epochs)) is not None:
                        self._costs.setdefault((category, _kind(sample)), Mean()).add(cost_s)
            for epochs in pooled.values():
                _settle(epochs)
            self._histories = {category: History(epochs) for category, epochs in pooled.items()}
        return self._histories

    def _costs_of(self, category: str, settings: Settings) -> Costs:
        of_kind = {kind: mean.mean for (name, kind), mean in self._costs.items() if name == category}
        usual_s = sum(of_kind.values()) / len(of_kind) if of_kind else settings.resize_cost_s
        start_s, resize_s, migrate_s = (of_kind.get(kind, usual_s) for kind in ("start", "resize", "migrate"))
        return Costs(start_s=start_s, resize_s=resize_s, migrate_s=migrate_s)


def _kind(sample: Sample) -> Change:
    if not sample.before_workers:
        return "start"
    return "migrate" if sample.before_workers == sample.workers else "resize"


def _total_epochs(job: Watched) -> int:
    """Return the epochs that the job had when it ended, or is expected to have."""
    done = math.ceil(job.epochs_done)
    if job.has_ended:
        return max(1, done or job.spec.epochs)
    return max(1, done, job.spec.epochs)


def _weights(job: Watched, measured_s: Mapping[tuple[int, bool], float], epochs: int) -> Sequence[float]:
    """Return each epoch's length relative to the mean; one that was disturbed is like the last one before it."""
    weights: list[float] = []
    weight = 1.0
    for epoch in range(epochs):
        if (timed := job.timed.get(epoch)) is not None:
            replicas, is_spanning, seconds = timed
            weight = seconds / measured_s[replicas, is_spanning]
        weights.append(weight)
    return weights


def _means(epochs: Epochs) -> Mapping[tuple[int, bool], float]:
    packed = {(size, False): mean.mean for size, mean in epochs.packed.items()}
    return packed | {(size, True): mean.mean for size, mean in epochs.spanning.items()}


def _settle(epochs: Epochs) -> None:
    for mean in (*epochs.packed.values(), *epochs.spanning.values()):
        mean.settled, mean.settled_count = mean.mean, mean.count


def _pool(category: Epochs, job: Watched) -> None:
    for replicas, is_spanning, seconds in job.timed.values():
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
        job.stretch.exit(fact.workers, now, is_migration=fact.cause == "migrated")


def _progressed(hindsight: Hindsight, fact: JobProgressed, now: float) -> None:
    if (job := hindsight._jobs.get(fact.job_id)) is None:
        return
    stretch = job.stretch
    if fact.epoch_s is not None and fact.epoch_s > 0 and fact.workers > 0:
        job.epochs.add(fact.workers, fact.epoch_s, is_spanning=stretch.is_spanning)
        job.timed[math.ceil(fact.epochs_done) - 1] = (fact.workers, stretch.is_spanning, fact.epoch_s)
    before = stretch.sample
    stretch.report(fact.epochs_done, fact.workers, now)
    if stretch.sample is not None and stretch.sample is not before:
        job.samples.append(stretch.sample)
    job.epochs_done = max(job.epochs_done, fact.epochs_done)


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
