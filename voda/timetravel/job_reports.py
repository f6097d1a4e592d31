"""Reads what a job reported, from its stream of the log.

Rule: it reads little more than it returns, however many reports there are.
"""

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from voda.domain.errors import LogArchived
from voda.domain.job import MetricValue
from voda.events import types as facts
from voda.events.envelope import Event
from voda.log.store import EventStore
from voda.projections.jobs.changes import END_PHASES, undisturbed_epoch_s
from voda.projections.jobs.record import MOST_REPORTS, JobRecord, change_within_epoch, metrics_bytes
from voda.timetravel.replay import PAGE_FOLDED, events_between

MOST_REPORTS_BYTES: Final = 1024 * 1024
"""Of the metrics of all reports that are returned."""


class RecordedReport(Struct, frozen=True, array_like=True, gc=False):
    epochs_done: float
    at: float
    """Seconds since the epoch."""
    workers: int
    epoch_s: float | None
    metrics: Mapping[str, MetricValue]


async def reports_of(store: EventStore, record: JobRecord) -> Sequence[RecordedReport]:
    """Return the newest reports of a job, oldest first; where the archive is out of reach, those that the log has."""
    if not record.reports.count:
        return ()
    after = record.reports.after or record.submitted_position
    try:
        return await _read(store, record.spec.job_id, after)
    except LogArchived as error:
        return await _read(store, record.spec.job_id, error.base)


async def _read(store: EventStore, job_id: str, after: int) -> Sequence[RecordedReport]:
    stream = f"job.{job_id}"
    return newest_reports(
        [event async for event in events_between(store, after=after, stream=stream, page=PAGE_FOLDED)]
    )


def newest_reports(events: Iterable[Event]) -> Sequence[RecordedReport]:
    """Return the newest reports among events of a live job's stream, oldest first, within both bounds.

    The events begin behind the job's submission or behind a report of it.
    """
    found: deque[RecordedReport] = deque(maxlen=MOST_REPORTS)
    changed_at, reported_at, done = -math.inf, None, 0.0
    for event in events:
        fact, now = event.data, event.recorded_at
        if isinstance(fact, facts.WorkerStarted | facts.WorkerExited):
            changed_at = now
        elif isinstance(fact, facts.JobProgressed):
            is_new = reported_at is None or changed_at > reported_at
            within_at = change_within_epoch(changed_at, done, is_since_report=is_new)
            epoch_s = undisturbed_epoch_s(fact, now, within_at)
            found.append(RecordedReport(fact.epochs_done, now, fact.workers, epoch_s, fact.metrics))
            reported_at, done = now, max(done, fact.epochs_done)
        elif type(fact) in END_PHASES:
            break
    size = sum(metrics_bytes(report.metrics) for report in found)
    while size > MOST_REPORTS_BYTES:
        size -= metrics_bytes(found.popleft().metrics)
    return tuple(found)
