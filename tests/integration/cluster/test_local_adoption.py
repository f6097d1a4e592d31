"""A local cluster whose process is killed: training goes on, and the next one takes it over."""

import asyncio
import errno
import json
import os
import select
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.file_leases import a_lease
from tests.local_jobs import FOREVER, Ground, a_torch_job, an_mpi_job
from tests.waiting import is_alive, until, wait_until
from voda import process_table
from voda.clock import SystemClock
from voda.cluster.local import exit_policy, job_replicas
from voda.cluster.local.devices import Device
from voda.cluster.local.folder import JobFolder
from voda.cluster.local.processes import replica
from voda.cluster.local.processes.replica_folder import ReplicaFolder
from voda.cluster.local.run_spec import RunSpec
from voda.domain.errors import ActionRefused
from voda.domain.plan import StartJob
from voda.domain.reasons.failures import Exited, ReplicaFailed
from voda.events.text.failures import failure_text
from voda.events.types import JobCompleted, JobFailed, WorkerExited
from voda.process_table import start_of
from voda.untrusted_files import UntrustedFolder

_OWNER = """
import asyncio, sys
from pathlib import Path
import msgspec
from tests.local_jobs import Ground
from voda.cluster.local.run_spec import RunSpec
from voda.cluster.local.devices import cpu_slots

async def main():
    ground = Ground(folder=Path(sys.argv[1]))
    await ground.open()
    for line in sys.stdin:
        words = line.split(maxsplit=2)
        if words[0] == "start":
            await ground.start(msgspec.json.decode(words[2], type=RunSpec), workers=int(words[1]))
        elif words[0] == "halt":
            await ground.halt(words[1])
        print("ok", flush=True)

asyncio.run(main())
"""


