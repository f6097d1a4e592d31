"""The folders of ended jobs, on a real disk, over a log in memory and the API."""

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.builders import a_spec
from tests.needs import needs
from tests.service import START, Service, a_backend, a_service
from tests.waiting import until
from voda.api.backend import Backend
from voda.application.job_folders import FolderKeeper, HousekeepingIntervals
from voda.auth.tokens import Authenticator
from voda.clock import VirtualClock
from voda.cluster.folder_sizes import FolderSizes
from voda.cluster.job_folders import DeletedFolder, LocalJobFolders
from voda.domain.errors import StoreNotWritable
from voda.events.types import (
    AnyFact,
    JobCompleted,
    JobFolderDeleted,
    JobSubmitted,
    SettingsChanged,
    WorkerExited,
    WorkerStarted,
)
from voda.log.memory import MemoryStore
from voda.log.store import EventStore
from voda.projections.jobs.registry import JobRegistry
from voda.untrusted_trees import RemovalStep, TreeSize
from voda.wire.base import Problem
from voda.wire.housekeeping import JobFolderView, KeptFolderList

DAY_S = 86_400.0


@asynccontextmanager
async def a_kept_service(
    jobs: Path, store: EventStore | None = None, *, most_ended: int = 10_000, **fields: Any
) -> AsyncIterator[tuple[Service, FolderKeeper]]:
    """Serve the API of a machine whose jobs' folders lie there."""
    async with a_service(store, jobs=jobs, **fields) as service:
        service.backend.journal.view.job_registry = JobRegistry(most_ended)
        assert service.backend.folders is not None
        yield service, service.backend.folders


def a_keeper(jobs: Path, backend: Backend, **fields: Any) -> FolderKeeper:
    return FolderKeeper(
        LocalJobFolders(jobs),
        store=backend.journal.store,
        clock=backend.journal.clock,
        view=backend.journal.view,
        telemetry=backend.telemetry,
        **fields,
    )


def passes(backend: Backend, days: float) -> None:
    assert isinstance(backend.journal.clock, VirtualClock)
    backend.journal.clock.move_to(backend.journal.clock.now() + days * DAY_S)


def a_folder(jobs: Path, job_id: str, size: int = 100_000) -> Path:
    folder = jobs / job_id
    (folder / "logs").mkdir(parents=True)
    (folder / "logs" / "worker-0.log").write_text("hello\n")
    (folder / ".voda" / "replicas" / "worker-0").mkdir(parents=True)
    (folder / "checkpoint").write_bytes(b"x" * size)
    return folder


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def ended(service: Service, job_id: str, **fields: Any) -> None:
    for fact in (JobSubmitted(spec=a_spec(job_id, **fields)), JobCompleted(job_id=job_id)):
        await service.happens(fact)


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    (tmp_path / "jobs").mkdir()
    return tmp_path / "jobs"


async def test_folder_when_a_run_goes_on_in_it_while_others_are_measured_stays(jobs: Path) -> None:
    class Sizes(FolderSizes):
        """Something happens while folders are measured."""

        async def of_ended(self, job_id: str, *, is_awaited: bool) -> TreeSize:
            if job_id == "b":
                await service.happens(JobSubmitted(spec=a_spec("a-2", name="a", continues="a")))
            return await super().of_ended(job_id, is_awaited=is_awaited)

    async with a_kept_service(jobs) as (service, _):
        for job_id in "ab":
            a_folder(jobs, job_id)
            await ended(service, job_id)
        passes(service.backend, 31)
        await a_keeper(jobs, service.backend, sizes=Sizes(LocalJobFolders(jobs))).keep()
        assert names(jobs) == ["a"]


async def test_folder_when_a_later_run_has_written_in_it_is_measured_again(jobs: Path) -> None:
    async with a_kept_service(jobs) as (service, keeper):
        folder = a_folder(jobs, "a", size=100_000)
        await ended(service, "a")
        (before,) = await keeper.ended_folders()
        (folder / "checkpoint").write_bytes(b"x" * 5_000_000)
        passes(service.backend, 1)
        await ended(service, "a-2", name="a", continues="a")
        (after,) = await keeper.ended_folders()
        assert after.size_bytes >= before.size_bytes + 4_800_000


