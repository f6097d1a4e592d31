"""What is learned from the jobs' reports: how they scale, how long they still need, what a restart costs them.

A new job starts with the history of its category (the submitted name before its suffix); its own measurements weigh
more. Rules: an estimate depends on the events folded, the job and the settings only, not on when it is read; memory is
O(live jobs), for the categories used longest ago are forgotten.
"""

import math
from collections.abc import Mapping

from msgspec.structs import replace

from voda.changed_keys import ChangedKeys, other_keys
from voda.domain.groups import copied
from voda.domain.job import Job, JobSpec
from voda.domain.settings import Settings
from voda.domain.state import ASSUMED, Belief, Estimate
from voda.events import types as facts
from voda.events.envelope import Event
from voda.projections.base import Projection
from voda.projections.learning.cache import CachedEstimate, ReadEstimates
from voda.projections.learning.categories import Categories
from voda.projections.learning.estimates import MOST_EPOCHS, WorkLeft, WorkUnit, seconds_left, sizes_of, work_left
from voda.projections.learning.knowledge import Knowledge, Stamps, keys_of, sources
from voda.projections.learning.means import RunningMean
from voda.projections.learning.measurements import JobMeasurements
from voda.projections.learning.reports import learn_completion, learn_report
from voda.projections.learning.scaling import Scaling, Sizes


class Learning(Projection):
    """The projection behind `ClusterState.estimates`."""

    def __init__(self, categories: Categories | None = None) -> None:
        self._known = Knowledge(categories)
        self._judged: Stamps = (0, 0, 0)
        self._clear_cache()

    def estimate(self, job: Job, settings: Settings) -> Estimate:
        """Return the estimate of the job's future; the same object while nothing changes."""
        job_id = job.spec.job_id
        cached = self._cache.get(job_id)
        if cached is not None and cached.is_of(job, settings):
            known, stamps = self._known, cached.stamps
            if known.is_current(job_id, stamps) and not known.reported.has_changed(job_id, stamps[2]):
                return cached.estimate
        return self._new_estimate(job, settings, cached)

    def estimates(self, pool: str, jobs: Mapping[str, Job], settings: Settings) -> dict[str, Estimate]:
        """Return the estimates of all jobs of a pool; most are as they were read last.

        Jobs that know what changed of them since are not compared.
        """
        read = self._read.get(pool)
        if read is None or read.settings is not settings:
            read = self._read[pool] = ReadEstimates(settings)
        changes: ChangedKeys | None = getattr(jobs, "changes", None)
        others = changes.since(read.count) if changes is not None and changes is read.changes else None
        others = other_keys(read.jobs, jobs) if others is None else others
        anew = {*others, *read.strangers, *self._known.changed_since(read.stamps)}
        for job_id in anew & jobs.keys():
            read.estimates[job_id] = self.estimate(jobs[job_id], settings)
            (read.strangers.discard if job_id in self._known.jobs else read.strangers.add)(job_id)
        if len(read.estimates) > len(jobs):
            for job_id in read.estimates.keys() - jobs.keys():
                del read.estimates[job_id]
            read.strangers &= jobs.keys()
        read.jobs, read.stamps = copied(jobs), self._known.stamps
        read.changes, read.count = changes, 0 if changes is None else changes.count
        return read.estimates.copy()

    def measurements(self, job_id: str) -> JobMeasurements | None:
        """Return what a live job has reported; read-only."""
        return self._known.jobs.get(job_id)

    def work_unit(self, job: Job, settings: Settings) -> WorkUnit:
        """Return what the job's work is counted in."""
        evidence = self._known.evidence(self._known.jobs.get(job.spec.job_id), job.spec, settings)
        return WorkUnit(self._known.scaling(evidence, sizes_of(job.spec)).e1, evidence.in_samples)

    def changed_materially(self) -> bool:
        """Return whether the scaling of a job, or of a new job of a category, differs by a tenth or more from the one
        that was last read.
        """
        changed_jobs = self._known.changed_jobs.since(self._judged[0])
        changed_categories = self._known.changed_categories.since(self._judged[1])
        self._judged = self._known.stamps
        for job_id in self._cache if changed_jobs is None else changed_jobs:
            self._judge((True, job_id), self._cache.get(job_id), self._known.jobs.get(job_id))
        for key in self._read_last if changed_categories is None else changed_categories:
            # One of its members stands for all, without what it reported itself.
            self._judge((False, key), self._read_last.get(key), None)
        return bool(self._material)

    def errors(self) -> Mapping[str, RunningMean]:
        """Return category -> |predicted - measured| / measured, of a mean epoch's time on one replica."""
        found = self._known.categories.of_all_users()
        return {name: found[name].error for name in sorted(found) if found[name].error.count}

    def dump(self) -> bytes:
        return self._known.dump()

    def load(self, state: bytes) -> None:
        self._known.load(state)
        self._clear_cache()

    def _clear_cache(self) -> None:
        self._cache: dict[str, CachedEstimate] = {}
        self._read: dict[str, ReadEstimates] = {}
        """By pool."""
        self._read_last: dict[str, CachedEstimate] = {}
        """By category: what a new job like its member that was read last is believed to be."""
        self._judged = (0, 0, 0)
        self._material: set[tuple[bool, str]] = set()
        """Jobs (True) and categories (False) whose scaling differs materially from the one last read."""

    def _judge(self, name: tuple[bool, str], cached: CachedEstimate | None, own: JobMeasurements | None) -> None:
        if cached is not None:
            evidence = self._known.evidence(own, cached.spec, cached.settings)
            scaling = self._known.scaling(evidence, sizes_of(cached.spec))
            remaining_s = seconds_left(work_left(cached.spec, cached.epochs_done, evidence), scaling)
            is_material = cached.differs(scaling, remaining_s)
            (self._material.add if is_material else self._material.discard)(name)

    def _new_estimate(self, job: Job, settings: Settings, cached: CachedEstimate | None) -> Estimate:
        spec, own = job.spec, self._known.jobs.get(job.spec.job_id)
        evidence = self._known.evidence(own, spec, settings)
        if cached is not None and cached.is_like(spec, settings) and self._known.is_current(spec.job_id, cached.stamps):
            scaling = cached.scaling
        else:
            scaling = self._known.scaling(evidence, sizes_of(spec))
        estimate = self._estimate(spec, settings, work_left(spec, job.epochs_done, evidence), scaling)
        if own is not None:
            stamps = self._known.stamps
            self._cache[spec.job_id] = CachedEstimate(estimate, scaling, job, settings, stamps)
            self._material.discard((True, spec.job_id))
            if any((read := self._read_last.get(key)) is None or read.stamps != stamps for key in own.categories):
                self._note_reading(job, settings, own)
        return estimate

    def _estimate(self, spec: JobSpec, settings: Settings, left: WorkLeft, scaling: Scaling) -> Estimate:
        keys = sources(self._known.jobs.get(spec.job_id), spec, settings)
        costs = (known.restarts for key in keys if (known := self._known.categories.get(key)) is not None)
        restarts = next((cost for cost in costs if cost.recent), None)
        histories = (self._known.history(key, in_samples=in_samples) for key in keys for in_samples in (True, False))
        penalties = (history.span_penalty for history in histories)
        span_penalty = next((penalty for penalty in penalties if penalty is not None), None)
        remaining_s = seconds_left(left, scaling)
        return Estimate(
            speedup=scaling.speedup,
            speedup_belief=Belief(scaling.source, scaling.spread),
            remaining_s=remaining_s,
            remaining_belief=left.belief if remaining_s < math.inf else ASSUMED,
            length_source=left.length_source,
            resize_cost_s=restarts.settled if restarts is not None else settings.resize_cost_s,
            resize_cost_belief=Belief("category", restarts.spread) if restarts is not None else Belief("declared"),
            span_penalty=settings.span_penalty if span_penalty is None else span_penalty,
        )

    def _note_reading(self, job: Job, settings: Settings, own: JobMeasurements) -> None:
        """Keep what a job without reports of its own would be believed to be, for all of its categories' members."""
        evidence = self._known.evidence(None, job.spec, settings)
        scaling = self._known.scaling(evidence, sizes_of(job.spec))
        estimate = self._estimate(job.spec, settings, work_left(job.spec, job.epochs_done, evidence), scaling)
        read = CachedEstimate(estimate, scaling, job, settings, self._known.stamps)
        for key in own.categories:
            self._read_last[key] = read
            self._material.discard((False, key))

    def _forget(self, job_id: str, own: JobMeasurements) -> None:
        """Forget what was read of a job that has ended."""
        cached = self._cache.pop(job_id, None)
        self._material.discard((True, job_id))
        for key in own.categories:
            read = self._read_last.get(key)
            if read is not None and (key not in self._known.members or (cached and read.spec is cached.spec)):
                # What else was read of its kind is read again, now that one has ended.
                del self._read_last[key]
                self._material.discard((False, key))


