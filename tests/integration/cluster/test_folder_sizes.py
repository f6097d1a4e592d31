"""Measuring jobs' folders: in threads of its own, one measurement of a folder at a time, and nobody waits for ever."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import until
from voda.cluster.folder_sizes import FolderSizes
from voda.cluster.job_folders import LocalJobFolders
from voda.domain.errors import ServerBusy
from voda.untrusted_trees import TreeSize


class SlowFolders(LocalJobFolders):
    """Folders on a disk that answers once it is let."""

    def __init__(self, jobs: Path) -> None:
        super().__init__(jobs)
        self.answers = threading.Event()
        self.measured: list[str] = []

    def measure(self, job_id: str, *, most: int) -> TreeSize:
        """See LocalJobFolders.measure."""
        self.measured.append(job_id)
        assert self.answers.wait(60)
        return super().measure(job_id, most=most)


@pytest.fixture
def folders(tmp_path: Path) -> Iterator[SlowFolders]:
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_bytes(b"x" * 100_000)
    folders = SlowFolders(tmp_path)
    yield folders
    folders.answers.set()


async def test_folder_when_80_ask_is_measured_once_and_other_reads_have_their_threads(folders: SlowFolders) -> None:
    sizes = FolderSizes(folders)
    async with asyncio.TaskGroup() as group:
        asking = [group.create_task(sizes.now("a")) for _ in range(80)]
        await until(lambda: bool(folders.measured))
        async with asyncio.timeout(20):
            assert await asyncio.to_thread(folders.job_ids) == {"a", "b", "c"}
        asking[0].cancel()
        folders.answers.set()
    assert all(task.result().size_bytes > 100_000 for task in asking[1:])
    assert folders.measured == ["a"]


async def test_folder_when_not_measured_in_time_is_refused_for_now_and_measured_meanwhile(
    folders: SlowFolders,
) -> None:
    sizes = FolderSizes(folders, timeout_s=0.05)
    with pytest.raises(ServerBusy, match=r"job a: its folder was not measured within 0\.05 s: try again"):
        await sizes.of_ended("a", is_awaited=True)
    with pytest.raises(ServerBusy):
        await sizes.of_ended("a", is_awaited=True)
    assert len(folders.measured) <= 1
    folders.answers.set()
    assert (await sizes.of_ended("a", is_awaited=False)).size_bytes > 100_000
    assert (await sizes.of_ended("a", is_awaited=False)).size_bytes > 100_000
    assert folders.measured == ["a"]
    sizes.forget("a")
    await sizes.of_ended("a", is_awaited=False)
    assert folders.measured == ["a", "a"]


async def test_folder_when_nobody_waits_for_it_any_more_is_not_measured(folders: SlowFolders) -> None:
    sizes = FolderSizes(folders)
    first = [asyncio.create_task(sizes.now(name)) for name in "ab"]
    await until(lambda: len(folders.measured) == len(first))
    left = asyncio.create_task(sizes.now("c"))
    await asyncio.sleep(0)
    left.cancel()
    await asyncio.wait([left])
    folders.answers.set()
    await asyncio.gather(*first)
    assert sorted(folders.measured) == ["a", "b"]
