"""What is learned from the jobs' reports: how they scale, how long they still need, what a restart costs them.

A new job starts with the history of its category (the submitted name before its suffix); its own measurements weigh
more. A category is a user's: what jobs of others report under its name counts where the user's reported nothing, for
anybody may use the name, unless `share_measurements` says that users trust each other.
Rules: an estimate depends on the events folded, the job and the settings only, not on when it is read; memory is
O(live jobs), for the categories used longest ago are forgotten; no report makes anything here raise or become NaN.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from voda.changed_keys import other_keys
from voda.domain.job import Job, JobSpec
from voda.domain.settings import Settings
from voda.domain.state import Estimate
from voda.events import types as facts
from voda.events.envelope import Event
from voda.events.message_pack import append_map
from voda.projections.base import Projection
from voda.projections.job_changes import undisturbed_epoch_s
from voda.projections.job_record import change_within_epoch
from voda.projections.learning.categories import OF_USER, Categories, CategoryMeasurements, user_of
from voda.projections.learning.means import RunningMean
from voda.projections.learning.measurements import Accuracy, JobMeasurements
from voda.projections.learning.restarts import UndisturbedSpan
from voda.projections.learning.scaling import (
    CachedEstimate,
    CategoryHistory,
    ReadEstimates,
    Scaling,
    estimate_scaling,
    is_close,
    is_material,
)

_LEAST_EPOCH_S: Final = 1e-6
_MOST_EPOCH_S: Final = 1e9
"""A report outside these limits is an error: no epoch takes less than a microsecond or more than 30 years."""
_LEAST_SAMPLES_PER_S: Final = 1e-9
_MOST_SAMPLES_PER_S: Final = 1e15
_MOST_WORKERS: Final = 100_000
_MOST_EPOCHS: Final = 10**15
"""So that products stay finite."""
_ARRAY_OF_TWO: Final = b"\x92"


Measurements = TypeVar("Measurements", JobMeasurements, CategoryMeasurements)
_State = tuple[dict[str, JobMeasurements], dict[str, CategoryMeasurements]]


class Learning(Projection):
    """The projection behind `ClusterState.estimates`."""

    def __init__(self, categories: Categories | None = None) -> None:
        self._jobs: dict[str, JobMeasurements] = {}
        self._categories = categories or Categories()
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
        return self._new_estimate(cached or CachedEstimate(spec, self._scaling(spec, settings)), job, settings)

    def estimates(self, pool: str, jobs: Mapping[str, Job], settings: Settings) -> dict[str, Estimate]:
        """Return the estimates of all jobs of a pool; most are as they were read last."""
        read = self._read.get(pool)
        if read is None or read.settings is not settings:
            read = self._read[pool] = ReadEstimates(settings)
        anew = {*other_keys(read.jobs, jobs), *[job_id for job_id in self._unread if job_id in jobs]}
        for job_id in anew:
            read.estimates[job_id] = self.estimate(jobs[job_id], settings)
        # One without measurements of its own changes with those of others.
        self._unread -= anew
        self._unread.update(job_id for job_id in anew if job_id not in self._jobs)
        if len(read.estimates) > len(jobs):
            read.estimates = {job_id: read.estimates[job_id] for job_id in jobs}
        read.jobs = dict(jobs)
        return read.estimates.copy()

    def undisturbed_span(self, job_id: str) -> UndisturbedSpan | None:
        """Return a live job's running time since its last report; read-only."""
        own = self._jobs.get(job_id)
        return own.span if own else None

    def changed_materially(self) -> bool:
        """Return whether the scaling of a job differs by a tenth or more from the one that was last read."""
        while self._outdated:
            job_id = self._outdated.pop()
            cached = self._cache[job_id]
            cached.scaling = self._scaling(cached.spec, cached.settings)
            remaining_s = self._remaining_s(cached.spec, cached.epochs_done, cached.settings, cached.scaling.e1)
            is_changed = is_material(cached.scaling_read, cached.scaling) or not is_close(
                cached.remaining_read, remaining_s
            )
            (self._changed.add if is_changed else self._changed.discard)(job_id)
        return bool(self._changed)

    def accuracy(self) -> Mapping[str, Accuracy]:
        """Return how good the predictions were, by category; only categories with a predicted, finished job."""
        return {
            name: Accuracy(category.error.count, category.error.mean)
            for name, category in sorted(self._categories.of_all_users().items())
            if category.error.count
        }

    def dump(self) -> bytes:
        buffer = bytearray(_ARRAY_OF_TWO)
        append_map(buffer, _ordered(dict(sorted(self._jobs.items()))))
        append_map(buffer, _ordered(self._categories.dump()))
        return bytes(buffer)

    def load(self, state: bytes) -> None:
        self._jobs, categories = msgspec.msgpack.decode(state, type=_State)
        self._categories.load(categories)
        self._clear_cache()

    def _clear_cache(self) -> None:
        self._histories: dict[tuple[str, bool], CategoryHistory] = {}
        """By category, and whether of samples."""
        self._cache: dict[str, CachedEstimate] = {}
        self._read: dict[str, ReadEstimates] = {}
        """By pool."""
        self._unread: set[str] = set()
        """Jobs whose estimate has changed since their pool's were read."""
        self._outdated: set[str] = set()
        """Jobs whose measurements settled anew since their estimate was read."""
        self._changed: set[str] = set()
        """Jobs whose scaling differs materially from the one last read."""
        self._members: dict[str, set[str]] = {}
        for job_id, own in self._jobs.items():
            for key in own.categories:
                self._members.setdefault(key, set()).add(job_id)

    def _new_estimate(self, cached: CachedEstimate, job: Job, settings: Settings) -> Estimate:
        spec = job.spec
        own = self._jobs.get(spec.job_id)
        if spec.job_id in self._outdated or cached.spec is not spec or cached.settings is not settings:
            cached.scaling = self._scaling(spec, settings)
        keys = _sources(own, spec, settings)
        costs = (known.restart_s for key in keys if (known := self._categories.get(key)) is not None)
        restart_s = next((cost for cost in costs if cost.count), RunningMean())
        histories = (self._history(key, in_samples=in_samples) for key in keys for in_samples in (True, False))
        penalties = (history.span_penalty for history in histories)
        span_penalty = next((penalty for penalty in penalties if penalty is not None), None)
        remaining_s = self._remaining_s(spec, job.epochs_done, settings, cached.scaling.e1)
        estimate = Estimate(
            speedup=cached.scaling.speedup,
            remaining_s=remaining_s,
            resize_cost_s=restart_s.settled if restart_s.count else settings.resize_cost_s,
            span_penalty=settings.span_penalty if span_penalty is None else span_penalty,
            is_assumed=cached.scaling.is_assumed,
        )
        if own:
            cached.spec, cached.settings, cached.epochs_done = spec, settings, job.epochs_done
            cached.scaling_read, cached.remaining_read, cached.estimate = cached.scaling, remaining_s, estimate
            self._unread.add(spec.job_id)
            self._cache[spec.job_id] = cached
            self._outdated.discard(spec.job_id)
            self._changed.discard(spec.job_id)
        return estimate

    def _scaling(self, spec: JobSpec, settings: Settings | None) -> Scaling:
        own, (key, in_samples) = self._jobs.get(spec.job_id), self._source(spec, settings)
        history = self._history(key, in_samples=in_samples)
        if own is None:
            return history.scaling(spec.max_replicas)
        return estimate_scaling(own.samples if in_samples else own.epochs, history, spec.max_replicas)

    def _source(self, spec: JobSpec, settings: Settings | None) -> tuple[str, bool]:
        """Return the key of the category that an estimate starts from, and whether work counts in samples."""
        own = self._jobs.get(spec.job_id)
        keys = _sources(own, spec, settings)
        known = ((key, one) for key in keys if (one := self._categories.get(key)) and (one.epochs or one.samples))
        key, category = next(known, (keys[-1], None))
        if own is not None and bool(own.epochs) != bool(own.samples):
            # As it reports itself, unless no epoch of its kind is known in samples.
            has_work = own.work.count or (category is not None and category.work.epochs)
            in_samples = bool(own.samples) and bool(has_work or category is None or not category.epochs)
        else:
            in_samples = category is not None and bool(category.work.epochs or not category.epochs)
        return key, in_samples

    def _remaining_s(self, spec: JobSpec, epochs_done: float, settings: Settings | None, e1: float) -> float:
        """Return the seconds left on one replica; infinite where they are not known."""
        left = _work_left(self, spec, epochs_done, settings)
        return left * e1 if left else 0.0

    def _history(self, key: str, *, in_samples: bool) -> CategoryHistory:
        if (history := self._histories.get((key, in_samples))) is None:
            measurements = self._categories.get(key) or CategoryMeasurements()
            history = CategoryHistory(measurements.samples if in_samples else measurements.epochs)
            if key in self._categories or key in self._members:
                self._histories[key, in_samples] = history
        return history

    def _use(self, key: str, own: JobMeasurements) -> CategoryMeasurements:
        """Return the measurements of a job's category, the one used last now; others may be forgotten for it."""
        used = self._categories.use(key, user_of(own.categories[0]))
        for gone in self._categories.surplus(key):
            _forget_histories(self, gone)
            self._invalidate(self._members.get(gone, ()))
        return used

    def _drop(self, job_id: str) -> JobMeasurements | None:
        if (own := self._jobs.pop(job_id, None)) is not None:
            for key in own.categories:
                members = self._members[key]
                members.discard(job_id)
                if not members:
                    del self._members[key]
                    if key not in self._categories:
                        _forget_histories(self, key)
            self._cache.pop(job_id, None)
            for job_ids in (self._unread, self._outdated, self._changed):
                job_ids.discard(job_id)
        return own

    def _invalidate(self, job_ids: Iterable[str]) -> None:
        for job_id in job_ids:
            if (cached := self._cache.get(job_id)) is not None:
                cached.estimate = None
                self._unread.add(job_id)
                self._outdated.add(job_id)


