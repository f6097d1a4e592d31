"""What each report of a job teaches: how fast it is, how much work its epochs are, what its restarts cost.

Rule: no report makes anything here raise or become NaN, and none costs more for the number of jobs of its category.
"""

import math
from typing import Final

from voda.events.observations import JobProgressed
from voda.projections.jobs.changes import undisturbed_epoch_s
from voda.projections.jobs.record import change_within_epoch
from voda.projections.learning.doubts import find_doubt, is_said_again
from voda.projections.learning.estimates import OF_A_JOB, epoch_samples
from voda.projections.learning.knowledge import Knowledge
from voda.projections.learning.measurements import JobMeasurements
from voda.projections.learning.scaling import Sizes, estimate_scaling

_LEAST_EPOCH_S: Final = 1e-6
_MOST_EPOCH_S: Final = 1e9
"""A report outside these limits is an error: no epoch takes less than a microsecond or more than 30 years."""
_LEAST_SAMPLES_PER_S: Final = 1e-9
_MOST_SAMPLES_PER_S: Final = 1e15
_LEAST_SAMPLES: Final = _LEAST_SAMPLES_PER_S * _LEAST_EPOCH_S
_MOST_SAMPLES: Final = _MOST_SAMPLES_PER_S * _MOST_EPOCH_S
_MOST_WORKERS: Final = 100_000


def learn_report(known: Knowledge, own: JobMeasurements, fact: JobProgressed, now: float) -> None:
    """Take in a report of a live job, recorded at `now`."""
    span = own.span
    if is_said_again(own.doubt, fact, span, processes=own.processes, now=now):
        own.processes = 0.0
    own.doubt = find_doubt(fact, span, declared=own.declared, processes=own.processes, now=now)
    if own.doubt is not None:
        return
    known.reported.add(fact.job_id)
    if span.workers and fact.workers and not own.processes:
        own.processes = fact.workers / len(span.workers)
    size = len(span.workers) if span.workers and fact.workers else fact.workers
    changed_at = change_within_epoch(span.changed_at, span.epochs_done, is_since_report=bool(span.changes))
    epoch_s = _within(undisturbed_epoch_s(fact, now, changed_at), _LEAST_EPOCH_S, _MOST_EPOCH_S)
    samples_per_s = _within(fact.samples_per_s, _LEAST_SAMPLES_PER_S, _MOST_SAMPLES_PER_S)
    if epoch_s is None and fact.epoch_s is not None:
        samples_per_s = None
    if 0 < size <= _MOST_WORKERS:
        if epoch_s is not None:
            _learn_speed(known, fact.job_id, size, epoch_s, in_samples=False)
        if samples_per_s is not None:
            _learn_speed(known, fact.job_id, size, 1.0 / samples_per_s, in_samples=True)
    _learn_work(known, fact, own, epoch_s * samples_per_s if epoch_s and samples_per_s else None)
    span.report(fact.epochs_done, size, now)
    _learn_restart(known, own)


def _within(value: float | None, least: float, most: float) -> float | None:
    return value if value is not None and least <= value <= most else None


def _learn_speed(known: Knowledge, job_id: str, size: int, seconds: float, *, in_samples: bool) -> None:
    """Take in how long an epoch or a sample takes on so many workers."""
    own = known.jobs[job_id]
    is_spanning = own.span.is_spanning
    for key in own.categories:
        category = known.use(key, own)
        means = category.samples if in_samples else category.epochs
        if means.add(size, seconds, is_spanning=is_spanning):
            known.settle(key)
    means = own.samples if in_samples else own.epochs
    if means.add(size, seconds, is_spanning=is_spanning):
        known.changed_jobs.add(job_id)


def _learn_work(known: Knowledge, fact: JobProgressed, own: JobMeasurements, timed: float | None) -> None:
    """Take in how many samples an epoch of the job has, once: as it knows itself, or `timed` as one ended."""
    done = fact.epochs_done
    is_end = float(done).is_integer()
    samples = _within(fact.epoch_samples, _LEAST_SAMPLES, _MOST_SAMPLES) or (timed if is_end else None)
    epoch = int(done) - is_end
    if samples is None or epoch < own.counted:
        return
    own.counted, own.last_samples = epoch + 1, samples
    has_changed = own.work.add(samples)
    for key, length in zip(own.categories, own.lengths, strict=True):
        work = known.use(key, own).work
        if (usual := work.epochs.get(epoch)) is not None:
            has_changed |= length.add(samples / usual.settled)
        if work.add(epoch, samples):
            known.settle(key)
    if has_changed:
        known.changed_jobs.add(fact.job_id)


def _learn_restart(known: Knowledge, own: JobMeasurements) -> None:
    if (sample := own.span.sample) is None:
        return
    category = known.categories.get(own.categories[0])
    samples = epoch_samples(own, category, sample.epoch) if own.samples else None
    cost_s = own.span.take_cost(own.epochs, 1.0) if samples is None else own.span.take_cost(own.samples, samples)
    if cost_s is not None:
        for key in own.categories:
            if known.use(key, own).restarts.add(cost_s):
                known.settle(key)


def learn_completion(known: Knowledge, own: JobMeasurements) -> None:
    """Take in that a job has completed, which is no live one any more."""
    if epochs := math.ceil(own.span.epochs_done):
        for key, length in zip(own.categories, own.lengths, strict=True):
            category = known.use(key, own)
            has_changed = bool(length.count and length.mean > 0 and category.lengths.add(length.mean, OF_A_JOB))
            if category.end(epochs) or has_changed:
                known.settle(key)
    in_samples = bool(own.samples and own.work.count)
    if own.predicted_e1 is not None and (means := own.samples if in_samples else own.epochs):
        history = known.history(own.categories[0], in_samples=in_samples)
        e1 = estimate_scaling(means, history, Sizes(1)).e1
        epoch_s = e1 * own.work.mean if in_samples else e1
        known.use(own.categories[-1], own).error.add(abs(own.predicted_e1 - epoch_s) / epoch_s)
