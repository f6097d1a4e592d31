"""What a job's program leaves behind is looked for off the event loop, among the processes of the job's own user."""

import asyncio
import errno
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.local_jobs import FOREVER, Ground, a_ground, a_torch_job
from tests.needs import needs
from tests.waiting import DEADLINE_S, is_alive, until
from voda.cluster.local import cluster, device_holders
from voda.cluster.local import folder as folder_module
from voda.cluster.local.context import TRY_AGAIN_S
from voda.cluster.local.folder import JobFolder, marked_job_ids
from voda.cluster.local.processes import marked
from voda.cluster.local.processes.marked import MarkedProcess, find_marked, kill_found
from voda.domain.errors import ClusterUnavailable
from voda.domain.plan import HaltJob
from voda.events.types import JobCompleted, WorkerExited
from voda.process_table import start_of

OTHER = 65_534
STRAY = "setsid sleep 1000 & echo $! > stray"


@pytest.fixture
def looking(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Let nobody look for processes before the event is set, as if there were very many."""
    may_look = threading.Event()

    def find(replicas: Path, uid: int) -> tuple[MarkedProcess, ...]:
        assert threading.current_thread() is not threading.main_thread(), "the event loop waits"
        assert may_look.wait(DEADLINE_S)
        return find_marked(replicas, uid)

    monkeypatch.setattr(folder_module, "find_marked", find)
    yield may_look
    may_look.set()


def stray_of(ground: Ground) -> int:
    return int(JobFolder(ground.folder, "a").files.read("stray"))


async def test_event_loop_does_not_wait_for_the_look_at_processes_and_devices_stay_taken_until_then(
    tmp_path: Path, looking: threading.Event
) -> None:
    looking.set()
    async with a_ground(tmp_path) as ground:
        await ground.start(a_torch_job("a", "while [ ! -e end ]; do sleep 0.05; done"))
        env = {"VODA_REPLICA": str(JobFolder(ground.folder, "a").replicas / "worker-0")}
        left = await asyncio.create_subprocess_exec("sleep", "1000", env=env)
        looking.clear()
        try:
            (ground.folder / "a/end").touch()
            await ground.until_told(JobCompleted(job_id="a"))
            assert (await ground.workers(), left.returncode) == ((0,), None)
        finally:
            looking.set()
        await ground.until_told(WorkerExited(job_id="a", workers=(0,), cause="finished"))
        assert await left.wait() == -signal.SIGKILL
        assert await ground.workers() == ()


async def test_job_that_is_halted_at_once_loses_what_it_started_too(tmp_path: Path, looking: threading.Event) -> None:
    looking.set()
    async with a_ground(tmp_path) as ground:
        await ground.start(a_torch_job("a", f"trap '' TERM; {STRAY}; {FOREVER}", grace_s=1000.0))
        await until(lambda: JobFolder(ground.folder, "a").files.exists("stray"))
        await ground.halt("a")
        await ground.apply(HaltJob(job_id="a", is_kill=True))
        await ground.until_told(WorkerExited(job_id="a", workers=(0,), cause="stopped"))
        assert not is_alive(stray_of(ground))


async def test_looks_at_processes_that_hang_keep_no_thread_from_others(
    tmp_path: Path, looking: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What /proc says of a process that waits for a dead file server never comes."""
    monkeypatch.setattr(device_holders, "FIND_S", 0.01)
    with ThreadPoolExecutor(1) as threads:
        asyncio.get_running_loop().set_default_executor(threads)
        async with a_ground(tmp_path) as ground:
            looking.set()
            await ground.start(a_torch_job("a", "while [ ! -e end ]; do sleep 0.05; done"))
            looking.clear()
            (ground.folder / "a/end").touch()
            await ground.until_told(JobCompleted(job_id="a"))
            try:
                async with asyncio.timeout(10.0):
                    await asyncio.to_thread(os.getpid)
                assert await ground.workers() == (0,)
            finally:
                looking.set()
            await ground.until_told(WorkerExited(job_id="a", workers=(0,), cause="finished"))


async def test_job_of_which_processes_are_looked_for_in_vain_keeps_no_other_action_waiting(
    tmp_path: Path, looking: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "FIND_S", 0.01)
    async with a_ground(tmp_path) as ground:
        async with asyncio.timeout(10.0):
            with pytest.raises(ClusterUnavailable, match="job a: its processes were not found"):
                await ground.start(a_torch_job("a", "exit 0"))
        monkeypatch.undo()
        await ground.start(a_torch_job("a", "exit 0"))
        await ground.until_told(JobCompleted(job_id="a"), WorkerExited(job_id="a", workers=(0,), cause="finished"))


async def test_look_says_nothing_of_a_worker_that_came_and_went_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = [threading.Event(), threading.Event()]
    begun: list[threading.Event] = []

    def find_and_wait(replicas: Path, uid: int) -> tuple[MarkedProcess, ...]:
        found = find_marked(replicas, uid)
        begun.append(looks[min(len(begun), 1)])
        assert begun[-1].wait(DEADLINE_S)
        return found

    leaves_one = f"case $VODA_REPLICA in *worker-2) {STRAY}; esac; {FOREVER}"
    async with a_ground(tmp_path) as ground:
        folder = JobFolder(ground.folder, "a")
        await ground.start(a_torch_job("a", leaves_one, min_replicas=1, max_replicas=3), workers=2)
        monkeypatch.setattr(folder_module, "find_marked", find_and_wait)
        try:
            await ground.resize("a", 1)
            await until(lambda: bool(begun))
            await ground.resize("a", 3)
            await until(lambda: folder.files.exists("stray") and folder.replica("worker-2").alive(1) is not None)
            shim = folder.replica("worker-2").alive(1)
            assert shim is not None
            os.kill(shim.pid, signal.SIGKILL)
            await until(lambda: not ground.cluster.jobs["a"].replicas.is_at_work("worker-2"))
            await ground.resize("a", 1)
            looks[0].set()
            await until(lambda: 1 not in ground.cluster.jobs["a"].record.devices)
            assert (await ground.workers(), is_alive(stray_of(ground))) == ((0, 2), True)
        finally:
            for look in looks:
                look.set()
        await ground.until_workers(0)
        assert not is_alive(stray_of(ground))


async def test_look_at_processes_that_fails_is_tried_again_after_a_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[float] = []

    def fail_first(replicas: Path, uid: int) -> tuple[MarkedProcess, ...]:
        looks.append(time.perf_counter())
        if len(looks) == 1:
            raise OSError(errno.ENFILE, "too many open files")
        return find_marked(replicas, uid)

    async with a_ground(tmp_path) as ground:
        await ground.start(a_torch_job("a", "while [ ! -e end ]; do sleep 0.05; done"))
        monkeypatch.setattr(folder_module, "find_marked", fail_first)
        (ground.folder / "a/end").touch()
        await ground.until_told(JobCompleted(job_id="a"), WorkerExited(job_id="a", workers=(0,), cause="finished"))
        assert looks[1] - looks[0] > TRY_AGAIN_S / 2


@needs(os.geteuid() == 0, "only root can start another user's process")
async def test_process_of_another_user_is_none_of_a_job_that_has_no_account(tmp_path: Path) -> None:
    async with a_ground(tmp_path) as ground:
        replica = JobFolder(ground.folder, "a").replicas / "worker-0"
        env = {"VODA_REPLICA": str(replica), "CUDA_VISIBLE_DEVICES": "0"}
        forged = await asyncio.create_subprocess_exec("sleep", "1000", env=env, user=OTHER, cwd="/")
        try:
            assert marked_job_ids(ground.folder, os.geteuid()) == frozenset()
            assert marked_job_ids(ground.folder, None) == {"a"}
            await ground.start(a_torch_job("a", "exit 0"))
            await ground.until_told(JobCompleted(job_id="a"), WorkerExited(job_id="a", workers=(0,), cause="finished"))
            assert forged.returncode is None
            assert is_alive(forged.pid)
        finally:
            forged.kill()
            await forged.wait()


async def test_process_that_got_the_id_of_one_that_was_found_is_not_killed(tmp_path: Path) -> None:
    env = {"VODA_REPLICA": str(tmp_path / "worker-0"), "CUDA_VISIBLE_DEVICES": "0,1"}
    process = await asyncio.create_subprocess_exec("sleep", "1000", env=env)
    try:
        [found] = find_marked(tmp_path, os.geteuid())
        assert found.pid == process.pid
        assert (found.replica, found.gpus) == ("worker-0", frozenset({"0", "1"}))
        assert kill_found([found], "worker-1") == []
        assert kill_found([found._replace(start=found.start - 1)]) == [process.pid]
        assert is_alive(process.pid)
        assert kill_found([found], "worker-0") == [process.pid]
        assert await process.wait() == -signal.SIGKILL
        assert find_marked(tmp_path, os.geteuid()) == ()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def test_process_that_ends_while_it_is_looked_at_counts_as_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have left another one behind, whose id the list of all processes did not have yet."""
    env = {"VODA_REPLICA": str(tmp_path / "worker-0")}
    with subprocess.Popen(["sleep", "1000"], env=env) as process:

        def end_first(pid: int) -> int | None:
            process.kill()
            process.wait()
            return start_of(pid)

        monkeypatch.setattr(marked, "start_of", end_first)
        found = find_marked(tmp_path, os.geteuid())
        process.kill()
    assert [each.pid for each in found] == [process.pid]
    assert kill_found(found, "worker-0") == [process.pid]
