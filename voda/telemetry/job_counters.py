"""Follows the log's events, to count what they come to: starts, resizes, preemptions, and how long each took.

Rules: what is seen of a job at one instant is one change; an event costs O(1), a plan O(jobs placed).
"""

from msgspec import Struct

from voda import metrics
from voda.events import types as facts
from voda.events.envelope import Event
from voda.metrics import Telemetry
from voda.projections.jobs.registry import JobRegistry


class _Seen(Struct, kw_only=True):
    """What was counted of a live job so far."""

    size: int = 0
    has_started: bool = False
    migrations: int = 0
    decided_at: float | None = None
    """Since when it is on its way to the plan; None: it is there."""
    cause: str = ""
    size_before: int = 0


class _Change(Struct, frozen=True, kw_only=True):
    """How a job stands after the latest event of an instant."""

    pool: str
    size: int
    planned: int
    migrations: int
    is_moving: bool
    """Whether workers left that will be back on another node."""
    is_canceling: bool
    is_halted: bool
    """By a user: then no plan takes its workers for other jobs."""


class JobCounters:
    """Feeds telemetry from each event, once the job registry has folded it."""

    def __init__(self, telemetry: Telemetry, job_registry: JobRegistry) -> None:
        self._telemetry = telemetry
        self._job_registry = job_registry
        self._changed_at = 0.0
        self._changes: dict[str, _Change] = {}
        """Of that instant, by job; to be counted."""
        self._jobs = {
            record.spec.job_id: _Seen(
                size=len(record.job.workers),
                has_started=record.job.first_started_at is not None,
                migrations=record.migrations,
            )
            for record in job_registry.jobs().values()
            if record.is_live
        }

    def see(self, event: Event) -> None:
        """Count an event that has just been folded."""
        if event.recorded_at != self._changed_at:
            self.settle()
            self._changed_at = event.recorded_at
        self._telemetry.count(metrics.EVENTS, event.type)
        match event.data:
            case facts.JobSubmitted(spec=spec):
                self._jobs[spec.job_id] = _Seen()
                self._telemetry.count(metrics.JOBS_SUBMITTED, spec.pool)
            case facts.WorkerStarted() | facts.WorkerExited() as fact:
                self._see_workers(fact)
            case facts.PlanAdopted() as fact:
                self._see_plan(fact, event.recorded_at)
            case facts.JobCompleted(job_id=job_id) | facts.JobFailed(job_id=job_id) | facts.JobCanceled(job_id=job_id):
                self._see_end(job_id)
            case facts.JobCancelRequested(job_id=job_id):
                if (record := self._job_registry.job(job_id)) is not None:
                    self._telemetry.count(metrics.CANCELS_REQUESTED, record.spec.pool)
            case facts.JobQueueLevelChanged(pool=pool):
                self._telemetry.count(metrics.QUEUE_MOVES, pool)
            case facts.LeaderElected(pool=pool):
                self._telemetry.count(metrics.ELECTIONS, pool)
            case _:
                pass

    def settle(self) -> None:
        """Count the changes of the last instant as what they came to."""
        for job_id, change in self._changes.items():
            if (seen := self._jobs.get(job_id)) is not None and not change.is_moving:
                self._settle(seen, change)
        self._changes.clear()

    def _settle(self, seen: _Seen, change: _Change) -> None:
        pool, before, after = change.pool, seen.size, change.size
        seen.size = after
        if change.migrations > seen.migrations:
            self._telemetry.count(metrics.MIGRATIONS, pool, by=change.migrations - seen.migrations)
        seen.migrations = change.migrations
        if before > 0 == after:
            self._lose_all(seen, change)
        elif seen.decided_at is not None:
            if after == change.planned:
                self._arrive(pool, seen)
        elif before == 0 < after:
            self._telemetry.count(metrics.STARTS, pool)
        elif before != after:
            self._telemetry.count(metrics.RESIZES, pool, _direction(before, after), "worker.exited")

    def _lose_all(self, seen: _Seen, change: _Change) -> None:
        if change.is_canceling:
            return
        if change.planned:
            self._telemetry.count(metrics.INTERRUPTIONS, change.pool)
            seen.decided_at, seen.cause, seen.size_before = self._changed_at, "worker.exited", 0
        else:
            if not change.is_halted:
                self._telemetry.count(metrics.PREEMPTIONS, change.pool)
            seen.decided_at = None

    def _arrive(self, pool: str, seen: _Seen) -> None:
        """Count a job that has all the workers that were planned, however many instants it took."""
        assert seen.decided_at is not None
        span_s = max(0.0, self._changed_at - seen.decided_at)
        before, after = seen.size_before, seen.size
        seen.decided_at = None
        if before == 0 < after:
            self._telemetry.count(metrics.STARTS, pool)
            self._telemetry.observe(metrics.START_DURATION, span_s, pool)
        elif before != after:
            direction = _direction(before, after)
            self._telemetry.count(metrics.RESIZES, pool, direction, seen.cause)
            self._telemetry.observe(metrics.RESIZE_DURATION, span_s, pool, direction)

    def _see_workers(self, fact: facts.WorkerStarted | facts.WorkerExited) -> None:
        record, seen = self._job_registry.job(fact.job_id), self._jobs.get(fact.job_id)
        if record is None:
            return
        pool = record.spec.pool
        if isinstance(fact, facts.WorkerStarted):
            self._telemetry.count(metrics.WORKERS_STARTED, pool, by=len(fact.workers))
        else:
            self._telemetry.count(metrics.WORKERS_EXITED, pool, fact.cause, by=len(fact.workers))
        if seen is None:
            return
        if isinstance(fact, facts.WorkerExited) and fact.cause in facts.LASTING_CAUSES:
            # Workers that are done make no resize.
            seen.size = max(0, seen.size - len(fact.workers))
        if not seen.has_started and record.job.first_started_at is not None:
            seen.has_started = True
            self._telemetry.observe(
                metrics.QUEUE_WAIT, max(0.0, record.job.first_started_at - record.job.submitted_at), pool
            )
        self._changes[fact.job_id] = _Change(
            pool=pool,
            size=len(record.job.workers),
            planned=len(record.planned),
            migrations=record.migrations,
            is_moving=record.changes is not None and bool(record.changes.moving),
            is_canceling=record.is_canceling,
            is_halted=record.is_halted,
        )

    def _see_plan(self, fact: facts.PlanAdopted, now: float) -> None:
        # What was seen before was not done because of this plan.
        self.settle()
        self._telemetry.count(metrics.PLANS, fact.pool, fact.cause)
        for job_id in (*fact.placed, *fact.released):
            if (seen := self._jobs.get(job_id)) is None:
                continue
            is_there = len(fact.placed.get(job_id, ())) == seen.size
            if is_there and seen.decided_at is not None:
                # On its way to another size, but it has become as large as it shall be.
                self._arrive(fact.pool, seen)
            elif not is_there:
                if seen.decided_at is None:
                    seen.size_before = seen.size
                seen.decided_at, seen.cause = now, fact.cause

    def _see_end(self, job_id: str) -> None:
        record = self._job_registry.job(job_id)
        if self._jobs.pop(job_id, None) is None or record is None or record.finished_at is None:
            return
        labels = record.spec.pool, str(record.phase)
        self._telemetry.count(metrics.JOBS_ENDED, *labels)
        self._telemetry.observe(metrics.COMPLETION, max(0.0, record.finished_at - record.job.submitted_at), *labels)


def _direction(before: int, after: int) -> str:
    return "grow" if after > before else "shrink"
