"""Jobs as wire records, and their JSON, made once per change; lists are joined from it.

Rule: the JSON is a cache: an entry never outlives a newer revision of the job or a newer forecast.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from voda.api.presenters.queue_places import QueuePlaces
from voda.application.journal import JournalView
from voda.domain.job import JobSpec
from voda.domain.plan import ExpectedTimes
from voda.kinds.base import FieldWarning
from voda.projections.jobs.record import JobRecord
from voda.projections.jobs.record_text import explanation_text, last_failure_text
from voda.timetravel.job_reports import RecordedReport
from voda.wire.base import instant, view_of
from voda.wire.jobs import (
    ArrayTaskView,
    ArrayView,
    DependencyView,
    ForecastView,
    GpuShareView,
    JobView,
    ProgressView,
    ReportList,
    ReportView,
    WorkerView,
)

_NO_FORECAST = ForecastView()


def job_of(
    record: JobRecord,
    forecast: ExpectedTimes | None = None,
    forecast_at: float | None = None,
    place: int | None = None,
) -> JobView:
    """Return a job as the API shows it, with its place in the queue; the forecast was made at `forecast_at`."""
    spec, job = record.spec, record.job
    return view_of(
        JobView,
        record,
        job,
        spec,
        name=spec.name or spec.job_id,
        pools=tuple(spec.pools),
        requested_replicas=spec.requested,
        sizes="" if spec.sizes is None else str(spec.sizes),
        share=share_of(spec),
        planned_replicas=len(record.planned),
        reason=record.present_reason,
        message=explanation_text(record),
        last_failure=last_failure_text(record),
        workers=tuple(WorkerView(index=index, node=node) for index, node in sorted(job.workers.items())),
        started_at=job.first_started_at,
        gpu_s=job.attained_service_gpu_s,
        progress=view_of(ProgressView, record, job, spec),
        forecast=_forecast(record, forecast, forecast_at, place),
        revision=str(record.revision),
        after=tuple(view_of(DependencyView, dependency) for dependency in spec.after),
        array=view_of(ArrayTaskView, spec.array) if spec.array is not None else None,
    )


def array_of(tasks: Sequence[JobRecord]) -> ArrayView:
    """Return an array as the API shows it; it has at least one task that is remembered."""
    spec = tasks[0].spec
    assert spec.array is not None, "they are tasks of an array"
    ends = [task.finished_at for task in tasks]
    return view_of(
        ArrayView,
        spec.array,
        spec,
        states=Counter(_state(task) for task in tasks),
        replicas=sum(task.job.replicas for task in tasks),
        gpu_s=sum(task.job.attained_service_gpu_s for task in tasks),
        submitted_at=min(task.job.submitted_at for task in tasks),
        finished_at=None if None in ends else max(end for end in ends if end is not None),
    )


def _state(record: JobRecord) -> str:
    if record.is_canceling:
        return "Canceling"
    if record.is_halted:
        return "Halted"
    return "Preempted" if record.is_preempted else record.phase.value


def report_list(reports: Iterable[RecordedReport]) -> ReportList:
    """Return reports as the API shows them."""
    return ReportList(items=tuple(view_of(ReportView, one, reported_at=one.at) for one in reports))


def _waits(record: JobRecord) -> bool:
    return record.is_live and not (record.is_canceling or record.is_halted or record.job.replicas)


def _forecast(
    record: JobRecord, forecast: ExpectedTimes | None, made_at: float | None, place: int | None
) -> ForecastView:
    if forecast is None:
        return _NO_FORECAST if place is None else ForecastView(position=place)
    # The forecast may be older than the failure after which the program waits for its next try.
    starts_at = forecast.starts_at and max(forecast.starts_at, record.next_try_at or 0.0)
    return ForecastView(
        position=place,
        starts_at=instant(starts_at) if _waits(record) else None,
        finishes_at=instant(forecast.finishes_at) if record.is_live and not record.is_halted else None,
        made_at=instant(made_at),
    )


_encode: Final = msgspec.json.Encoder().encode
_SPARE: Final = 1_000
"""Entries of forgotten jobs that may stay before they are removed."""


class _Rendered(Struct, frozen=True, gc=False):
    """The JSON of a job, and what it was made from."""

    revision: int
    forecasts: Mapping[str, ExpectedTimes]
    forecast: ExpectedTimes | None
    place: int | None
    body: bytes


class JobJsonCache:
    """Makes the JSON of jobs, and keeps it."""

    def __init__(self, view: JournalView) -> None:
        self._view = view
        self._cache: dict[str, _Rendered] = {}
        self._queue_places = QueuePlaces(view)

    def job(self, record: JobRecord) -> bytes:
        job_id = record.spec.job_id
        forecasts = self._view.forecasts
        cached, place = self._cache.get(job_id), self._queue_places.place(job_id)
        if cached is not None and cached.revision == record.revision and cached.place == place:
            if cached.forecasts is forecasts:
                return cached.body
            if cached.forecast is None and job_id not in forecasts:
                return cached.body
        forecast = forecasts.get(job_id) if record.is_live else None
        body = _encode(job_of(record, forecast, self._view.forecast_at, place))
        self._cache[job_id] = _Rendered(record.revision, forecasts, forecast, place, body)
        self._forget()
        return body

    def once(self, record: JobRecord) -> bytes:
        """Return the JSON of a job of a dry run, which is not kept."""
        return _encode(job_of(record))

    def page(self, records: Iterable[JobRecord], *, total: int, following: str | None) -> bytes:
        """Return a JobList as JSON, of `total` jobs on all pages; `following` is the token of the next page."""
        items = b",".join([self.job(record) for record in records])
        return b'{"items":[%b],"total":%d,"next":%b}' % (items, total, _encode(following))

    def submission(self, job: bytes, *, is_dry_run: bool, warnings: Iterable[FieldWarning], tasks: int = 1) -> bytes:
        parts = (job, tasks, _encode(is_dry_run), _encode(tuple(warnings)))
        return b'{"job":%b,"tasks":%d,"is_dry_run":%b,"warnings":%b}' % parts

    def _forget(self) -> None:
        jobs = self._view.job_registry.jobs()
        if len(self._cache) > len(jobs) + _SPARE:
            self._cache = {job_id: rendered for job_id, rendered in self._cache.items() if job_id in jobs}


def share_of(spec: JobSpec) -> GpuShareView | None:
    """Return the part of a GPU that a job asks for; None: whole GPUs."""
    return None if spec.share is None else view_of(GpuShareView, spec.share)