def _keys(spec: JobSpec) -> tuple[str, ...]:
    """Return the keys of the user's own category and of that of all users; one where nobody is named."""
    category = spec.history_category
    return (f"{spec.user}{OF_USER}{category}", category) if spec.user else (category,)


def _sources(own: JobMeasurements | None, spec: JobSpec, settings: Settings | None) -> tuple[str, ...]:
    """Return the keys of the categories that an estimate starts from; the first that has measurements counts."""
    keys = own.categories if own is not None else _keys(spec)
    return keys[-1:] if settings is not None and settings.share_measurements else keys


def _ordered(measurements: Mapping[str, Measurements]) -> Mapping[str, Measurements]:
    """Return the entries in the order of their keys inside: it has no meaning and must not change the bytes."""
    return {name: one.ordered() for name, one in measurements.items()}


def _work_left(learning: Learning, spec: JobSpec, epochs_done: float, settings: Settings | None) -> float:
    """Return the work left, in samples or epochs; infinite where it is not known."""
    if not spec.epochs:
        return math.inf
    key, in_samples = learning._source(spec, settings)
    epochs, done = float(min(spec.epochs, _MOST_EPOCHS)), max(0.0, epochs_done)
    if not in_samples:
        return max(0.0, epochs - done)
    own, known = learning._jobs.get(spec.job_id), learning._categories.get(key)
    if known is not None and (samples := known.work.left(done, epochs)) is not None:
        return samples * own.length(key) if own is not None else samples
    return own.work.settled * max(0.0, epochs - done) if own is not None and own.work.count else math.inf


