"""The JSON of jobs, made once per change; lists are joined from it.

Rule: this is a cache: an entry never outlives a newer revision of the job or a newer forecast.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from msgspec import Struct

from voda.api.presenters.jobs import job_of
from voda.application.read_model import ReadModel
from voda.kinds.base import FieldWarning
from voda.projections.job_record import JobRecord
from voda.simulator.whatif.forecast import ExpectedTimes

_encode: Final = msgspec.json.Encoder().encode
_SPARE: Final = 1_000
"""Entries of forgotten jobs that may stay before they are removed."""


class _Rendered(Struct, frozen=True, gc=False):
    """The JSON of a job, and what it was made from."""

    revision: int
    forecasts: Mapping[str, ExpectedTimes]
    forecast: ExpectedTimes | None
    body: bytes


class JobJsonCache:
    """Makes the JSON of jobs, and keeps it."""

    def __init__(self, view: ReadModel) -> None:
        self._view = view
        self._cache: dict[str, _Rendered] = {}

    def job(self, record: JobRecord) -> bytes:
        """Return a job as JSON."""
        job_id = record.spec.job_id
        forecasts = self._view.forecasts
        cached = self._cache.get(job_id)
        if cached is not None and cached.revision == record.revision:
            if cached.forecasts is forecasts:
                return cached.body
            if cached.forecast is None and job_id not in forecasts:
                return cached.body
        forecast = forecasts.get(job_id) if record.is_live else None
        body = _encode(job_of(record, forecast, self._view.forecast_at))
        self._cache[job_id] = _Rendered(record.revision, forecasts, forecast, body)
        self._forget()
        return body

    def once(self, record: JobRecord) -> bytes:
        """Return the JSON of a job of a dry run, which is not kept."""
        return _encode(job_of(record))

    def page(self, records: Iterable[JobRecord], *, total: int, following: str | None) -> bytes:
        """Return a JobList as JSON.

        Args:
            records: of the page.
            total: jobs on all pages.
            following: token of the next page; None on the last.
        """
        items = b",".join([self.job(record) for record in records])
        return b'{"items":[%b],"total":%d,"next":%b}' % (items, total, _encode(following))

    def submission(self, job: bytes, *, is_dry_run: bool, warnings: Iterable[FieldWarning]) -> bytes:
        """Return a Submission as JSON."""
        return b'{"job":%b,"is_dry_run":%b,"warnings":%b}' % (job, _encode(is_dry_run), _encode(tuple(warnings)))

    def _forget(self) -> None:
        jobs = self._view.job_registry.jobs()
        if len(self._cache) > len(jobs) + _SPARE:
            self._cache = {job_id: rendered for job_id, rendered in self._cache.items() if job_id in jobs}
