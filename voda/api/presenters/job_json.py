"""Jobs as JSON, made once per change: lists are joined from what is there.

Rule: what is kept is a cache: it never outlives a newer revision of the job or a newer forecast.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from msgspec import Struct

from voda.api.presenters.jobs import job_of
from voda.application.read_model import ReadModel
from voda.manifests.parsed import Omission
from voda.projections.records import JobRecord
from voda.simulator.whatif.forecast import Forecast

_encode: Final = msgspec.json.Encoder().encode
_SPARE: Final = 1_000
"""Forgotten jobs whose JSON may be kept before it is looked for."""


class _Rendered(Struct, frozen=True, gc=False):
    """The JSON of a job, and what it was made from."""

    revision: int
    forecasts: Mapping[str, Forecast]
    forecast: Forecast | None
    body: bytes


class JobJsonCache:
    """JSON of jobs."""

    def __init__(self, view: ReadModel) -> None:
        self._view = view
        self._kept: dict[str, _Rendered] = {}

    def job(self, record: JobRecord) -> bytes:
        """Return a job as JSON."""
        job_id = record.spec.job_id
        forecasts = self._view.forecasts
        kept = self._kept.get(job_id)
        if kept is not None and kept.revision == record.revision:
            if kept.forecasts is forecasts:
                return kept.body
            if kept.forecast is None and job_id not in forecasts:
                return kept.body
        forecast = forecasts.get(job_id) if record.is_live else None
        body = _encode(job_of(record, forecast, self._view.forecast_at))
        self._kept[job_id] = _Rendered(record.revision, forecasts, forecast, body)
        self._forget()
        return body

    def once(self, record: JobRecord) -> bytes:
        """Return a job as JSON that is not there, and never will be asked for again."""
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

    def submission(self, job: bytes, *, is_dry_run: bool, warnings: Iterable[Omission]) -> bytes:
        """Return a Submission as JSON."""
        return b'{"job":%b,"is_dry_run":%b,"warnings":%b}' % (job, _encode(is_dry_run), _encode(tuple(warnings)))

    def _forget(self) -> None:
        jobs = self._view.roster.jobs()
        if len(self._kept) > len(jobs) + _SPARE:
            self._kept = {job_id: rendered for job_id, rendered in self._kept.items() if job_id in jobs}