@Learning.folds
def _submitted(learning: Learning, fact: facts.JobSubmitted, event: Event) -> None:
    known, spec = learning._known, fact.spec
    if spec.job_id in known.jobs:
        return
    epochs = min(spec.epochs, MOST_EPOCHS) or 1
    evidence = known.evidence(None, spec, None)
    left = work_left(replace(spec, epochs=epochs), 0.0, evidence)
    e1 = seconds_left(left, known.scaling(evidence, Sizes(1, spec.requested))) / epochs
    keys = keys_of(spec)
    own = JobMeasurements(
        categories=keys,
        predicted_e1=e1 if e1 < math.inf else None,
        lengths=tuple(RunningMean() for _ in keys),
        declared=spec.epochs,
    )
    known.add(spec.job_id, own)


@Learning.folds
def _changed(learning: Learning, fact: facts.JobChanged, event: Event) -> None:
    if fact.epochs is not None and (own := learning.measurements(fact.job_id)) is not None:
        own.declared = fact.epochs


@Learning.folds
def _started(learning: Learning, fact: facts.WorkerStarted, event: Event) -> None:
    if (own := learning.measurements(fact.job_id)) is not None:
        own.span.start(fact.workers, event.recorded_at)


@Learning.folds
def _exited(learning: Learning, fact: facts.WorkerExited, event: Event) -> None:
    if (own := learning.measurements(fact.job_id)) is not None:
        own.span.exit(fact.workers, event.recorded_at, is_migration=fact.cause == "migrated")


@Learning.folds
def _failed(learning: Learning, fact: facts.ProgramFailed, event: Event) -> None:
    if (own := learning.measurements(fact.job_id)) is not None:
        own.span.begin_anew(event.recorded_at)


@Learning.folds
def _progressed(learning: Learning, fact: facts.JobProgressed, event: Event) -> None:
    if (own := learning.measurements(fact.job_id)) is not None:
        learn_report(learning._known, own, fact, event.recorded_at)


@Learning.folds
def _ended(learning: Learning, fact: facts.JobEnd, event: Event) -> None:
    own = learning._known.drop(fact.job_id)
    if own is not None:
        learning._forget(fact.job_id, own)
        if isinstance(fact, facts.JobCompleted):
            learn_completion(learning._known, own)
