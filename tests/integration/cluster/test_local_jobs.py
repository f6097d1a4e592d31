"""Local jobs as real processes: starting, growing, shrinking, ending, and those that misbehave."""

import asyncio
import errno
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.local_jobs import FOREVER, Ground, a_ground, a_torch_job, an_mpi_job
from tests.needs import missing
from tests.waiting import is_alive, until
from voda import process_table
from voda.cluster.job_folders import LocalJobFolders
from voda.cluster.local import job_replicas
from voda.cluster.local.device_holders import DeviceHolders
from voda.cluster.local.folder import JobFolder
from voda.cluster.local.processes import replica
from voda.cluster.local.processes.replica_folder import Exit, ReplicaFolder
from voda.cluster.local.run_spec import RunSpec
from voda.domain.errors import ClusterUnavailable
from voda.domain.plan import HaltJob, StopJob
from voda.domain.reasons.failures import Exited, PastDeadline, ReplicaFailed
from voda.domain.reasons.nodes import Said
from voda.domain.settings import Settings
from voda.events.text.failures import end_text, failure_text
from voda.events.types import JobCompleted, JobFailed, ProgramFailed, WorkerExited, WorkerStarted


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Yield a folder that holds a megabyte."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(disk)], capture_output=True)
    if mounted.returncode:
        missing("a small file system of its own needs the right to mount")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


async def test_launcher_when_started_runs_with_the_operators_files_and_ends_well(ground: Ground) -> None:
    await ground.start(an_mpi_job("a", "cat /etc/mpi/hostfile; sh /etc/mpi/discover_hosts.sh; pwd"), workers=2)
    await ground.until_told(
        WorkerStarted(job_id="a", workers={0: "n1", 1: "n1"}),
        JobCompleted(job_id="a"),
        WorkerExited(job_id="a", workers=(0, 1), cause="finished"),
    )
    hosts = ["a-worker-0.a.default.svc", "a-worker-1.a.default.svc"]
    assert ground.log().splitlines() == [
        *(f"{host} slots=1" for host in hosts),
        *hosts,
        str(ground.folder / "a"),
    ]


async def test_end_when_the_log_has_not_heard_of_it_is_observed_until_it_has(ground: Ground) -> None:
    await ground.start(an_mpi_job("a", "exit 0"))
    await ground.until_workers()
    assert (await ground.cluster.observe()).ended == {"a": JobCompleted(job_id="a")}
    del ground.run_specs["a"]
    assert (await ground.cluster.observe()).ended == {}


