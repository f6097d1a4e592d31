"""From measurements to what is believed of a job: the work left, how it is known, and how far off it may be. Pure.

Work left is that of the epochs left, by their number, as its category has them, times how the job's own epochs compare
with those of others.
Where nobody says how many epochs there are, they are those at which jobs of the category completed lately.
"""

import math
from collections import Counter
from collections.abc import Mapping
from typing import Final, NamedTuple

from voda.domain.job import JobSpec
from voda.domain.state import ASSUMED, Belief, Source
from voda.projections.learning.categories import CategoryMeasurements
from voda.projections.learning.measurements import JobMeasurements
from voda.projections.learning.scaling import Scaling, Sizes

MOST_EPOCHS: Final = 10**15
"""So that products stay finite."""
_MOST_LENGTHS: Final = 8
"""Of those at which jobs completed, each has its work left computed."""
_OF_AN_EPOCH: Final = 0.25
OF_A_JOB: Final = math.log(2.0)
_OF_UNSEEN: Final = math.log(2.0)
"""Deviations of ln(work) of one more epoch of a job, one more job of a category, epochs never seen; as assumed before
any are measured, the last one always."""


class Evidence(NamedTuple):
    """What an estimate of a job starts from."""

    own: JobMeasurements | None
    key: str
    category: CategoryMeasurements | None
    """Of that key."""
    in_samples: bool
    """Whether work counts in samples, or in epochs that are taken to be alike."""


class WorkUnit(NamedTuple):
    """What a job's work is counted in."""

    seconds: float
    """On one replica; infinite where it is not known."""
    is_sample: bool
    """Whether it is a sample, not an epoch."""


class WorkLeft(NamedTuple):
    """Work left of a job, in samples or epochs."""

    amount: float
    """Infinite where it is not known."""
    belief: Belief
    length_source: Source


def sizes_of(spec: JobSpec) -> Sizes:
    """Return the sizes of which the speedup of a job is wanted."""
    return Sizes(spec.max_replicas, spec.requested)


def work_left(spec: JobSpec, epochs_done: float, evidence: Evidence) -> WorkLeft:
    """Return the work left of a job that has done so many epochs."""
    done = max(0.0, epochs_done)
    if spec.epochs:
        lengths: Mapping[float, int] = {float(min(spec.epochs, MOST_EPOCHS)): 1}
        source: Source = "declared"
    else:
        lengths, source = _usual_lengths(evidence.category, done), "category"
    amounts = {_amount(evidence, done, epochs): count for epochs, count in lengths.items()}
    total = sum(lengths.values())
    amount = sum(one * (count / total) for one, count in amounts.items()) if total else math.inf
    if amount == math.inf:
        return WorkLeft(amount, ASSUMED, source if lengths else "assumed")
    deviation, known = _deviation(evidence, done, max(lengths))
    if len(amounts) > 1:
        deviation = math.hypot(deviation, max(abs(math.log(max(one, 1e-9) / amount)) for one in amounts))
    is_measured = known == "measured" and source == "declared"
    return WorkLeft(amount, Belief("measured" if is_measured else "category", math.exp(deviation)), source)


def seconds_left(left: WorkLeft, scaling: Scaling) -> float:
    """Return the seconds left on one replica; infinite where they are not known."""
    return left.amount * scaling.e1 if left.amount else 0.0


def epoch_samples(own: JobMeasurements, category: CategoryMeasurements | None, epoch: int) -> float | None:
    """Return how many samples an epoch of the job has, as far as is known; the category is its first one."""
    if category is not None and (usual := category.work.samples(epoch)) is not None:
        return usual * own.length(own.categories[0])
    return own.work.settled if own.work.count else None


def _usual_lengths(category: CategoryMeasurements | None, done: float) -> Mapping[float, int]:
    """Return the numbers of epochs at which jobs completed, of those beyond `done`, and how many did."""
    ends = sorted(end for end in category.ends if end > done) if category is not None else []
    if len(ends) > _MOST_LENGTHS:
        ends = [ends[(2 * place + 1) * len(ends) // (2 * _MOST_LENGTHS)] for place in range(_MOST_LENGTHS)]
    return Counter(map(float, ends))


def _amount(evidence: Evidence, done: float, epochs: float) -> float:
    own, key, category, in_samples = evidence
    left = max(0.0, epochs - done)
    if not in_samples:
        return left
    if category is not None and (end := category.work.end):
        length = own.length(key) if own is not None else 1.0
        if own is not None and own.counted >= end:
            # It is ahead of all others: epochs behind its last one are believed to be like that.
            seen = category.work.left(done, min(float(end), epochs)) or 0.0
            return seen * length + max(0.0, epochs - max(end, done)) * own.last_samples
        return (category.work.left(done, epochs) or 0.0) * length
    return own.work.settled * left if own is not None and own.work.count else math.inf


def _deviation(evidence: Evidence, done: float, epochs: float) -> tuple[float, Source]:
    """Return the standard deviation of ln(work left), and whether the job's own epochs or those of others say so."""
    own, key, category, in_samples = evidence
    unseen = category.work.unseen(done, epochs) * _OF_UNSEEN if in_samples and category is not None else 0.0
    if own is not None and (count := own.epochs_measured(in_samples=in_samples)):
        error = own.length_error(key, _OF_AN_EPOCH) if in_samples else _OF_AN_EPOCH / math.sqrt(count)
        return math.hypot(unseen, error), "measured"
    others = category.lengths.deviation(OF_A_JOB) if category is not None else OF_A_JOB
    return math.hypot(unseen, others), "category"
