"""Accounting: the GPU time of jobs, how long they waited and how they ended, in one window of time.

Every figure belongs to a job and a day (UTC), so that it can be summed by user, job, pool or day. Rules: a span counts
with the part of it that lies in the window and is divided at midnight; what happens at an instant counts on its day.
The time of the log never runs back, as in timeline.py.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, Literal

from msgspec import Struct

from voda.domain.job import JobSpec
from voda.events import types as facts
from voda.events.envelope import Event
from voda.projections.base import Projection
from voda.projections.jobs.changes import WorkerChanges
from voda.projections.jobs.record import JobRecord

DAY_S: Final = 86_400
UsageKey = Literal["user", "job", "pool", "day"]
_OUTCOMES: Final = {facts.JobCompleted: "completed", facts.JobFailed: "failed", facts.JobCanceled: "canceled"}


class DailyUsage(Struct, kw_only=True):
    """What one job did on one day, within the window."""

    gpu_s: float = 0.0
    """GPU-seconds held, also by workers that outlive their job."""
    running_s: float = 0.0
    """With at least one worker, until the job's end."""
    submitted: int = 0
    completed: int = 0
    failed: int = 0
    canceled: int = 0
    restarts: int = 0
    """Starts after the first."""
    resizes: int = 0
    """Changes from one planned size to another."""
    waits_s: tuple[float, ...] = ()
    """From submission to the first worker, where that came on this day."""


class UsageRow(Struct, frozen=True, kw_only=True):
    """The usage of one user, job, pool or day, or of all."""

    key: str
    jobs: int
    """That ran, were submitted or ended."""
    submitted: int
    started: int
    """For the first time."""
    completed: int
    failed: int
    canceled: int
    gpu_s: float
    running_s: float
    wait_mean_s: float | None
    """Of the jobs that started for the first time; None where none did."""
    wait_p95_s: float | None
    restarts: int
    resizes: int


class _UsageTotals(WorkerChanges, kw_only=True):
    """A job that is live or still holds workers."""

    spec: JobSpec
    submitted_at: float
    counted_at: float
    is_live: bool = True