async def test_launcher_when_somebody_looks_at_its_lock_just_then_is_started_all_the_same(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, lock = iter([False]), ReplicaFolder.lock

    @contextmanager
    def taken_once(self: ReplicaFolder) -> Iterator[bool]:
        with lock(self) as is_ours:
            yield next(answers, is_ours)

    monkeypatch.setattr(ReplicaFolder, "lock", taken_once)
    await ground.start(an_mpi_job("a", "exit 0"))
    await ground.until_told(JobCompleted(job_id="a"))


async def test_launcher_when_somebody_looks_at_its_lock_as_it_ends_is_not_run_again(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, is_locked = iter([True]), ReplicaFolder.is_locked

    def taken_at_its_end(self: ReplicaFolder) -> bool:
        ended = JobFolder(ground.folder, "a").replicas / self.name / "exit.json"
        return next(answers, False) if ended.exists() else is_locked(self)

    monkeypatch.setattr(ReplicaFolder, "is_locked", taken_at_its_end)
    await ground.start(an_mpi_job("a", "echo ran; exit 0"))
    await ground.until_told(JobCompleted(job_id="a"))
    assert ground.log() == "ran\n"


async def test_shim_that_has_its_lock_and_does_not_say_who_it_is_is_looked_at_by_few_timers(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []

    def find_replica(
        folder: JobFolder, name: str, run: int, status: int | None = None
    ) -> replica.ReplicaProcess | Exit | None:
        looks.append(name)
        return replica.find_replica(folder, name, run, status)

    monkeypatch.setattr(job_replicas, "find_replica", find_replica)
    with JobFolder(ground.folder, "a").replica("launcher").lock():
        await ground.start(an_mpi_job("a", "exit 0"))
        await until(lambda: len(looks) > 40)
        assert len(ground.cluster._context.timers) < 4
    await ground.until_told(JobCompleted(job_id="a"))


async def test_hosts_when_resized_are_rewritten_and_workers_told(ground: Ground) -> None:
    await ground.start(an_mpi_job("a", f"echo up; {FOREVER}"), workers=1)
    await ground.until_logged("up")
    await ground.resize("a", 3)
    script = ground.folder / "a" / "mpi" / "discover_hosts.sh"
    assert script.read_text().count("echo a-worker-") == 3
    await ground.resize("a", 2)
    await ground.until_told(WorkerExited(job_id="a", workers=(2,)))
    assert script.read_text() == "#!/bin/sh\necho a-worker-0.a.default.svc\necho a-worker-1.a.default.svc\n"


async def test_replicas_that_do_not_meet_when_resized_come_and_go_by_the_highest_index(ground: Ground) -> None:
    await ground.start(a_torch_job("a", f"echo up; {FOREVER}", min_replicas=1), workers=1)
    await ground.until_logged("up", replica="worker-0")
    await ground.resize("a", 2)
    await ground.until_logged("up", replica="worker-1")
    await ground.resize("a", 1)
    await ground.until_told(WorkerExited(job_id="a", workers=(1,)))
    assert await ground.workers() == (0,)
    assert ground.log(replica="worker-0") == "up\n"


async def test_program_when_halted_hears_of_it_and_finds_its_folder_again(ground: Ground) -> None:
    script = f"cat kept 2>/dev/null; trap 'echo checkpoint > kept; exit 0' TERM; echo up; {FOREVER}"
    await ground.start(an_mpi_job("a", script))
    await ground.until_logged("up")
    await ground.halt("a")
    await ground.until_told(WorkerExited(job_id="a", workers=(0,)))
    assert not any(isinstance(notice, JobCompleted | JobFailed) for notice in ground.told)
    await ground.start(ground.run_specs["a"])
    await ground.until_logged("checkpoint")


@pytest.mark.slow
async def test_program_when_it_ignores_sigterm_is_killed_and_holds_its_slot_until_then(ground: Ground) -> None:
    await ground.start(an_mpi_job("a", f"trap '' TERM; echo $$$$; {FOREVER}", grace_s=3.0))
    await until(lambda: ground.log().endswith("\n"))
    pid = int(ground.log())
    await ground.halt("a")
    assert await ground.workers() == (0,)
    await ground.until_told(WorkerExited(job_id="a", workers=(0,)))
    assert not is_alive(pid)


async def test_program_when_its_time_is_over_is_killed_whatever_its_grace(ground: Ground) -> None:
    await ground.start(an_mpi_job("a", f"trap '' TERM; echo up; {FOREVER}", grace_s=3_600.0))
    await ground.until_logged("up")
    await ground.halt("a")
    assert await ground.workers() == (0,)
    await ground.apply(HaltJob(job_id="a", is_kill=True))
    await ground.until_told(WorkerExited(job_id="a", workers=(0,)))
    assert not any(isinstance(notice, JobCompleted | JobFailed) for notice in ground.told)


async def test_program_when_its_job_is_killed_has_no_grace_left_though_it_was_told_to_end_before(
    ground: Ground,
) -> None:
    # What it leaves behind has another session and no mark.
    left = f"setsid env -i sh -c 'trap \"\" TERM; echo $$$$; {FOREVER}' &"
    await ground.start(an_mpi_job("a", f"trap '' TERM; {left} {FOREVER}", grace_s=500.0))
    await until(lambda: ground.log().endswith("\n"))
    await ground.stop("a")
    assert await ground.workers() == (0,)
    await ground.apply(StopJob(job_id="a", reason="canceled", is_kill=True))
    await ground.until_workers(within_s=10.0)
    assert not is_alive(int(ground.log()))


async def test_program_that_stops_its_shim_is_killed_with_it(ground: Ground) -> None:
    await ground.start(an_mpi_job("a", f"trap '' TERM; kill -STOP $PPID; echo up; {FOREVER}", grace_s=500.0))
    await ground.until_logged("up")
    await ground.apply(StopJob(job_id="a", reason="canceled", is_kill=True))
    await ground.until_workers(within_s=10.0)


async def test_grace_of_a_program_is_that_of_the_settings_where_it_asks_for_more(tmp_path: Path) -> None:
    async with a_ground(tmp_path, settings={"settings": lambda: Settings(termination_grace_s=0.5)}) as ground:
        await ground.start(an_mpi_job("a", f"trap '' TERM; echo up; {FOREVER}", grace_s=1e9))
        await ground.until_logged("up")
        await ground.halt("a")
        await ground.until_workers(within_s=10.0)


async def test_program_when_its_grant_cannot_be_taken_back_is_halted_all_the_same(ground: Ground) -> None:
    await ground.start(an_mpi_job("a", f"echo up; {FOREVER}"))
    await ground.until_logged("up")
    grant = ground.folder / "a/.voda/replicas/launcher/grant"
    grant.unlink()
    grant.mkdir()
    await ground.halt("a")
    await ground.until_told(WorkerExited(job_id="a", workers=(0,)))


async def test_start_when_the_jobs_folder_is_a_file_fails_the_job(ground: Ground) -> None:
    ground.folder.mkdir(exist_ok=True)
    (ground.folder / "a").write_text("")
    await ground.start(an_mpi_job("a", "true"))
    reason = "its folder cannot be used: a cannot be used: not a directory"
    await ground.until_told(JobFailed(job_id="a", reason=Said(text=reason)))
    assert await ground.workers() == ()


async def test_descendants_when_they_daemonise_are_killed_with_the_program(ground: Ground) -> None:
    script = "setsid sh -c 'trap \"\" TERM HUP; (echo $$$$ >> pids; env -i sleep 1000) &' ; sleep 0.3; cat pids"
    await ground.start(an_mpi_job("a", f"(setsid sleep 1000 & echo $! >> pids); {script}"))
    await ground.until_told(WorkerExited(job_id="a", workers=(0,), cause="finished"))
    pids = [int(word) for word in ground.log().split()]
    assert pids
    assert not any(is_alive(pid) for pid in pids)


async def test_command_when_not_found_fails_the_job_at_once(ground: Ground) -> None:
    await ground.start(an_mpi_job("a", "", argv=("no-such-program", "--x")))
    await ground.until_told(WorkerExited(job_id="a", workers=(0,), cause="failed", exit_code=127))
    [failed] = [fact for fact in ground.told if isinstance(fact, JobFailed)]
    assert failure_text(failed.reason).startswith(
        "launcher could not run: command no-such-program: not found; its Python was "
    )


@pytest.mark.parametrize("code", [126, 127])
async def test_program_when_it_cannot_run_at_all_is_not_tried_again(ground: Ground, code: int) -> None:
    await ground.start(a_torch_job("a", f"exit {code}"))
    await ground.until_told(WorkerExited(job_id="a", workers=(0,), cause="failed", exit_code=code))
    [failed] = [fact for fact in ground.told if isinstance(fact, JobFailed)]
    what = {126: "found, but not executable", 127: "command not found"}[code]
    assert failure_text(failed.reason) == f"worker-0 ended with exit code {code} ({what})"


async def test_launcher_when_it_fails_is_restarted_up_to_the_limit(ground: Ground) -> None:
    await ground.start(an_mpi_job("a", "echo try; exit 3", policy={"backoff_limit": 1}))
    await ground.try_again()
    await ground.until_told(
        JobFailed(
            job_id="a",
            reason=ReplicaFailed(replica="launcher", how=Exited(exit_code=3, said="try", are_lines=True), restarts=1),
        )
    )
    assert ground.log() == "try\ntry\n"
    assert ground.told.count(WorkerStarted(job_id="a", workers={0: "n1"})) == 2


@pytest.mark.parametrize("a_job", [an_mpi_job, a_torch_job], ids=["mpi", "torch"])
async def test_job_when_its_program_failed_holds_no_gpu_until_its_next_try(
    ground: Ground, a_job: Callable[..., RunSpec]
) -> None:
    await ground.start(a_job("a", "exit 3"), workers=2)
    await ground.until_workers()
    # Another job can have them all meanwhile.
    await ground.start(a_torch_job("b", FOREVER), workers=4)
    record, observed = ground.cluster.jobs["a"].record, await ground.cluster.observe()
    assert (record.devices, record.failures) == ({}, 1)
    assert observed.retries.get("a", record.not_before) == pytest.approx(record.not_before)
    exits = [fact for fact in ground.notices() if isinstance(fact, WorkerExited)]
    assert {index for fact in exits for index in fact.workers} == {0, 1}
    assert all(fact.retry_at == pytest.approx(record.not_before) for fact in exits)


async def test_output_when_a_program_is_started_again_has_a_line_between_its_runs(ground: Ground) -> None:
    await ground.start(an_mpi_job("a", "printf unended; exit 3", policy={"backoff_limit": 1}))
    await ground.try_again()
    await ground.until_told(
        JobFailed(
            job_id="a",
            reason=ReplicaFailed(
                replica="launcher", how=Exited(exit_code=3, said="unended", are_lines=True), restarts=1
            ),
        )
    )
    first, between, second = ground.output().splitlines()
    assert (first, second) == ("unended", "unended")
    assert re.fullmatch(r"\[voda: started again at \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\]", between)


async def test_program_when_memory_runs_out_goes_before_voda_and_its_shim(ground: Ground) -> None:
    await ground.start(an_mpi_job("a", "cat /proc/self/oom_score_adj; cat /proc/$PPID/oom_score_adj"))
    await ground.until_told(JobCompleted(job_id="a"))
    own, of_shim = map(int, ground.log().split())
    assert own == 500 > of_shim


async def test_program_when_it_fails_and_is_started_again_is_told_with_its_last_line(ground: Ground) -> None:
    await ground.start(an_mpi_job("a", "echo try; echo no data; exit 3", policy={"backoff_limit": 1}))
    await until(lambda: any(isinstance(fact, ProgramFailed) for fact in ground.notices()))
    [failed] = [fact for fact in ground.told if isinstance(fact, ProgramFailed)]
    assert (failed.replica, end_text(failed.reason)) == ("launcher", "ended with exit code 3: no data")
    assert (failed.next_try, failed.most_tries) == (2, 2)
    assert failed.next_try_at is not None


async def test_worker_when_killed_is_told_with_its_exit_code_and_can_come_back(ground: Ground) -> None:
    await ground.start(a_torch_job("a", f"echo $$$$; {FOREVER}", min_replicas=1), workers=2)
    await until(lambda: ground.log(replica="worker-1").endswith("\n"))
    os.kill(int(ground.log(replica="worker-1")), 9)
    await ground.until_told(WorkerExited(job_id="a", workers=(1,), cause="failed", exit_code=137))
    await ground.resize("a", 2)
    await until(lambda: ground.log(replica="worker-1").count("\n") == 2)


async def test_job_when_its_deadline_passes_fails(ground: Ground) -> None:
    await ground.start(an_mpi_job("a", FOREVER, policy={"active_deadline_s": 0.3}))
    await ground.until_told(WorkerExited(job_id="a", workers=(0,), cause="failed"))
    assert JobFailed(job_id="a", reason=PastDeadline(limit_s=0.3)) in ground.told


@pytest.fixture
async def early_timers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let timers come a moment before their time, as those of uvloop do."""
    loop = asyncio.get_running_loop()
    call_later = loop.call_later
    monkeypatch.setattr(loop, "call_later", lambda pause_s, *rest: call_later(max(0.0, pause_s - 0.005), *rest))


@pytest.mark.usefixtures("early_timers")
async def test_restart_when_its_timer_comes_early_is_not_forgotten(ground: Ground) -> None:
    await ground.start(an_mpi_job("a", "echo up; exit 3", policy={"backoff_limit": 1}))
    await ground.try_again()
    await until(lambda: ground.log().count("up") == 2)


@pytest.mark.usefixtures("early_timers")
async def test_deadline_when_its_timer_comes_early_is_not_forgotten(ground: Ground) -> None:
    await ground.start(an_mpi_job("a", FOREVER, policy={"active_deadline_s": 0.3}))
    await ground.until_told(WorkerExited(job_id="a", workers=(0,), cause="failed"))


async def test_deadline_when_the_job_was_halted_meanwhile_counts_anew(ground: Ground) -> None:
    await ground.start(an_mpi_job("a", f"echo up; {FOREVER}", policy={"active_deadline_s": 60.0}))
    job = ground.cluster.jobs["a"]
    job.record.resumed_at -= 60.0
    await ground.halt("a")
    await ground.until_workers()
    await ground.resize("a", 1)
    # As the timer of the first start does.
    job._check_deadline()
    assert (await ground.cluster.observe()).ended == {}
    job.record.resumed_at -= 60.0
    job._check_deadline()
    await ground.until_told(WorkerExited(job_id="a", workers=(0,), cause="failed"))


_FIRST_FAILS = """
if [ "${VODA_REPLICA##*/}" = worker-0 ]; then [ -e failed ] || { touch failed; exit 1; }; exit 0; fi
until [ -e go ]; do sleep 0.01; done
"""


async def test_job_when_one_worker_is_to_run_again_is_not_completed_by_the_other(ground: Ground) -> None:
    await ground.start(a_torch_job("a", _FIRST_FAILS), workers=2)
    await ground.until_told(WorkerExited(job_id="a", workers=(0,), cause="failed", exit_code=1))
    (ground.folder / "a/go").touch()
    await until(lambda: ground.cluster.jobs["a"].record.done == {1})
    assert JobCompleted(job_id="a") not in ground.notices()
    await ground.resize("a", 2)
    await ground.until_told(JobCompleted(job_id="a"))


async def test_job_when_the_plan_gave_up_the_worker_that_it_waited_for_is_completed(ground: Ground) -> None:
    await ground.start(a_torch_job("a", "until [ -e go ]; do sleep 0.01; done"), workers=2)
    await _worker_1_is_killed(ground)
    (ground.folder / "a/go").touch()
    await until(lambda: ground.cluster.jobs["a"].record.done == {0})
    assert JobCompleted(job_id="a") not in ground.notices()
    await ground.resize("a", 1)
    await ground.until_told(JobCompleted(job_id="a"))


async def test_job_when_a_worker_is_sent_away_beside_one_that_has_ended_well_is_not_completed(ground: Ground) -> None:
    await ground.start(a_torch_job("a", f'[ "${{VODA_REPLICA##*/}}" = worker-0 ] && exit 0; {FOREVER}'), workers=2)
    await until(lambda: ground.cluster.jobs["a"].record.done == {0})
    # For a while only: the plan has two, and the other's GPU is not free yet.
    await ground.resize("a", 1, planned=2)
    await ground.until_told(WorkerExited(job_id="a", workers=(1,)))
    await ground.resize("a", 1, planned=2)
    assert (await ground.cluster.observe()).ended == {}
    assert await ground.workers() == (0,)


async def test_job_when_it_is_shrunk_to_workers_that_have_ended_well_is_completed(ground: Ground) -> None:
    await ground.start(a_torch_job("a", f'[ "${{VODA_REPLICA##*/}}" = worker-0 ] && exit 0; {FOREVER}'), workers=2)
    await until(lambda: ground.cluster.jobs["a"].record.done == {0})
    await ground.resize("a", 1)
    await ground.until_told(JobCompleted(job_id="a"))
    await ground.until_workers()
    assert not ground.cluster.jobs["a"].replicas


async def test_job_when_a_worker_ends_well_in_a_shrink_on_the_way_waits_for_the_rest_of_the_plan(
    ground: Ground,
) -> None:
    await ground.start(a_torch_job("a", "until [ -e go ]; do sleep 0.01; done"), workers=2)
    await ground.resize("a", 1, planned=2)
    await ground.until_workers(0)
    (ground.folder / "a/go").touch()
    await until(lambda: ground.cluster.jobs["a"].record.done == {0})
    assert (await ground.cluster.observe()).ended == {}
    await ground.resize("a", 2)
    await ground.until_told(JobCompleted(job_id="a"))


async def test_size_when_the_plan_gave_a_lost_worker_up_is_observed_until_it_is_told(ground: Ground) -> None:
    await ground.start(a_torch_job("a", "until [ -e go ]; do sleep 0.01; done"), workers=2)
    await _worker_1_is_killed(ground)
    assert (await ground.cluster.observe()).sizes == {"a": 2}
    await ground.resize("a", 1)
    assert (await ground.cluster.observe()).sizes == {"a": 1}
    (ground.folder / "a/go").touch()
    await ground.until_told(JobCompleted(job_id="a"))


async def _worker_1_is_killed(ground: Ground) -> None:
    program = "/bin/sh"
    folder = ground.folder / "a/.voda/replicas/worker-1"
    await until(lambda: any(_runs(pid, program) for pid, _ in process_table.marked_processes(folder)))
    process_table.kill_marked(folder)
    await ground.until_workers(0)


def _runs(pid: int, program: str) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text().startswith(program)
    return False


async def test_start_when_it_is_refused_half_way_leaves_no_claim_to_the_next_voda(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(DeviceHolders, "_write_files", full)
        with pytest.raises(ClusterUnavailable):
            await ground.start(an_mpi_job("a", FOREVER), workers=2)
    await ground.start(an_mpi_job("b", FOREVER), workers=4)
    await ground.cluster.close()
    await ground.open()
    assert (await ground.cluster.observe()).workers.keys() == {"b"}


@pytest.mark.slow
async def test_output_when_it_outgrows_its_cap_keeps_its_end(tmp_path: Path) -> None:
    async with a_ground(tmp_path, settings={"log_bytes": 100_000}) as ground:
        script = "i=0; while [ $i -lt 30000 ]; do echo line $i; i=$((i+1)); done; echo over; sleep 3; echo end"
        await ground.start(an_mpi_job("a", script))
        await ground.until_logged("end\n")
        assert len(ground.log()) <= 100_000
        assert "output before this was dropped" in ground.log()


async def test_output_when_a_program_prints_much_and_ends_at_once_is_cut_too(tmp_path: Path) -> None:
    async with a_ground(tmp_path, settings={"log_bytes": 100_000}) as ground:
        # Within the first moment, before any look at it; and in more than one run.
        script = "head -c 3000000 /dev/zero | tr '\\0' x; mkdir $VODA_JOB_DIR/again && exit 1; exit 0"
        await ground.start(an_mpi_job("a", script))
        await ground.try_again()
        await ground.until_told(JobCompleted(job_id="a"))
        await until(lambda: len(ground.log()) <= 100_100 and "output before this was dropped" in ground.log())
        assert LocalJobFolders(tmp_path / "jobs").cut_replicas("a") == ["launcher"]


async def test_output_is_cut_whatever_a_program_does_to_its_descriptor(tmp_path: Path) -> None:
    # What it prints goes to the file itself, by its path, while the flags of the descriptor are those of another use.
    prog = """
import fcntl, os
fcntl.fcntl(1, fcntl.F_SETFL, os.O_DIRECT | os.O_NONBLOCK)
os.lseek(1, 1 << 40, os.SEEK_SET)
log = os.open(os.readlink("/proc/self/fd/1"), os.O_WRONLY | os.O_APPEND)
for _ in range(40):
    os.write(log, b"x" * 100_000)
"""
    async with a_ground(tmp_path, settings={"log_bytes": 100_000}) as ground:
        job = an_mpi_job("a", "", argv=("/bin/sh", "-c", f"{sys.executable} -c '{prog}'; {FOREVER}"))
        await ground.start(job)
        await until(lambda: 0 < len(ground.log()) <= 100_100 and "output before this was dropped" in ground.log())


async def test_room_that_a_program_sets_aside_behind_its_output_is_taken_back(tmp_path: Path) -> None:
    prog = """
import ctypes
print("begun", flush=True)
print(ctypes.CDLL(None).fallocate(1, 1, ctypes.c_long(0), ctypes.c_long(40 << 20)), flush=True)
"""
    async with a_ground(tmp_path, settings={"log_bytes": 100_000}) as ground:
        job = an_mpi_job("a", "", argv=("/bin/sh", "-c", f"{sys.executable} -c '{prog}'; {FOREVER}"))
        await ground.start(job)
        await ground.until_logged("begun\n0\n")
        log = ground.folder / "a" / "logs" / "launcher.log"
        await until(lambda: log.stat().st_blocks * 512 <= 200_000)
        assert ground.log().endswith("begun\n0\n")


async def test_outputs_of_a_job_share_what_it_may_print_evenly(tmp_path: Path) -> None:
    async with a_ground(tmp_path, settings={"settings": lambda: Settings(output_bytes=400_000)}) as ground:
        job = a_torch_job("a", "head -c 900000 /dev/zero | tr '\\0' x; sleep 60", max_replicas=4)
        await ground.start(job, workers=2)
        for replica in ("worker-0", "worker-1"):
            await ground.until_logged("it outgrew 100000 bytes", replica=replica)
            await until(lambda: len(ground.log(replica=replica)) <= 100_100)  # noqa: B023 - called at once


async def test_job_when_it_fills_its_disk_ends_and_is_told(small_disk: Path) -> None:
    async with a_ground(small_disk) as ground:
        fill = "dd if=/dev/zero of=full bs=4096 2>/dev/null; echo lost; exit 5"
        await ground.start(an_mpi_job("a", fill, policy={"backoff_limit": 0}), workers=2)
        await ground.until_told(
            JobFailed(job_id="a", reason=ReplicaFailed(replica="launcher", how=Exited(exit_code=5))),
            WorkerExited(job_id="a", workers=(0, 1), cause="failed", exit_code=5),
        )
        with pytest.raises(ClusterUnavailable, match=r"its folder cannot be written: .*No space left"):
            await ground.start(an_mpi_job("b", "echo never"))
        (small_disk / "jobs/a/full").unlink()
        await ground.start(ground.run_specs["b"])
        await ground.until_logged("never", job_id="b")


async def test_environment_when_it_cannot_be_given_to_a_process_fails_the_job(ground: Ground) -> None:
    job = an_mpi_job("a", "true")
    odd = {"launcher": replace(job.programs["launcher"], env=(("A=B", "c"),))}
    await ground.start(replace(job, programs=odd))
    await until(lambda: any(isinstance(notice, JobFailed) for notice in ground.notices()))


async def test_working_directory_when_it_is_not_there_fails_the_job_with_its_name(ground: Ground) -> None:
    await ground.start(an_mpi_job("a", "true", working_dir="/no/such/folder"))
    await ground.until_told(WorkerExited(job_id="a", workers=(0,), cause="failed", exit_code=127))
    failed = next(notice for notice in ground.told if isinstance(notice, JobFailed))
    assert "working directory /no/such/folder: not found" in failure_text(failed.reason)


def test_shim_that_is_just_starting_when_looked_for_is_left_alone(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path, "a")
    folder.make()
    folder.replica("worker-0").grant(1, [])
    home = folder.replicas / "worker-0"
    with subprocess.Popen(["/bin/sleep", "60"], env={"VODA_REPLICA": str(home)}) as shim:
        try:
            assert replica.find_replica(folder, "worker-0", 1) is None
            assert shim.poll() is None
            assert is_alive(shim.pid)
        finally:
            shim.kill()
