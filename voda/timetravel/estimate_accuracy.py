"""How far off the estimates of jobs were: of their work left when submitted, at a tenth, and at half of their work.

What a job really needed is known once it has completed: the samples of its own epochs, or their number where it reports
no throughput, times what one took it on one replica. An estimate is judged as it was read last by then.
Rule: pure; memory is O(live jobs), and so much for each that has completed.
"""

import math
import statistics
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from voda.domain.job import Job
from voda.domain.state import Belief, Source
from voda.events import types as facts
from voda.events.envelope import Event
from voda.projections.learning import EpochWork
from voda.projections.live import Live

MOMENTS: Final = {"submitted": 0.0, "at 10 %": 0.1, "at 50 %": 0.5}
"""Shares of a job's work."""
_STEP: Final = 1.02
"""An estimate is kept once the epochs done have grown by that factor."""


class JudgedEstimate(NamedTuple):
    """One estimate of a job that has completed."""

    moment: str
    source: Source
    factor: float
    """>= 1: by which it was off, either way; infinite where nothing was believed."""
    is_within: bool
    """Whether by no more than its spread."""


class AccuracyRow(Struct, frozen=True, kw_only=True):
    """The estimates of one moment that were known in one way."""

    moment: str
    source: Source
    jobs: int
    unknown: int
    """Of these, jobs of which nothing was believed; they are in no other figure."""
    median: float | None
    p90: float | None
    """Factors; None: all are unknown."""
    within: float | None
    """Share of the estimates that were off by no more than their spread; two of three are to be."""


class _Mark(NamedTuple):
    epochs_done: float
    remaining_s: float
    belief: Belief


class _Course(Struct):
    """What was believed of a live job in its course, and the work of its own epochs."""

    work: EpochWork
    marks: list[_Mark] = []


class EstimateAccuracy:
    """Folds a log, and judges the estimates of every job that completes."""

    def __init__(self) -> None:
        self.judged: list[JudgedEstimate] = []
        self._live = Live()
        self._courses: dict[str, _Course] = {}

    def apply(self, event: Event) -> None:
        fact = event.data
        if isinstance(fact, facts.JobCompleted):
            self._judge(fact.job_id)
        self._live.apply(event)
        match fact:
            case facts.JobSubmitted():
                self._courses.setdefault(fact.spec.job_id, _Course(EpochWork()))
                self._mark(fact.spec.job_id)
            case facts.JobProgressed() if (course := self._courses.get(fact.job_id)) is not None:
                _count(course.work, fact)
                self._mark(fact.job_id)
            case facts.JobCompleted() | facts.JobFailed() | facts.JobCanceled():
                self._courses.pop(fact.job_id, None)
            case _:
                pass

    def rows(self) -> Sequence[AccuracyRow]:
        """Return the figures, moments in their order, and of each the ways in which estimates were known."""
        return tuple(self._rows())

    def _rows(self) -> Iterator[AccuracyRow]:
        for moment in MOMENTS:
            here = [one for one in self.judged if one.moment == moment]
            for source in sorted({one.source for one in here}):
                found = [one for one in here if one.source == source]
                known = sorted(one.factor for one in found if one.factor < math.inf)
                yield AccuracyRow(
                    moment=moment,
                    source=source,
                    jobs=len(found),
                    unknown=len(found) - len(known),
                    median=statistics.median(known) if known else None,
                    p90=known[math.ceil(0.9 * len(known)) - 1] if known else None,
                    within=sum(one.is_within for one in found) / len(known) if known else None,
                )

    def _mark(self, job_id: str) -> None:
        job, course = self._live.cluster.job(job_id), self._courses[job_id]
        if job is None or (course.marks and job.epochs_done < course.marks[-1].epochs_done * _STEP):
            return
        if not course.marks or job.epochs_done > course.marks[-1].epochs_done:
            estimate = self._live.learning.estimate(job, self._live.cluster.settings(job.spec.pool))
            course.marks.append(_Mark(job.epochs_done, estimate.remaining_s, estimate.remaining_belief))

    def _judge(self, job_id: str) -> None:
        job, course = self._live.cluster.job(job_id), self._courses.get(job_id)
        if job is None or course is None or not course.marks:
            return
        total = self._truth(job, course, 0.0)
        if not 0.0 < total < math.inf:
            return
        for moment, share in MOMENTS.items():
            left = [(self._truth(job, course, mark.epochs_done), mark) for mark in course.marks]
            truth, mark = min(one for one in left if one[0] >= (1.0 - share) * total - 1e-9 * total)
            if truth <= 0:
                continue
            ratio = mark.remaining_s / truth
            factor = max(ratio, 1.0 / ratio) if 0 < ratio < math.inf else math.inf
            self.judged.append(
                JudgedEstimate(moment, mark.belief.source, factor, factor <= mark.belief.spread < math.inf)
            )

    def _truth(self, job: Job, course: _Course, epochs_done: float) -> float:
        """Return the seconds on one replica that a job which completes now has needed from then on."""
        unit = self._live.learning.work_unit(job, self._live.cluster.settings(job.spec.pool))
        epochs = math.ceil(job.epochs_done)
        samples = course.work.left(epochs_done, epochs) if unit.is_sample else None
        return unit.seconds * (max(0.0, epochs - epochs_done) if samples is None else samples)


def _count(work: EpochWork, fact: facts.JobProgressed) -> None:
    is_end = float(fact.epochs_done).is_integer()
    samples = fact.epoch_samples
    if samples is None and is_end and fact.epoch_s and fact.samples_per_s:
        samples = fact.epoch_s * fact.samples_per_s
    if samples:
        work.add(int(fact.epochs_done) - is_end, samples)
