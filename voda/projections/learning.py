"""What is learned from the jobs' reports: how they scale, how long they still need, what a restart costs them.

A new job starts with the history of its category (the submitted name before its suffix); its own measurements weigh
more. Rules: an estimate depends on the events folded, the job and the settings only, not on when it is read; memory
is O(live jobs + categories); no report makes anything here raise or become NaN.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from voda.domain.job import Job, JobSpec
from voda.domain.settings import Settings
from voda.domain.state import Estimate
from voda.events import types as facts
from voda.events.envelope import Event
from voda.projections.base import Projection
from voda.projections.job_changes import undisturbed_epoch_s
from voda.projections.measurements import EpochDrift, EpochMeans, RunningMean, UndisturbedSpan
from voda.projections.scaling import CategoryHistory, Scaling, estimate_scaling, is_material

_LEAST_EPOCH_S: Final = 1e-6
_MOST_EPOCH_S: Final = 1e9
"""A report outside these limits is an error: no epoch takes less than a microsecond or more than 30 years."""
_LEAST_SAMPLES_PER_S: Final = 1e-9
_MOST_SAMPLES_PER_S: Final = 1e15
_MOST_WORKERS: Final = 100_000
_MOST_EPOCHS: Final = 10**15
"""So that products stay finite."""


class Accuracy(NamedTuple):
    """How well voda predicted the work of a category's finished jobs when they were submitted."""

    jobs: int
    """Finished jobs that had a prediction."""
    mean_error: float
    """Mean of |predicted - measured| / measured, of an epoch's time on one replica."""


class CategoryMeasurements(Struct, kw_only=True):
    epochs: EpochMeans = msgspec.field(default_factory=EpochMeans)
    restart_s: RunningMean = msgspec.field(default_factory=RunningMean)
    error: RunningMean = msgspec.field(default_factory=RunningMean)


class JobMeasurements(Struct, kw_only=True):
    category: str
    predicted_e1: float | None
    """Seconds of an epoch on one replica, as estimated when it was submitted."""
    epochs: EpochMeans = msgspec.field(default_factory=EpochMeans)
    drift: EpochDrift = msgspec.field(default_factory=EpochDrift, name="pace")
    span: UndisturbedSpan = msgspec.field(default_factory=UndisturbedSpan, name="stretch")


Measurements = TypeVar("Measurements", JobMeasurements, CategoryMeasurements)
_State = tuple[dict[str, JobMeasurements], dict[str, CategoryMeasurements]]


class _CachedEstimate:
    """The last estimate of a job, and what it was made from. Not part of the state."""

    __slots__ = ("epochs_done", "estimate", "scaling", "scaling_read", "settings", "spec")

    def __init__(self, spec: JobSpec, scaling: Scaling) -> None:
        self.spec = spec
        self.scaling = self.scaling_read = scaling
        self.estimate: Estimate | None = None
        self.epochs_done = 0.0
        self.settings: Settings | None = None


class Learning(Projection):
    """The projection behind `ClusterState.estimates`."""

    def __init__(self) -> None:
        self._jobs: dict[str, JobMeasurements] = {}
        self._categories: dict[str, CategoryMeasurements] = {}
        self._clear_cache()

    def estimate(self, job: Job, settings: Settings) -> Estimate:
        """Return the estimate of the job's future; the same object while nothing changes."""
        spec = job.spec
        cached = self._cache.get(spec.job_id)
        if (
            cached is not None
            and (measurements := cached.estimate) is not None
            and cached.epochs_done == job.epochs_done
            and cached.spec is spec
            and cached.settings is settings
        ):
            return measurements
        return self._new_estimate(cached or _CachedEstimate(spec, self._scaling(spec)), job, settings)

    def undisturbed_span(self, job_id: str) -> UndisturbedSpan | None:
        """Return a live job's running time since its last report; read-only."""
        own = self._jobs.get(job_id)
        return own.span if own else None

    def changed_materially(self) -> bool:
        """Return whether the scaling of a job differs by a tenth or more from the one that was last read."""
        while self._outdated:
            job_id = self._outdated.pop()
            cached = self._cache[job_id]
            cached.scaling = self._scaling(cached.spec)
            (self._changed.add if is_material(cached.scaling_read, cached.scaling) else self._changed.discard)(job_id)
        return bool(self._changed)

    def accuracy(self) -> Mapping[str, Accuracy]:
        """Return how good the predictions were, by category; only categories with a predicted, finished job."""
        return {
            name: Accuracy(category.error.count, category.error.mean)
            for name, category in sorted(self._categories.items())
            if category.error.count
        }

    def dump(self) -> bytes:
        return msgspec.msgpack.encode((_ordered(self._jobs), _ordered(self._categories)))

    def load(self, state: bytes) -> None:
        self._jobs, self._categories = msgspec.msgpack.decode(state, type=_State)
        self._clear_cache()

    def _clear_cache(self) -> None:
        self._histories: dict[str, CategoryHistory] = {}
        self._cache: dict[str, _CachedEstimate] = {}
        self._outdated: set[str] = set()
        """Jobs whose measurements settled anew since their estimate was read."""
        self._changed: set[str] = set()
        """Jobs whose scaling differs materially from the one last read."""
        self._members: dict[str, set[str]] = {}
        for job_id, own in self._jobs.items():
            self._members.setdefault(own.category, set()).add(job_id)

    def _new_estimate(self, cached: _CachedEstimate, job: Job, settings: Settings) -> Estimate:
        spec = job.spec
        own = self._jobs.get(spec.job_id)
        if spec.job_id in self._outdated or cached.spec is not spec:
            cached.scaling = self._scaling(spec)
        category = own.category if own else spec.history_category
        restart_s = self._categories[category].restart_s if category in self._categories else RunningMean()
        span_penalty = self._history(category).span_penalty
        estimate = Estimate(
            speedup=cached.scaling.speedup,
            remaining_s=_remaining_s(job, cached.scaling.e1),
            resize_cost_s=restart_s.settled if restart_s.count else settings.resize_cost_s,
            span_penalty=settings.span_penalty if span_penalty is None else span_penalty,
            is_assumed=cached.scaling.is_assumed,
        )
        if own:
            cached.spec, cached.settings, cached.epochs_done = spec, settings, job.epochs_done
            cached.scaling_read, cached.estimate = cached.scaling, estimate
            self._cache[spec.job_id] = cached
            self._outdated.discard(spec.job_id)
            self._changed.discard(spec.job_id)
        return estimate

    def _scaling(self, spec: JobSpec) -> Scaling:
        if (own := self._jobs.get(spec.job_id)) is None:
            return self._history(spec.history_category).scaling(spec.max_replicas)
        scaling = estimate_scaling(own.epochs, self._history(own.category), spec.max_replicas)
        return replace(scaling, e1=scaling.e1 * own.drift.settled)

    def _history(self, category: str) -> CategoryHistory:
        if category not in self._histories:
            measurements = self._categories.get(category)
            self._histories[category] = CategoryHistory(measurements.epochs if measurements else EpochMeans())
        return self._histories[category]

    def _drop(self, job_id: str) -> JobMeasurements | None:
        if (own := self._jobs.pop(job_id, None)) is not None:
            self._members[own.category].discard(job_id)
            self._cache.pop(job_id, None)
            self._outdated.discard(job_id)
            self._changed.discard(job_id)
        return own

    def _invalidate(self, job_ids: Iterable[str]) -> None:
        for job_id in job_ids:
            if (cached := self._cache.get(job_id)) is not None:
                cached.estimate = None
                self._outdated.add(job_id)


