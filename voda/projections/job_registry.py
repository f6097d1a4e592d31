"""Everything a user sees about each job, live and ended.

Rules: folding an event costs O(1), a plan O(jobs placed); at most 10,000 ended jobs are kept, the longest ended are
forgotten, but never that they were there. Manifests are not kept: the event at `submitted_position` holds it.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Final

import msgspec
from msgspec.structs import replace

from voda.domain.job import Phase
from voda.events.envelope import Event
from voda.events.spec_changes import respecified
from voda.events.types import (
    ActionFailed,
    JobCanceled,
    JobCancelRequested,
    JobChanged,
    JobCompleted,
    JobFailed,
    JobPriorityChanged,
    JobProgressed,
    JobRegistered,
    JobStalled,
    JobSubmitted,
    PlanAdopted,
    WorkerExited,
    WorkerStarted,
)
from voda.projections.job_index import JobIndex
from voda.projections.records import JobRecord, new_record

_MOST_ENDED: Final = 10_000
_MOST_ENDED_REPORTS: Final = 200_000
"""Of all ended jobs together, some 75 bytes each; those of the jobs that ended first are forgotten first."""

_Name = tuple[str, str]
"""Namespace and name."""
_State = tuple[list[JobRecord], list[str], list[str], dict[str, dict[str, int]], bytes]


class JobRegistry:
    """Projection of all jobs, for those who ask about them.

    Args:
        most_ended: ended jobs that are kept.
    """

    FORMAT: ClassVar[str] = "roster-1"

    def __init__(self, most_ended: int = _MOST_ENDED) -> None:
        self.touched: set[str] = set()
        """Jobs that the last event was about. Not part of the state."""
        self._most_ended = most_ended
        self._records: dict[str, JobRecord] = {}
        self._ended: dict[str, None] = {}
        """Ended jobs that are kept, in the order of their ends."""
        self._told: dict[str, None] = {}
        """Those of them that have reports, in the same order."""
        self._ended_reports = 0
        self._undecided: dict[str, dict[str, int]] = {}
        """pool -> jobs that no plan has considered yet -> position of their submission."""
        self._ledger = JobIndex()
        self._latest: dict[_Name, str] = {}
        self._live_of: dict[str, int] = {}

    def apply(self, event: Event) -> None:
        """Fold one event; events must come in the order of their positions."""
        self.touched.clear()
        if (fold := _FOLDS.get(type(event.data))) is not None:
            fold(self, event, event.data)

    def job(self, job_id: str) -> JobRecord | None:
        """Return the record of a job; read-only, and changing with the log."""
        return self._records.get(job_id)

    def find(self, name_or_id: str, namespace: str = "default") -> JobRecord | None:
        """Return the job with that id, else the one of that name that was submitted last."""
        if (record := self._records.get(name_or_id)) is None:
            record = self._records.get(self._latest.get((namespace, name_or_id), ""))
        return record

    def named(self, name: str) -> Sequence[str]:
        """Return the jobs of that name, the latest of each namespace."""
        return [job_id for (_, known), job_id in self._latest.items() if known == name]

    def jobs(self) -> Mapping[str, JobRecord]:
        """Return all records by job id, in the order of submission; read-only, and changing with the log."""
        return MappingProxyType(self._records)

    def live_of(self, user: str) -> int:
        """Return how many live jobs the user has."""
        return self._live_of.get(user, 0)

    def live_named(self, namespace: str, name: str) -> str | None:
        """Return the live job of that name; of several, the one submitted last."""
        record = self._records.get(self._latest.get((namespace, name), ""))
        return record.spec.job_id if record is not None and record.is_live else None

    def submission(self, event_id: str) -> str | None:
        """Return the job that the event submitted, forgotten ones included."""
        return self._ledger.submitted_by(event_id)

    def is_known(self, job_id: str) -> bool:
        """Return whether such a job was ever submitted, forgotten ones included."""
        return job_id in self._records or self._ledger.has(job_id)

    def dump(self) -> bytes:
        """Return the whole state; equal states give equal bytes on machines of one byte order."""
        records, ended, told = list(self._records.values()), list(self._ended), list(self._told)
        return msgspec.msgpack.encode((records, ended, told, self._undecided, self._ledger.dump()))

    def load(self, state: bytes) -> None:
        """Replace the state by a dumped one."""
        records, ended, told, self._undecided, ledger = msgspec.msgpack.decode(state, type=_State)
        self._records = {record.spec.job_id: record for record in records}
        self._ended, self._told = dict.fromkeys(ended), dict.fromkeys(told)
        self._ended_reports = sum(self._records[job_id].reports_kept for job_id in told)
        self._ledger.load(ledger)
        self._latest, self._live_of = {}, {}
        for record in records:
            self._latest[_name_of(record)] = record.spec.job_id
            if record.is_live:
                self._count_live(record.spec.user, 1)

    def _live(self, job_id: str) -> JobRecord | None:
        """Return the record of a live job; what is told of any other is of no consequence, but for its workers."""
        record = self._records.get(job_id)
        return record if record is not None and record.is_live else None

    def _touch(self, record: JobRecord, event: Event) -> None:
        record.revision = event.position
        self.touched.add(record.spec.job_id)

    def _count_live(self, user: str, change: int) -> None:
        count = self._live_of.get(user, 0) + change
        if count:
            self._live_of[user] = count
        else:
            del self._live_of[user]

    def _keep_ended(self, record: JobRecord) -> None:
        """Keep a job that has just ended, at the cost of those that ended long ago."""
        job_id = record.spec.job_id
        self._ended[job_id] = None
        if record.reports_kept:
            self._told[job_id] = None
            self._ended_reports += record.reports_kept
        while len(self._ended) > self._most_ended:
            self._forget(next(iter(self._ended)))
        while self._ended_reports > _MOST_ENDED_REPORTS:
            self._forget_reports(next(iter(self._told)))

    def _forget(self, job_id: str) -> None:
        self._forget_reports(job_id)
        del self._ended[job_id]
        record = self._records.pop(job_id)
        if self._latest.get(_name_of(record)) == job_id:
            del self._latest[_name_of(record)]

    def _forget_reports(self, job_id: str) -> None:
        if job_id in self._told:
            del self._told[job_id]
            self._ended_reports -= self._records[job_id].reports_kept
            self._records[job_id].forget_reports()


def _name_of(record: JobRecord) -> _Name:
    return record.spec.namespace, record.spec.name or record.spec.job_id


def _submitted(roster: JobRegistry, event: Event, fact: JobSubmitted) -> None:
    job_id = fact.spec.job_id
    roster._ledger.add(job_id, event.event_id)
    if job_id in roster._records:
        if roster._records[job_id].is_live:
            return
        # The id of an ended job, submitted again: not by us, but logs are written by others, too.
        roster._forget(job_id)
    record = roster._records[job_id] = new_record(fact.spec, event.recorded_at, event.position)
    roster._touch(record, event)
    roster._latest[_name_of(record)] = job_id
    roster._count_live(fact.spec.user, 1)
    roster._undecided.setdefault(fact.spec.pool, {})[job_id] = event.position


def _cancel_requested(roster: JobRegistry, event: Event, fact: JobCancelRequested) -> None:
    if (record := roster._live(fact.job_id)) is not None:
        record.job = replace(record.job, is_canceling=True)
        record.cancel_reason = fact.reason
        roster._touch(record, event)


def _changed(roster: JobRegistry, event: Event, fact: JobChanged) -> None:
    if (record := roster._live(fact.job_id)) is not None:
        record.job = replace(record.job, spec=respecified(record.spec, fact))
        roster._touch(record, event)


def _registered(roster: JobRegistry, event: Event, fact: JobRegistered) -> None:
    if (record := roster._live(fact.job_id)) is not None:
        record.job = replace(record.job, uid=fact.uid)
        roster._touch(record, event)


def _worker_started(roster: JobRegistry, event: Event, fact: WorkerStarted) -> None:
    if (record := roster._records.get(fact.job_id)) is not None and record.may_have_workers:
        record.start(fact.workers, event.recorded_at)
        roster._touch(record, event)


def _worker_exited(roster: JobRegistry, event: Event, fact: WorkerExited) -> None:
    if (record := roster._records.get(fact.job_id)) is not None and record.may_have_workers:
        record.exit(fact.workers, fact.cause, event.recorded_at)
        roster._touch(record, event)


def _progressed(roster: JobRegistry, event: Event, fact: JobProgressed) -> None:
    if (record := roster._live(fact.job_id)) is not None:
        record.report(fact, event.recorded_at)
        roster._touch(record, event)


def _action_failed(roster: JobRegistry, event: Event, fact: ActionFailed) -> None:
    if (record := roster._live(fact.job_id)) is not None:
        record.job = replace(record.job, failures=record.job.failures + 1)
        record.last_error, record.last_error_at = f"{fact.action}: {fact.error}", event.recorded_at
        roster._touch(record, event)


def _stalled(roster: JobRegistry, event: Event, fact: JobStalled) -> None:
    if (record := roster._live(fact.job_id)) is not None:
        record.stall = fact.reason
        roster._touch(record, event)


def _priority_changed(roster: JobRegistry, event: Event, fact: JobPriorityChanged) -> None:
    if (record := roster._live(fact.job_id)) is not None:
        record.job = replace(record.job, queue_level=fact.queue_level, queued_since=event.recorded_at)
        roster._touch(record, event)


def _completed(roster: JobRegistry, event: Event, fact: JobCompleted) -> None:
    _end(roster, event, fact.job_id, Phase.COMPLETED, "")


def _failed(roster: JobRegistry, event: Event, fact: JobFailed) -> None:
    _end(roster, event, fact.job_id, Phase.FAILED, fact.reason)


def _canceled(roster: JobRegistry, event: Event, fact: JobCanceled) -> None:
    _end(roster, event, fact.job_id, Phase.CANCELED, "")


def _end(roster: JobRegistry, event: Event, job_id: str, phase: Phase, reason: str) -> None:
    if (record := roster._live(job_id)) is None:
        return
    record.end(phase, reason, event.recorded_at)
    roster._touch(record, event)
    roster._count_live(record.spec.user, -1)
    roster._undecided.get(record.spec.pool, {}).pop(job_id, None)
    roster._keep_ended(record)


def _plan_adopted(roster: JobRegistry, event: Event, fact: PlanAdopted) -> None:
    def planned(job_id: str) -> JobRecord | None:
        record = roster._live(job_id)
        return record if record is not None and record.spec.pool == fact.pool else None

    for job_id in (*fact.released, *fact.placed, *fact.reasons):
        if (record := planned(job_id)) is not None:
            record.plan(fact)
            roster._touch(record, event)
    undecided = roster._undecided.get(fact.pool, {})
    for job_id in [job_id for job_id, position in undecided.items() if position <= fact.based_on]:
        del undecided[job_id]
        if (record := planned(job_id)) is not None and record.phase is Phase.SUBMITTED:
            record.job = replace(record.job, phase=Phase.WAITING)
            roster._touch(record, event)


_FOLDS: Final[Mapping[type, Callable[[JobRegistry, Event, Any], None]]] = {
    JobSubmitted: _submitted,
    JobCancelRequested: _cancel_requested,
    JobChanged: _changed,
    JobRegistered: _registered,
    WorkerStarted: _worker_started,
    WorkerExited: _worker_exited,
    JobProgressed: _progressed,
    ActionFailed: _action_failed,
    JobStalled: _stalled,
    JobPriorityChanged: _priority_changed,
    JobCompleted: _completed,
    JobFailed: _failed,
    JobCanceled: _canceled,
    PlanAdopted: _plan_adopted,
}