def _samples(learning: Learning, own: JobMeasurements, epoch: int) -> float | None:
    """Return how many samples an epoch of the job has, as far as is known."""
    key = own.categories[0]
    usual = known.work.samples(epoch) if (known := learning._categories.get(key)) is not None else None
    if usual is not None:
        return usual * own.length(key)
    return own.work.settled if own.work.count else None


def _forget_histories(learning: Learning, key: str) -> None:
    for in_samples in (False, True):
        learning._histories.pop((key, in_samples), None)


@Learning.folds
def _submitted(learning: Learning, fact: facts.JobSubmitted, event: Event) -> None:
    job_id = fact.spec.job_id
    if job_id in learning._jobs:
        return
    keys, epochs = _keys(fact.spec), min(fact.spec.epochs, _MOST_EPOCHS) or 1
    spec = replace(fact.spec, max_replicas=1, epochs=epochs)
    e1 = learning._remaining_s(spec, 0.0, None, learning._scaling(spec, None).e1) / epochs
    learning._jobs[job_id] = JobMeasurements(
        categories=keys,
        predicted_e1=e1 if e1 < math.inf else None,
        lengths=tuple(RunningMean() for _ in keys),
    )
    for key in keys:
        learning._members.setdefault(key, set()).add(job_id)


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
    span, workers, now = own.span, fact.workers, event.recorded_at
    changed_at = change_within_epoch(span.changed_at, span.epochs_done, is_since_report=bool(span.changes))
    epoch_s = _within(undisturbed_epoch_s(fact, now, changed_at), _LEAST_EPOCH_S, _MOST_EPOCH_S)
    samples_per_s = _within(fact.samples_per_s, _LEAST_SAMPLES_PER_S, _MOST_SAMPLES_PER_S)
    if epoch_s is None and fact.epoch_s is not None:
        samples_per_s = None
    if 0 < workers <= _MOST_WORKERS:
        if epoch_s is not None:
            _learn_speed(learning, fact, own, epoch_s, in_samples=False)
        if samples_per_s is not None:
            _learn_speed(learning, fact, own, 1.0 / samples_per_s, in_samples=True)
    epoch = math.ceil(fact.epochs_done) - 1
    if epoch_s is not None and samples_per_s is not None and float(fact.epochs_done).is_integer():
        _learn_work(learning, fact.job_id, own, epoch, epoch_s * samples_per_s)
    span.report(fact.epochs_done, workers, now)
    if span.sample is None:
        return
    samples = _samples(learning, own, epoch) if own.samples else None
    cost_s = span.take_cost(own.epochs, 1.0) if samples is None else span.take_cost(own.samples, samples)
    if cost_s is not None:
        for key in own.categories:
            _restart_cost(learning, key, own, cost_s)


