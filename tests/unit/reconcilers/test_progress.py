"""What the collector makes of CSV files: good ones, growing ones, and hostile ones."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.builders import a_job
from voda.clock import VirtualClock
from voda.domain.errors import InvalidInput, StoreNotWritable
from voda.domain.job import Job, JobSpec
from voda.events.envelope import Fact
from voda.events.types import JobProgressed
from voda.log.memory import MemoryStore
from voda.reconcilers.progress import MOST_BYTES, ProgressCollector
from voda.reconcilers.watcher import Watcher

HEADER = "epoch,epoch_time_sec,step_time_sec,workers,start_time,global_epochs,total_epochs\n"


class Ground:
    """A collector, the log it writes to, and the jobs it knows."""

    def __init__(self, folder: Path, *jobs: Job) -> None:
        self.folder = folder
        self.jobs = {job.spec.job_id: job for job in jobs or [a_job("a", workers={0: "n1", 1: "n1"})]}
        self.store = MemoryStore()
        self.clock = VirtualClock()
        self.uids: dict[str, int] | None = None
        """User -> user id, where jobs run as their users."""
        self.collector = self.a_collector()

    async def uid_of(self, spec: JobSpec) -> int | None:
        if self.uids is not None and spec.user not in self.uids:
            raise InvalidInput(f"{spec.user} has no account")
        return None if self.uids is None else self.uids[spec.user]

    def a_collector(self) -> ProgressCollector:
        watcher = Watcher(store=self.store, clock=self.clock)
        return ProgressCollector(self.folder, watcher=watcher, jobs=lambda: self.jobs, owner=self.uid_of)

    def write(self, text: str, name: str = "a.csv", mode: str = "w") -> None:
        with (self.folder / name).open(mode) as file:
            file.write(text)

    async def recorded(self) -> list[JobProgressed]:
        """Look once and return all that is in the log."""
        await self.collector.step()
        facts = [event.data for event in await self.store.read(0, 10_000)]
        return [fact for fact in facts if isinstance(fact, JobProgressed)]


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


async def test_rows_when_in_the_ancestors_format_are_recorded(ground: Ground) -> None:
    ground.write(HEADER + "0,12.5,0.1,4,2026-01-01 00:00:00,1,10\n")
    assert await ground.recorded() == [JobProgressed(job_id="a", epochs_done=1, workers=4, epoch_s=12.5, step_s=0.1)]


async def test_columns_when_in_another_order_and_with_metrics_are_found_by_name(ground: Ground) -> None:
    ground.write("loss,workers, epoch,note\n0.5,,2,fine\n")
    assert await ground.recorded() == [JobProgressed(job_id="a", epochs_done=3, workers=2, metrics={"loss": 0.5})]


async def test_file_when_it_grows_is_read_on_from_where_it_was(ground: Ground) -> None:
    ground.write(HEADER + "0,1,,2,,,\n1,2,,2")
    assert [fact.epochs_done for fact in await ground.recorded()] == [1]
    ground.write(",,,\n2,3,,2,,,\n", mode="a")
    assert [fact.epochs_done for fact in await ground.recorded()] == [1, 2, 3]
    assert len(await ground.recorded()) == 3


async def test_collector_when_restarted_reports_nothing_twice(ground: Ground) -> None:
    ground.write(HEADER + "0,1,,2,,,\n1,1,,2,,,\n")
    await ground.recorded()
    ground.jobs = {"a": a_job("a", epochs_done=2.0)}
    ground.collector = ground.a_collector()
    assert len(await ground.recorded()) == 2
    ground.write("2,1,,2,,,\n", mode="a")
    assert [fact.epochs_done for fact in await ground.recorded()] == [1, 2, 3]


async def test_file_when_written_anew_tells_only_what_is_new(ground: Ground) -> None:
    ground.write(HEADER + "0,1,,2,,,\n1,1,,2,,,\n")
    await ground.recorded()
    ground.write("epoch,workers\n1,2\n2,2\n3,2\n4,2\n5,2\n6,2\n7,2\n8,2\n9,2\n" * 3)
    assert [fact.epochs_done for fact in await ground.recorded()] == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]


async def test_file_when_named_by_the_job_means_the_latest_of_that_name(tmp_path: Path) -> None:
    older, newer = a_job("x", name="x", submitted_at=1.0), a_job("x-2", name="x", submitted_at=2.0)
    ground = Ground(tmp_path, newer, a_job("y", name="digits", submitted_at=0.0), older)
    ground.write("epoch\n0\n", "digits.csv")
    ground.write("epoch\n4\n", "x-2.csv")
    assert {(fact.job_id, fact.epochs_done) for fact in await ground.recorded()} == {("y", 1), ("x-2", 5)}


@pytest.mark.parametrize(
    "content",
    [
        b"\x7fELF\0\0\0" * 1000,
        b"x" * MOST_BYTES * 2,
        b"",
        b"\n\n\n",
        b"no,such,column\n1,2,3\n",
        b'epoch\n"\n1e400\nnan\n-3\n1e12\nabc\n',
        b"epoch\n\xff\xfe\n",
    ],
)
async def test_file_when_it_is_garbage_does_nothing(ground: Ground, content: bytes) -> None:
    (ground.folder / "a.csv").write_bytes(content)
    assert await ground.recorded() == []
    assert await ground.recorded() == []


async def test_file_when_it_is_no_plain_file_is_left_alone(ground: Ground, tmp_path: Path) -> None:
    outside = tmp_path.parent / f"{tmp_path.name}-secret.csv"
    outside.write_text("epoch\n5\n")
    (ground.folder / "a.csv").symlink_to(outside)
    assert await ground.recorded() == []
    (ground.folder / "a.csv").unlink()
    os.mkfifo(ground.folder / "a.csv")
    assert await ground.recorded() == []
    (ground.folder / "a.csv").unlink()
    (ground.folder / "a.csv").mkdir()
    assert await ground.recorded() == []


async def test_file_when_it_belongs_to_no_live_job_is_left_alone(ground: Ground) -> None:
    ground.write("epoch\n5\n", "b.csv")
    ground.write("epoch\n5\n", "a.txt")
    assert await ground.recorded() == []


async def test_rows_when_there_are_very_many_flood_no_log(ground: Ground) -> None:
    ground.write("epoch\n" + "".join(f"{epoch}\n" for epoch in range(5_000)))
    told = await ground.recorded()
    assert len(told) <= 100
    assert told[-1].epochs_done == 5_000


async def test_folder_when_missing_is_empty(tmp_path: Path) -> None:
    assert await Ground(tmp_path / "none").recorded() == []


class FullStore(MemoryStore):
    """A log whose disk is full."""

    is_full = True

    async def append(self, stream: str, expected_version: int, facts: Sequence[Fact], *, epoch: int = 0) -> int:
        if self.is_full:
            raise StoreNotWritable("the disk is full")
        return await super().append(stream, expected_version, facts, epoch=epoch)


async def test_rows_when_the_log_has_no_room_are_recorded_once_it_has(ground: Ground) -> None:
    ground.store = store = FullStore()
    ground.collector = ground.a_collector()
    ground.write(HEADER + "0,1,,2,,,\n")
    with pytest.raises(StoreNotWritable):
        await ground.collector.step()
    store.is_full = False
    assert [fact.epochs_done for fact in await ground.recorded()] == [1]


ME, OTHER = os.geteuid(), os.geteuid() + 1


@pytest.mark.parametrize("owner", ["ada", "bob"])
async def test_file_when_jobs_run_as_their_users_counts_for_the_job_of_its_owner_whoever_has_the_name(
    tmp_path: Path, owner: str
) -> None:
    jobs = [a_job("train", user="ada"), a_job("train-2", name="train", user="bob", submitted_at=1.0)]
    ground = Ground(tmp_path, *jobs)
    ground.uids = {"ada": OTHER, "bob": OTHER} | {owner: ME}
    ground.write(HEADER + "0,1,,2,,,\n", "train.csv")
    assert [fact.job_id for fact in await ground.recorded()] == ["train" if owner == "ada" else "train-2"]


async def test_file_of_another_user_or_of_a_job_whose_user_has_no_account_counts_for_nobody(tmp_path: Path) -> None:
    jobs = [a_job("a", user="ada"), a_job("gone", user="gone"), a_job("c", user="cleo")]
    ground = Ground(tmp_path, *jobs)
    ground.uids = {"ada": OTHER, "cleo": ME}
    for name in ("a", "gone", "c"):
        ground.write(HEADER + "98,1e8,,2,,,\n", f"{name}.csv")
    assert [fact.job_id for fact in await ground.recorded()] == ["c"]
