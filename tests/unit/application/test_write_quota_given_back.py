"""A user is not charged for what the log did not take, or has already."""

from collections.abc import Sequence

import pytest

from tests.service import a_backend
from voda.application.change_job import JobPatch, ProgressReport, change, report
from voda.auth.callers import Caller
from voda.domain.errors import QuotaExceeded, StoreUnavailable
from voda.log.append_plan import Append
from voda.log.memory import MemoryStore
from voda.programs.program_manifest import ProgramJob, program_manifest

ANN = Caller(user="ann", role="user")


class AwayStore(MemoryStore):
    """A log that does not answer while it is away."""

    is_away = False

    async def append_all(self, appends: Sequence[Append]) -> int:
        if self.is_away:
            raise StoreUnavailable("the log does not answer")
        return await super().append_all(appends)


async def test_log_that_is_away_takes_nothing_of_what_a_user_may_write() -> None:
    store = AwayStore()
    async with a_backend(store, log_bytes_per_user=4_000) as backend:
        manifest = program_manifest(ProgramJob(name="train", words=("python", "train.py"), launcher="mpirun"))
        store.is_away = True
        for _ in range(20):
            with pytest.raises(StoreUnavailable):
                await backend.submits.submit(manifest, ANN)
        store.is_away = False
        record = (await backend.submits.submit(manifest, ANN)).record
        store.is_away = True
        for workers in range(2, 30):
            with pytest.raises(StoreUnavailable):
                await change(backend.journal, record, JobPatch(max_replicas=workers), ANN)
        store.is_away = False
        await change(backend.journal, record, JobPatch(max_replicas=4), ANN)
        assert record.spec.max_replicas == 4


async def test_report_that_is_sent_again_and_again_is_charged_once() -> None:
    async with a_backend(log_bytes_per_user=4_000) as backend:
        manifest = program_manifest(ProgramJob(name="train", words=("python", "train.py"), launcher="mpirun"))
        record = (await backend.submits.submit(manifest, ANN)).record
        job = Caller(user="", role="job", job_id=record.spec.job_id)

        async def report_as(*report_ids: str) -> None:
            for report_id in report_ids:
                await report(backend.journal, record, ProgressReport(epoch=1, report_id=report_id), job)

        await report_as(*["first"] * 50)
        assert record.reports.count == 1
        with pytest.raises(QuotaExceeded):
            await report_as(*(f"r{number}" for number in range(50)))