def _within(value: float | None, least: float, most: float) -> float | None:
    return value if value is not None and least <= value <= most else None


def _learn_speed(
    learning: Learning, fact: facts.JobProgressed, own: JobMeasurements, seconds: float, *, in_samples: bool
) -> None:
    """Take in how long an epoch or a sample takes on these workers."""
    is_spanning = own.span.is_spanning
    for key in own.categories:
        category = learning._use(key, own)
        means = category.samples if in_samples else category.epochs
        if means.add(fact.workers, seconds, is_spanning=is_spanning):
            _forget_histories(learning, key)
            learning._invalidate(learning._members[key])
    means = own.samples if in_samples else own.epochs
    if means.add(fact.workers, seconds, is_spanning=is_spanning):
        learning._invalidate((fact.job_id,))


def _learn_work(learning: Learning, job_id: str, own: JobMeasurements, epoch: int, samples: float) -> None:
    """Take in how many samples an epoch of the job had."""
    has_changed = own.work.add(samples)
    for key, length in zip(own.categories, own.lengths, strict=True):
        work = learning._use(key, own).work
        if work.add(epoch, samples):
            learning._invalidate(learning._members[key])
        has_changed |= length.add(samples / (work.samples(epoch) or samples))
    if has_changed:
        learning._invalidate((job_id,))


def _restart_cost(learning: Learning, key: str, own: JobMeasurements, cost_s: float) -> None:
    if learning._use(key, own).restart_s.add(cost_s):
        for job_id in learning._members[key]:
            if (cached := learning._cache.get(job_id)) is not None:
                cached.estimate = None
                learning._unread.add(job_id)


@Learning.folds
def _ended(learning: Learning, fact: facts.JobEnd, event: Event) -> None:
    if (own := learning._drop(fact.job_id)) is None or own.predicted_e1 is None:
        return
    if not isinstance(fact, facts.JobCompleted):
        return
    in_samples = bool(own.samples and own.work.count)
    if means := own.samples if in_samples else own.epochs:
        e1 = estimate_scaling(means, learning._history(own.categories[0], in_samples=in_samples), 1).e1
        epoch_s = e1 * own.work.mean if in_samples else e1
        learning._use(own.categories[-1], own).error.add(abs(own.predicted_e1 - epoch_s) / epoch_s)