class Owner:
    """Another process that owns a local cluster."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def start(self, run_spec: RunSpec, workers: int) -> None:
        """Have it start a job."""
        await self._tell(f"start {workers} {msgspec.json.encode(run_spec).decode()}")

    async def halt(self, job_id: str) -> None:
        """Have it halt a job."""
        await self._tell(f"halt {job_id}")

    async def kill(self) -> None:
        """End it without a warning."""
        self._process.kill()
        await self._process.wait()

    async def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line.encode() + b"\n")
        async with asyncio.timeout(60):
            assert await self._process.stdout.readline() == b"ok\n"


@asynccontextmanager
async def an_owner(jobs: Path) -> AsyncIterator[Owner]:
    """Yield another process that owns a cluster on a folder."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        _OWNER,
        str(jobs),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parents[3],
    )
    try:
        yield Owner(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@asynccontextmanager
async def plan_copy(jobs: Path, *run_specs: RunSpec) -> AsyncIterator[Ground]:
    """Yield ground on the same folder, opened by this process."""
    ground = Ground(folder=jobs)
    for run_spec in run_specs:
        ground.admit(run_spec)
    await ground.open()
    try:
        yield ground
    finally:
        await ground.end()


async def test_job_when_its_owner_is_killed_goes_on_and_is_adopted(tmp_path: Path) -> None:
    job = an_mpi_job("a", f"echo $$$$; {FOREVER}")
    log = tmp_path / "jobs/a/logs/launcher.log"
    async with an_owner(tmp_path / "jobs") as owner:
        await owner.start(job, 2)
        await until(lambda: log.exists() and log.read_text().endswith("\n"))
        await owner.kill()
    pid = int(log.read_text())
    assert is_alive(pid)
    async with plan_copy(tmp_path / "jobs", job) as ground:
        assert await ground.workers() == (0, 1)
        await ground.start(job, 2)
        await ground.resize("a", 3)
        await ground.halt("a")
        await ground.until_told(WorkerExited(job_id="a", workers=(0, 1, 2)))
        assert not is_alive(pid)
        assert log.read_text() == f"{pid}\n"


async def test_end_when_nobody_looked_is_learned(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs"
    well = an_mpi_job("a", f"echo up; until [ -e {tmp_path}/go ]; do sleep 0.02; done")
    badly = an_mpi_job(
        "b", f"echo up; until [ -e {tmp_path}/go ]; do sleep 0.02; done; exit 4", policy={"backoff_limit": 0}
    )
    async with an_owner(jobs) as owner:
        await owner.start(well, 1)
        await owner.start(badly, 2)
        await owner.kill()
    (tmp_path / "go").touch()
    for job_id in "ab":
        await until((jobs / job_id / ".voda/replicas/launcher/exit.json").exists)
    async with plan_copy(jobs, well, badly) as ground:
        await ground.until_workers()
        await ground.until_workers(job_id="b")
        assert (await ground.cluster.observe()).ended == {
            "a": JobCompleted(job_id="a"),
            "b": JobFailed(
                job_id="b",
                reason=ReplicaFailed(replica="launcher", how=Exited(exit_code=4, said="up", are_lines=True)),
            ),
        }


async def test_halt_when_its_owner_is_killed_meanwhile_is_finished(tmp_path: Path) -> None:
    job = an_mpi_job("a", f"trap '' TERM; echo up; {FOREVER}", grace_s=1.0)
    log = tmp_path / "jobs/a/logs/launcher.log"
    async with an_owner(tmp_path / "jobs") as owner:
        await owner.start(job, 1)
        await until(lambda: log.exists() and "up" in log.read_text())
        await owner.halt("a")
        await owner.kill()
    async with plan_copy(tmp_path / "jobs", job) as ground:
        await ground.until_workers()
        assert not any(isinstance(notice, JobFailed) for notice in ground.notices())


async def test_agents_when_one_died_meanwhile_are_told_apart(tmp_path: Path) -> None:
    job = a_torch_job("a", f"echo $$$$; {FOREVER}", min_replicas=1)
    logs = [tmp_path / f"jobs/a/logs/worker-{index}.log" for index in range(2)]
    async with an_owner(tmp_path / "jobs") as owner:
        await owner.start(job, 2)
        await until(lambda: all(log.exists() and log.read_text() for log in logs))
        await owner.kill()
    os.kill(int(logs[1].read_text()), signal.SIGKILL)
    await until((tmp_path / "jobs/a/.voda/replicas/worker-1/exit.json").exists)
    async with plan_copy(tmp_path / "jobs", job) as ground:
        await ground.until_told(WorkerExited(job_id="a", workers=(1,), cause="failed", exit_code=137))
        assert await ground.workers() == (0,)


@pytest.mark.parametrize("comes_late", [False, True])
async def test_agent_when_its_owner_died_before_telling_it_to_go_is_told_by_the_next(
    tmp_path: Path, comes_late: bool
) -> None:
    job = a_torch_job("a", f"echo $$$$; {FOREVER}", min_replicas=1)
    home = tmp_path / "jobs/a"
    logs = [home / f"logs/worker-{index}.log" for index in range(2)]
    async with an_owner(tmp_path / "jobs") as owner:
        await owner.start(job, 2)
        await until(lambda: all(log.exists() and log.read_text() for log in logs))
        await owner.kill()
    _rewritten(tmp_path / "jobs", leaving=[1])
    process, aside = home / ".voda/replicas/worker-1/process.json", tmp_path / "process.json"
    if comes_late:
        process.rename(aside)
    async with plan_copy(tmp_path / "jobs", job) as ground:
        if comes_late:
            assert await ground.workers() == (0, 1)
            aside.rename(process)
        await ground.until_workers(0)
        assert is_alive(int(logs[0].read_text()))
        assert not is_alive(int(logs[1].read_text()))


async def test_job_when_its_owner_died_between_a_shrink_and_its_end_is_completed_by_the_next(tmp_path: Path) -> None:
    job = a_torch_job("a", f'[ "${{VODA_REPLICA##*/}}" = worker-0 ] && exit 0; {FOREVER}', min_replicas=1)
    async with an_owner(tmp_path / "jobs") as owner:
        await owner.start(job, 2)
        await until((tmp_path / "jobs/a/.voda/replicas/worker-0/exit.json").exists)
        await owner.kill()
    _rewritten(tmp_path / "jobs", done=[0], judged={"worker-0": 1}, leaving=[1], size=1)
    async with plan_copy(tmp_path / "jobs", job) as ground:
        await ground.until_told(JobCompleted(job_id="a"))
        await ground.until_workers()


async def test_job_that_ends_when_its_record_tells_nobody_to_go_is_ended_all_the_same(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs"
    async with an_owner(jobs) as owner:
        await owner.start(an_mpi_job("a", FOREVER), 2)
        await owner.kill()
    _rewritten(jobs, state="halting")
    async with plan_copy(jobs, an_mpi_job("a", FOREVER)) as ground:
        await ground.until_told(WorkerExited(job_id="a", workers=(0, 1)))


async def test_launcher_when_a_worker_was_killed_under_it_by_the_former_owner_is_forgiven(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However slow the machine is.
    monkeypatch.setattr(exit_policy, "FORGIVEN_S", 3_600.0)
    jobs, job = tmp_path / "jobs", an_mpi_job("a", "echo up; until [ -e go ]; do sleep 0.02; done")
    async with an_owner(jobs) as owner:
        await owner.start(job, 2)
        await owner.kill()
    _rewritten(jobs, forgiven_until=SystemClock().now() + 3_000.0)
    (jobs / "a/go").touch()
    await until((jobs / "a/.voda/replicas/launcher/exit.json").exists)
    (jobs / "a/go").unlink()
    async with plan_copy(jobs, job) as ground:
        await until(lambda: ground.log().count("up") == 2)
        assert (await ground.cluster.observe()).ended == {}


def _rewritten(jobs: Path, **changes: Any) -> None:
    record = jobs / "a/.voda/record.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), **changes}))


async def test_process_when_it_bears_a_dead_ones_id_is_not_taken_for_it(tmp_path: Path) -> None:
    job = an_mpi_job("a", f"echo $$$$; {FOREVER}", policy={"backoff_limit": 0})
    log = tmp_path / "jobs/a/logs/launcher.log"
    async with an_owner(tmp_path / "jobs") as owner:
        await owner.start(job, 1)
        await until(lambda: log.exists() and log.read_text().endswith("\n"))
        await owner.kill()
    process = tmp_path / "jobs/a/.voda/replicas/launcher/process.json"
    alive = json.loads(process.read_text())
    os.kill(alive["pid"], signal.SIGKILL)
    await until(lambda: not is_alive(alive["pid"]) and not is_alive(int(log.read_text())))
    # The id is given to somebody else: this very process.
    process.write_text(json.dumps({**alive, "pid": os.getpid(), "start": (start_of(os.getpid()) or 0) - 1}))
    async with plan_copy(tmp_path / "jobs", job) as ground:
        await ground.until_workers()
        ended = (await ground.cluster.observe()).ended["a"]
        assert isinstance(ended, JobFailed)
        assert "its shim was killed" in failure_text(ended.reason)


@pytest.mark.parametrize("pause_s", [0.0, 0.005, 0.01, 0.015, 0.02, 0.03])
async def test_program_when_its_owner_is_killed_at_any_moment_runs_once(tmp_path: Path, pause_s: float) -> None:
    job = an_mpi_job("a", f"echo $$$$; {FOREVER}")
    jobs = tmp_path / "jobs"
    async with an_owner(jobs) as owner:
        started = asyncio.ensure_future(owner.start(job, 1))
        await until((jobs / "a/.voda/record.json").exists)
        await asyncio.sleep(pause_s)
        await owner.kill()
        # What it started may hold the other end of its output.
        started.cancel()
        await asyncio.gather(started, return_exceptions=True)
    async with plan_copy(jobs, job) as ground:
        if not await ground.workers():
            await ground.start(job)
        await until(lambda: ground.log().endswith("\n"))
        await asyncio.sleep(0.2)
        assert ground.log().count("\n") == 1
        assert is_alive(int(ground.log()))


class Dead(BaseException):
    """Of an owner that gets no further."""


async def test_program_when_the_shim_of_a_dead_owner_comes_very_late_runs_once_and_can_be_halted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, jobs = an_mpi_job("a", f"echo $$$$; {FOREVER}"), tmp_path / "jobs"
    late: list[Callable[[], replica.ReplicaProcess]] = []

    def dies(*arguments: Any, now: float) -> replica.ReplicaProcess:
        late.append(partial(replica.start_replica, JobFolder(jobs, "a"), *arguments[1:], now=now))
        raise Dead

    owner = Ground(folder=jobs)
    await owner.open()
    with monkeypatch.context() as patched:
        patched.setattr(job_replicas, "start_replica", dies)
        with pytest.raises(Dead):
            await owner.start(job)
    await owner.cluster.close()
    grant = ReplicaFolder.grant

    def just_after_it_came(self: ReplicaFolder, run: int, devices: Sequence[str]) -> None:
        if late and self.name == "launcher":
            shim, home = late.pop()(), JobFolder(jobs, "a").replicas / self.name
            wait_until(lambda: is_readable(shim._pidfd) or (home / "process.json").exists())
            shim.close()
        grant(self, run, devices)

    monkeypatch.setattr(ReplicaFolder, "grant", just_after_it_came)
    async with plan_copy(jobs, job) as ground:
        assert not late
        await until(lambda: ground.log().endswith("\n"))
        assert ground.log().count("\n") == 1
        await ground.halt("a")
        await ground.until_told(WorkerExited(job_id="a", workers=(0,)))
        assert not is_alive(int(ground.log()))


def is_readable(descriptor: int) -> bool:
    return bool(select.select([descriptor], [], [], 0)[0])


async def test_assignment_when_adopted_is_the_same(tmp_path: Path) -> None:
    job = an_mpi_job("a", f"echo up; {FOREVER}")
    async with an_owner(tmp_path / "jobs") as owner:
        await owner.start(job, 2)
        await owner.kill()
    before = JobFolder(tmp_path / "jobs", "a").load()
    async with plan_copy(tmp_path / "jobs", job) as ground:
        other = an_mpi_job("b", f"echo up; {FOREVER}")
        await ground.start(other, 2)
        after, fresh = JobFolder(ground.folder, "a").load(), JobFolder(ground.folder, "b").load()
        assert before is not None
        assert after is not None
        assert fresh is not None
        assert after.devices == before.devices
        assert not {name for names in fresh.devices.values() for name in names} & {
            name for names in after.devices.values() for name in names
        }


async def test_folder_when_somebody_copied_a_job_is_left_alone(tmp_path: Path) -> None:
    jobs, job = tmp_path / "jobs", an_mpi_job("b", FOREVER)
    async with an_owner(jobs) as owner:
        await owner.start(job, 1)
        # One that is read before the original, one after it, and one that no job could be called.
        for copied in ("a-copy", "z-copy", "b.bak"):
            shutil.copytree(jobs / "b", jobs / copied)
        await owner.kill()
    async with plan_copy(jobs, job) as ground:
        await ground.resize("b", 2)
        assert await ground.workers("b") == (0, 1)
        assert json.loads((jobs / "z-copy/.voda/record.json").read_text())["devices"].keys() == {"0"}
        await ground.halt("b")
        await ground.until_told(WorkerExited(job_id="b", workers=(0, 1)))


async def test_job_when_it_keeps_a_lease_on_its_lock_is_ended_by_the_next_voda(tmp_path: Path) -> None:
    job, jobs = an_mpi_job("a", f"echo $$$$; {FOREVER}", policy={"backoff_limit": 0}), tmp_path / "jobs"
    log, lock = jobs / "a/logs/launcher.log", jobs / "a/.voda/replicas/launcher/lock"
    async with an_owner(jobs) as owner:
        await owner.start(job, 1)
        await until(lambda: log.exists() and log.read_text().endswith("\n"))
        await owner.kill()
    lock.unlink()
    with a_lease(lock):
        async with plan_copy(jobs, job) as ground:
            await ground.until_workers(within_s=20)
            assert isinstance((await ground.cluster.observe()).ended["a"], JobFailed)
            assert not is_alive(int(log.read_text()))


async def test_job_when_the_system_refuses_to_open_its_files_is_taken_over_a_little_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, jobs, refused = an_mpi_job("a", f"echo $$$$; {FOREVER}"), tmp_path / "jobs", list[str]()
    log = jobs / "a/logs/launcher.log"
    async with an_owner(jobs) as owner:
        await owner.start(job, 1)
        await until(lambda: log.exists() and log.read_text().endswith("\n"))
        await owner.halt("a")
        await owner.kill()
    open_file = UntrustedFolder.open

    def refuses_once(self: UntrustedFolder, path: str, flags: int = os.O_RDONLY) -> int:
        if path.endswith("launcher/lock") and not refused:
            refused.append(path)
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return open_file(self, path, flags)

    monkeypatch.setattr(UntrustedFolder, "open", refuses_once)
    async with plan_copy(jobs, job) as ground:
        await ground.until_workers(within_s=20)
        assert refused
        assert not is_alive(int(log.read_text()))


def _remove(home: Path) -> None:
    shutil.rmtree(home)


def _put_fifo(home: Path) -> None:
    shutil.rmtree(home / ".voda")
    os.mkfifo(home / ".voda")


def _put_link(home: Path) -> None:
    shutil.rmtree(home)
    home.symlink_to("/")


@pytest.mark.parametrize("lose", [_remove, _put_fifo, _put_link])
@pytest.mark.parametrize("kind", [an_mpi_job, a_torch_job])
async def test_job_when_its_record_is_gone_has_no_process_left_before_its_devices_are_free(
    tmp_path: Path, lose: Callable[[Path], None], kind: Callable[..., RunSpec]
) -> None:
    jobs, pids = tmp_path / "jobs", tmp_path / "pids"
    job = kind("a", f"echo $$$$ >> {pids}; {FOREVER}", min_replicas=1)
    async with an_owner(jobs) as owner:
        await owner.start(job, 1)
        await until(lambda: pids.exists() and pids.read_text().endswith("\n"))
        await owner.kill()
    before = int(pids.read_text())
    lose(jobs / "a")
    async with plan_copy(jobs, job) as ground:
        await ground.until_told(WorkerExited(job_id="a", workers=(0,)))
        assert not any(process_table.marked_processes(jobs))
        await until(lambda: not is_alive(before))
        await ground.start(job)
        if lose is _remove:
            await until(lambda: pids.read_text().count("\n") == 2)
        else:
            ended = (await ground.cluster.observe()).ended["a"]
            assert isinstance(ended, JobFailed)
            assert "expected a folder" in failure_text(ended.reason)
            await ground.until_workers()
        alive = [int(pid) for pid in pids.read_text().split() if is_alive(int(pid))]
        assert len(alive) == (lose is _remove)


async def test_job_when_its_record_is_lost_holds_its_gpus_until_its_processes_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ground = Ground(folder=tmp_path / "jobs", devices=[Device(name=str(index), model="A100") for index in range(2)])
    ground.admit(a_torch_job("a", FOREVER))
    home = JobFolder(ground.folder, "a").replicas / "worker-0"
    environment = {"VODA_REPLICA": str(home), "CUDA_VISIBLE_DEVICES": "1"}
    left = await asyncio.create_subprocess_exec("sleep", "1000", env=environment)
    try:
        with monkeypatch.context() as patched:
            # As one that hangs in a driver, it does not end.
            patched.setattr(signal, "pidfd_send_signal", lambda *_: None)
            await ground.open()
            assert await ground.workers() == (0,)
            assert ground.cluster.jobs["a"].record.devices == {0: ("1",)}
            with pytest.raises(ActionRefused, match="is ending"):
                await ground.apply(StartJob(job_id="a", nodes=("n1",)))
        await ground.until_told(WorkerExited(job_id="a", workers=(0,)))
        assert await left.wait() == -signal.SIGKILL
        await ground.end()
    finally:
        if left.returncode is None:
            left.kill()


async def test_processes_of_a_job_that_is_not_live_here_are_left_alone(tmp_path: Path) -> None:
    ground = Ground(folder=tmp_path / "jobs")
    home = JobFolder(ground.folder, "a").replicas / "worker-0"
    left = await asyncio.create_subprocess_exec("sleep", "1000", env={"VODA_REPLICA": str(home)})
    try:
        await ground.open()
        await ground.end()
        assert is_alive(left.pid)
    finally:
        left.kill()
        await left.wait()