def _ordered(measurements: Mapping[str, Measurements]) -> Mapping[str, Measurements]:
    """Return the entries sorted: their order has no meaning and must not change the bytes."""
    return {name: replace(one, epochs=one.epochs.ordered()) for name, one in sorted(measurements.items())}


def _remaining_s(job: Job, e1: float) -> float:
    if not job.spec.epochs:
        return math.inf
    left = max(0.0, min(job.spec.epochs, _MOST_EPOCHS) - max(0.0, job.epochs_done))
    return left * e1 if left else 0.0


@Learning.folds
def _submitted(learning: Learning, fact: facts.JobSubmitted, event: Event) -> None:
    job_id = fact.spec.job_id
    if job_id in learning._jobs:
        return
    category = fact.spec.history_category
    e1 = learning._history(category).scaling(1).e1
    learning._jobs[job_id] = JobMeasurements(category=category, predicted_e1=e1 if e1 < math.inf else None)
    learning._categories.setdefault(category, CategoryMeasurements())
    learning._members.setdefault(category, set()).add(job_id)


@Learning.folds
def _started(learning: Learning, fact: facts.WorkerStarted, event: Event) -> None:
    if (own := learning._jobs.get(fact.job_id)) is not None:
        own.span.start(fact.workers, event.recorded_at)


@Learning.folds
def _exited(learning: Learning, fact: facts.WorkerExited, event: Event) -> None:
    if (own := learning._jobs.get(fact.job_id)) is not None:
        own.span.exit(fact.workers, event.recorded_at, is_migration=fact.cause == "migrated")


@Learning.folds
def _progressed(learning: Learning, fact: facts.JobProgressed, event: Event) -> None:
    if (own := learning._jobs.get(fact.job_id)) is None:
        return
    workers, span = fact.workers, own.span
    epoch_s = undisturbed_epoch_s(fact, event.recorded_at, span.changed_at if span.changes else -math.inf)
    if epoch_s is not None and _LEAST_EPOCH_S <= epoch_s <= _MOST_EPOCH_S and 0 < workers <= _MOST_WORKERS:
        category, is_spanning = own.category, span.is_spanning
        samples_per_s = fact.samples_per_s
        if samples_per_s is not None and _LEAST_SAMPLES_PER_S <= samples_per_s <= _MOST_SAMPLES_PER_S:
            epoch_s, has_changed = own.drift.normalise(epoch_s, samples_per_s)
            epoch_s = min(max(epoch_s, _LEAST_EPOCH_S), _MOST_EPOCH_S)
            if has_changed:
                learning._invalidate((fact.job_id,))
        if learning._categories[category].epochs.add(workers, epoch_s, is_spanning=is_spanning):
            learning._histories.pop(category, None)
            learning._invalidate(learning._members[category])
        if own.epochs.add(workers, epoch_s, is_spanning=is_spanning):
            learning._invalidate((fact.job_id,))
    span.report(fact.epochs_done, workers, event.recorded_at)
    if span.sample and (cost_s := span.take_cost(own.epochs, own.drift.latest)) is not None:
        _restart_cost(learning, own.category, cost_s)


def _restart_cost(learning: Learning, category: str, cost_s: float) -> None:
    if learning._categories[category].restart_s.add(cost_s):
        for job_id in learning._members[category]:
            if (cached := learning._cache.get(job_id)) is not None:
                cached.estimate = None


@Learning.folds
def _ended(learning: Learning, fact: facts.JobEnd, event: Event) -> None:
    if (own := learning._drop(fact.job_id)) is None or own.predicted_e1 is None:
        return
    if isinstance(fact, facts.JobCompleted) and own.epochs.points():
        e1 = estimate_scaling(own.epochs, learning._history(own.category), 1).e1
        learning._categories[own.category].error.add(abs(own.predicted_e1 - e1) / e1)