class Usage(Projection):
    """The usage in [since, until), seconds since the epoch, of all jobs or one user's; `close` counts what runs on."""

    def __init__(self, since: float, until: float, user: str = "") -> None:
        self.since = since
        self.until = until
        self._user = user
        self.days: dict[tuple[str, int], DailyUsage] = {}
        """(job id, day since the epoch) -> usage."""
        self.specs: dict[str, JobSpec] = {}
        """Of the jobs in `days`."""
        self._now = 0.0
        self._totals: dict[str, _UsageTotals] = {}

    def begin_with(self, records: Iterable[JobRecord]) -> None:
        """Take over the jobs as they stood before the first event that is folded."""
        for record in records:
            job, workers = record.job, dict(record.job.workers)
            if not (record.is_live or workers) or not self._counts(job.spec):
                continue
            totals = self._totals[job.spec.job_id] = _UsageTotals(
                spec=job.spec,
                submitted_at=job.submitted_at,
                counted_at=job.counted_at,
                is_live=record.is_live,
                workers=workers,
                planned=len(record.planned) or None,
            )
            for name in WorkerChanges.__struct_fields__ if record.changes is not None else ():
                value = getattr(record.changes, name)
                setattr(totals, name, dict(value) if isinstance(value, dict) else value)
            self._now = max(self._now, job.counted_at)

    def apply(self, event: Event) -> None:
        if type(event.data) in self._folds:
            self._now = max(self._now, event.recorded_at)
            super().apply(event)

    def close(self) -> None:
        """Count what is under way up to the window's end; nothing is folded after that."""
        for job in self._totals.values():
            self._charge(job, max(self.until, job.counted_at))
            self._settle(job)

    def rows(self, by: UsageKey) -> list[UsageRow]:
        """Return a row for each user, job, pool or day; the most GPU time first, days in their order."""
        parts: dict[str, list[tuple[str, DailyUsage]]] = {}
        for (job_id, day), usage in self.days.items():
            parts.setdefault(_key(by, self.specs[job_id], day), []).append((job_id, usage))
        rows = [_summed(key, part) for key, part in parts.items()]
        return sorted(rows, key=lambda row: (0.0 if by == "day" else -row.gpu_s, row.key))

    def total(self) -> UsageRow:
        return _summed("total", [(job_id, usage) for (job_id, _), usage in self.days.items()])

    def _advanced(self, job_id: str) -> _UsageTotals | None:
        """Return the job with its totals up to now, ready for a change."""
        if (job := self._totals.get(job_id)) is not None:
            self._charge(job, self._now)
            if self._now != job.changed_at:
                self._settle(job)
                job.changed_at = self._now
        return job

    def _charge(self, job: _UsageTotals, now: float) -> None:
        at, end = max(job.counted_at, self.since), min(now, self.until)
        job.counted_at = now
        gpus = len(job.workers) * job.spec.gpus_per_replica
        while job.workers and at < end:
            midnight = min(end, (at // DAY_S + 1) * DAY_S)
            usage = self._day(job.spec, at)
            usage.gpu_s += gpus * (midnight - at)
            usage.running_s += midnight - at if job.is_live else 0.0
            at = midnight

    def _settle(self, job: _UsageTotals) -> None:
        """Count the net change of the job's last instant; what follows its end is none."""
        if not job.is_live:
            return
        at, starts, resizes, first = job.changed_at, job.starts, job.resizes, job.first_started_at
        WorkerChanges.settle(job)
        if not self._is_inside(at) or (starts, resizes) == (job.starts, job.resizes):
            return
        usage, is_first = self._day(job.spec, at), first is None and job.first_started_at is not None
        usage.restarts += job.starts - starts - is_first
        usage.resizes += job.resizes - resizes
        if is_first:
            usage.waits_s += (max(0.0, at - job.submitted_at),)

    def _counts(self, spec: JobSpec) -> bool:
        return self._user in ("", spec.user)

    def _is_inside(self, at: float) -> bool:
        return self.since <= at < self.until

    def _day(self, spec: JobSpec, at: float) -> DailyUsage:
        self.specs[spec.job_id] = spec
        return self.days.setdefault((spec.job_id, int(at // DAY_S)), DailyUsage())


@Usage.folds
def _submitted(usage: Usage, fact: facts.JobSubmitted, event: Event) -> None:
    spec, now = fact.spec, usage._now
    if spec.job_id in usage._totals or not usage._counts(spec):
        return
    usage._totals[spec.job_id] = _UsageTotals(spec=spec, submitted_at=now, counted_at=now)
    if usage._is_inside(now):
        usage._day(spec, now).submitted += 1


@Usage.folds
def _planned(usage: Usage, fact: facts.PlanAdopted, event: Event) -> None:
    for job_id in (*fact.placed, *fact.released):
        if (job := usage._totals.get(job_id)) is not None:
            if usage._now != job.changed_at:
                usage._settle(job)
            job.planned = len(fact.placed.get(job_id, ()))


@Usage.folds
def _started(usage: Usage, fact: facts.WorkerStarted, event: Event) -> None:
    if (job := usage._advanced(fact.job_id)) is not None:
        job.start(fact.workers)


@Usage.folds
def _exited(usage: Usage, fact: facts.WorkerExited, event: Event) -> None:
    if (job := usage._advanced(fact.job_id)) is None:
        return
    job.exit(fact.workers, fact.cause)
    if not job.is_live and not job.workers:
        del usage._totals[fact.job_id]


@Usage.folds
def _ended(usage: Usage, fact: facts.JobEnd, event: Event) -> None:
    job = usage._totals.get(fact.job_id)
    if job is None or not job.is_live:
        return
    now = usage._now
    usage._charge(job, now)
    usage._settle(job)
    job.is_live = False
    if usage._is_inside(now):
        day, outcome = usage._day(job.spec, now), _OUTCOMES[type(fact)]
        setattr(day, outcome, getattr(day, outcome) + 1)
    if not job.workers:
        del usage._totals[fact.job_id]


def _key(by: UsageKey, spec: JobSpec, day: int) -> str:
    if by == "day":
        return datetime.fromtimestamp(day * DAY_S, UTC).date().isoformat()
    return {"user": spec.user, "job": spec.job_id, "pool": spec.pool}[by]


def _summed(key: str, parts: Sequence[tuple[str, DailyUsage]]) -> UsageRow:
    waits = sorted(wait_s for _, usage in parts for wait_s in usage.waits_s)
    counts: Mapping[str, int] = {
        name: sum(getattr(usage, name) for _, usage in parts)
        for name in ("submitted", "completed", "failed", "canceled", "restarts", "resizes")
    }
    return UsageRow(
        key=key,
        jobs=len({job_id for job_id, _ in parts}),
        started=len(waits),
        gpu_s=math.fsum(usage.gpu_s for _, usage in parts),
        running_s=math.fsum(usage.running_s for _, usage in parts),
        wait_mean_s=math.fsum(waits) / len(waits) if waits else None,
        wait_p95_s=waits[math.ceil(0.95 * len(waits)) - 1] if waits else None,
        **counts,
    )