async def test_folders_when_a_round_is_due_only_those_beyond_the_settings_go(jobs: Path) -> None:
    async with a_kept_service(jobs) as (service, keeper):
        for job_id in ("old", "live", "busy", "new", "unknown"):
            a_folder(jobs, job_id)
        await ended(service, "old")
        await service.happens(JobSubmitted(spec=a_spec("live")))
        await ended(service, "busy")
        # A worker that has not exited in the log yet.
        await service.happens(JobSubmitted(spec=a_spec("held")))
        a_folder(jobs, "held")
        await service.happens(WorkerStarted(job_id="held", workers={0: "n1"}))
        await service.happens(JobCompleted(job_id="held"))
        passes(service.backend, 31)
        await ended(service, "new")
        with (jobs / "busy/.voda/replicas/worker-0/lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            await keeper.keep()
            assert names(jobs) == ["busy", "held", "live", "new", "unknown"]
        record = service.backend.journal.view.job_registry.job("old")
        assert record is not None
        assert (record.folder_deleted_by, record.folder_deleted_at) == ("retention (30 days)", START + 31 * DAY_S)
        await keeper.keep()
        assert not (jobs / "busy").exists()
        await service.happens(WorkerExited(job_id="held", workers=(0,)))
        await keeper.keep()
        assert names(jobs) == ["live", "new", "unknown"]
        assert b'voda_job_folders_deleted_total{cause="age"} 3.0' in service.backend.exposition()


async def test_folders_stay_by_retention_while_the_clock_is_not_trusted_and_go_on_request(jobs: Path) -> None:
    async with a_service(jobs=jobs) as service:
        problem = ["it is 40 d ahead"]
        keeper = a_keeper(jobs, service.backend, clock_problem=lambda: problem[0])
        for job_id in ("old", "older"):
            a_folder(jobs, job_id)
            await ended(service, job_id)
        passes(service.backend, 40)
        assert await keeper.keep()
        assert names(jobs) == ["old", "older"]
        await keeper.delete("older", actor="ada")
        problem[0] = ""
        assert await keeper.keep()
        assert names(jobs) == []


async def test_folders_when_together_too_large_the_oldest_go_by_the_settings_of_their_pool(jobs: Path) -> None:
    async with a_kept_service(jobs) as (service, keeper):
        for number in range(3):
            a_folder(jobs, f"j{number}", size=1_000_000)
            await ended(service, f"j{number}")
            passes(service.backend, 0.001)
        passes(service.backend, 2)
        await keeper.keep()
        assert len(names(jobs)) == 3
        await service.happens(SettingsChanged(pool="default", settings={"retention_bytes": 1_500_000}))
        await keeper.keep()
        assert names(jobs) == ["j2"]


async def test_folder_when_deleted_its_output_is_gone_and_says_when_and_by_whom(jobs: Path) -> None:
    async with a_kept_service(jobs) as (service, _):
        a_folder(jobs, "a")
        await ended(service, "a")
        assert (await service.ask("GET", "/api/v1/jobs/a/logs")).body == b"hello\n"
        before = (await service.ask("GET", "/api/v1/jobs/a/folder")).as_a(JobFolderView)
        assert (before.files, before.is_complete, before.path) == (2, True, str(jobs / "a"))
        assert before.size_bytes > 100_000
        answer = await service.ask("DELETE", "/api/v1/jobs/a/folder")
        deleted = answer.as_a(JobFolderView)
        assert (answer.status, deleted.size_bytes, deleted.deleted_by) == (200, before.size_bytes, "admin")
        assert names(jobs) == []
        logs = await service.ask("GET", "/api/v1/jobs/a/logs")
        assert logs.status == 410
        assert "its output was deleted on 2023-11-14T22:13:20Z by admin" in logs.as_a(Problem).detail
        # Again it changes nothing.
        assert (await service.ask("DELETE", "/api/v1/jobs/a/folder")).as_a(JobFolderView).size_bytes == 0
        events = (await service.ask("GET", "/api/v1/events?type=job.folder_deleted")).json()["items"]
        assert len(events) == 1


async def test_folder_of_a_live_job_when_it_is_to_be_deleted_stays(jobs: Path) -> None:
    async with a_kept_service(jobs) as (service, _):
        a_folder(jobs, "a")
        await service.happens(JobSubmitted(spec=a_spec("a")))
        answer = await service.ask("DELETE", "/api/v1/jobs/a/folder")
        assert (answer.status, (jobs / "a").exists()) == (409, True)
        assert "has not ended" in answer.as_a(Problem).detail


async def test_folders_when_listed_say_which_go_and_users_see_their_own(jobs: Path, tmp_path: Path) -> None:
    access = Authenticator.open(tmp_path, VirtualClock())
    token = access.add("ada", "user")
    async with a_kept_service(jobs, access=access) as (service, _):
        admin = (tmp_path / "admin.token").read_text().strip()
        for job_id, user in (("a", "ada"), ("b", "bob")):
            a_folder(jobs, job_id)
            await ended(service, job_id, user=user)
        passes(service.backend, 0.001)

        async def listed(query: str, token: str) -> list[tuple[str, str]]:
            answer = await service.ask("GET", f"/api/v1/folders{query}", token=token)
            return [(one.job_id, one.goes) for one in answer.as_a(KeptFolderList).items]

        assert await listed("", admin) == [("a", ""), ("b", "")]
        assert await listed("?older_than_s=5", admin) == [("a", "age"), ("b", "age")]
        assert await listed("?keep_bytes=150000", admin) == [("a", "size"), ("b", "")]
        assert await listed("?older_than_s=0&user=bob", admin) == [("b", "age")]
        assert await listed("?older_than_s=0", token) == [("a", "age")]
        assert await listed("?user=bob", token) == []
        for method in ("GET", "DELETE"):
            assert (await service.ask(method, "/api/v1/jobs/b/folder", token=token)).status == 403
        assert (await service.ask("DELETE", "/api/v1/jobs/a/folder", token=token)).status == 200
        assert names(jobs) == ["b"]


async def test_folders_where_the_cluster_keeps_none_are_none_and_say_why() -> None:
    async with a_service() as service:
        answer = (await service.ask("GET", "/api/v1/folders")).as_a(KeptFolderList)
        assert (answer.items, "Kubernetes" in answer.note) == ((), True)
        await ended(service, "a")
        assert (await service.ask("DELETE", "/api/v1/jobs/a/folder")).status == 404


async def test_deletion_when_cut_short_by_a_crash_is_finished_and_recorded(jobs: Path) -> None:
    async with a_kept_service(jobs) as (service, keeper):
        a_folder(jobs, "a")
        await ended(service, "a")
        # A voda that ended after the first step.
        assert LocalJobFolders(jobs).take_away("a")
        assert (jobs / ".deleted-a").exists()
        await keeper.keep()
        record = service.backend.journal.view.job_registry.job("a")
        assert record is not None
        assert record.folder_deleted_by == "a deletion that was cut short"
        assert names(jobs) == []


class FullStore(MemoryStore):
    """A log whose disk is full while it is told so."""

    is_full = False

    async def append(self, *arguments: Any, **named: Any) -> int:
        """See EventStore.append."""
        if self.is_full:
            raise StoreNotWritable("the disk is full")
        return await super().append(*arguments, **named)


async def test_deletion_when_the_log_is_full_makes_room_and_is_recorded_later(jobs: Path) -> None:
    store = FullStore()
    async with a_kept_service(jobs, store) as (service, keeper):
        a_folder(jobs, "a")
        await ended(service, "a")
        passes(service.backend, 31)
        store.is_full = True
        await keeper.keep()
        assert names(jobs) == []
        store.is_full = False
        await keeper.keep()
        record = service.backend.journal.view.job_registry.job("a")
        assert record is not None
        assert record.folder_deleted_by == "retention (30 days)"


async def test_job_that_the_view_has_forgotten_when_old_is_deleted_by_its_own_events(
    jobs: Path,
) -> None:
    async with a_kept_service(jobs, most_ended=1) as (service, keeper):
        for job_id in ("a", "b"):
            a_folder(jobs, job_id)
            await ended(service, job_id)
        assert service.backend.journal.view.job_registry.job("a") is None
        passes(service.backend, 31)
        await keeper.keep()
        assert names(jobs) == []
        answer = await service.ask("GET", "/api/v1/jobs/a/logs")
        assert (answer.status, "retention (30 days)" in answer.as_a(Problem).detail) == (410, True)


async def test_folder_that_cannot_be_emptied_when_a_round_is_due_holds_nothing_up(jobs: Path) -> None:
    async with a_kept_service(jobs) as (service, keeper):
        # A user's job keeps its records apart.
        for place in (jobs, jobs / ".records"):
            a_folder(place, "a")
        hostile = jobs / "a"
        for number in range(3_000):
            (hostile / str(number)).touch()
        (hostile / "deep" / "er").mkdir(parents=True)
        os.mkfifo(hostile / "deep" / "fifo")
        (hostile / "link").symlink_to("/")
        (hostile / "deep").chmod(0)
        await ended(service, "a")
        waits = asyncio.get_running_loop().create_task(service.ask("DELETE", "/api/v1/jobs/a/folder"))
        assert (await service.ask("GET", "/readyz")).status == 200
        assert (await waits).status == 200
        await keeper.empty()
        assert names(jobs) == [".records"]
        assert names(jobs / ".records") == []


class RefilledFolders(LocalJobFolders):
    """Folders of which a process goes on filling one faster than it is emptied."""

    def empty(self, deleted: DeletedFolder, *, most: int) -> RemovalStep:
        """See LocalJobFolders.empty."""
        if deleted.job_id == "busy":
            for number in range(most + 1):
                (deleted.place / deleted.name / str(number)).touch()
        return super().empty(deleted, most=most)


async def test_folder_that_is_filled_for_ever_holds_up_neither_requests_nor_rounds(jobs: Path) -> None:
    async with a_kept_service(jobs) as (service, _):
        intervals = HousekeepingIntervals(emptying_s=1.0)
        keeper = FolderKeeper(
            RefilledFolders(jobs),
            store=service.backend.journal.store,
            clock=service.backend.journal.clock,
            view=service.backend.journal.view,
            telemetry=service.backend.telemetry,
            intervals=intervals,
        )
        for job_id in ("busy", "mine", "old"):
            a_folder(jobs, job_id)
            await ended(service, job_id)
        assert LocalJobFolders(jobs).take_away("busy")
        emptying = asyncio.create_task(keeper.empty())
        await until(lambda: (jobs / ".deleted-busy" / "0").exists())
        assert await keeper.delete("mine", actor="ada") > 0
        assert not emptying.done()
        assert names(jobs) == [".deleted-busy", "old"]
        assert not await emptying
        passes(service.backend, 31)
        async with asyncio.timeout(60):
            while names(jobs) != [".deleted-busy"]:
                assert not await keeper.keep()


@needs(os.geteuid() == 0, "only root can take over what is others'")
def test_folder_of_a_user_when_taken_away_is_named_after_its_user_and_becomes_roots(jobs: Path) -> None:
    folder = a_folder(jobs, "a")
    for path in (folder, *folder.rglob("*")):
        os.chown(path, 65534, 65534)
    folders = LocalJobFolders(jobs)
    assert folders.take_away("a")
    (deleted,) = folders.deleted()
    assert (deleted.job_id, deleted.name, deleted.owner) == ("a", ".deleted-a.65534", 65534)
    assert not folders.empty(deleted, most=1).is_gone
    assert (jobs / deleted.name).stat().st_uid == 0
    while not folders.empty(deleted, most=500).is_gone:
        pass
    assert names(jobs) == []


async def test_keeper_when_it_runs_keeps_folders_within_their_limits_by_itself(jobs: Path) -> None:
    async with a_backend() as backend:
        keeper = a_keeper(jobs, backend, intervals=HousekeepingIntervals(first_s=0.0, every_s=0.01))
        running = asyncio.get_running_loop().create_task(keeper.run())
        a_folder(jobs, "a")
        await _recorded(backend, JobSubmitted(spec=a_spec("a")), JobCompleted(job_id="a"))
        passes(backend, 31)
        await until(lambda: not names(jobs))
        assert not running.done()
        running.cancel()


async def _recorded(backend: Backend, *facts: AnyFact) -> None:
    for fact in facts:
        await backend.journal.record(fact, actor="test")


async def test_promise_of_a_pool_tells_how_long_folders_stay(jobs: Path) -> None:
    async with a_kept_service(jobs) as (service, keeper):
        assert keeper.promise("default").startswith("folders of ended jobs stay for 30 days, up to 20 GB (")
        await service.happens(SettingsChanged(pool="default", settings={"retention_s": 0.0, "retention_bytes": 0}))
        assert keeper.promise("default").startswith("folders of ended jobs stay for good (")


async def test_record_when_its_folder_is_deleted_survives_a_snapshot(jobs: Path) -> None:
    async with a_kept_service(jobs) as (service, _):
        await ended(service, "a")
        await service.happens(JobFolderDeleted(job_id="a", by="bob", size_bytes=7))
        restored = JobRegistry()
        restored.load(service.backend.journal.view.job_registry.dump())
        record = restored.job("a")
        assert record is not None
        assert record.folder_deleted_by == "bob"
