"""Jobs that run as users of this machine: what they begin with, and what they cannot do to voda and to each other."""

import asyncio
import os
import pwd
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.accounts import as_account, passable_folder
from tests.inherited import nothing_of_roots, roots_own, showing
from tests.local_jobs import FOREVER, Ground, a_ground, a_torch_job, an_mpi_job
from tests.needs import needs, needs_debians_mpi
from tests.waiting import is_alive, until, wait_until
from voda import process_table
from voda.accounts import Account, account_of
from voda.cluster.job_folders import LocalJobFolders
from voda.cluster.local import device_holders
from voda.cluster.local.folder import JobFolder
from voda.cluster.local.isolation.job_environment import clean_environment
from voda.cluster.local.processes.marked import MarkedProcess
from voda.cluster.local.processes.replica_folder import ReplicaFolder
from voda.cluster.local.rendezvous import probe_for_users
from voda.domain.errors import ClusterUnavailable, InvalidInput, TransientError
from voda.domain.job import JobSpec
from voda.domain.plan import StartJob
from voda.events.text.failures import failure_text
from voda.events.types import JobCompleted, JobFailed

ANN, BOB = "games", "daemon"
"""Accounts that every system has; no process of theirs runs on a machine for tests."""

pytestmark = needs(os.geteuid() == 0, "only root starts processes of other users")


class Users:
    """The accounts of the jobs' owners, as `voda up` looks them up."""

    def __init__(self) -> None:
        self.known: dict[str, Account | Exception | None] = {name: account_of(name) for name in (ANN, BOB)}

    async def account(self, spec: JobSpec) -> Account | None:
        if spec.user == "admin":
            return None
        match self.known.get(spec.user):
            case Account() as found:
                return found
            case Exception() as error:
                raise error
            case _:
                raise InvalidInput(f"user {spec.user} has no account on this machine")


@pytest.fixture
def folder() -> Iterator[Path]:
    with passable_folder() as made:
        yield made


@asynccontextmanager
async def ground_of_users(folder: Path, users: Users | None = None, **settings: Any) -> AsyncIterator[Ground]:
    settings["account"] = (users or Users()).account
    async with a_ground(folder, settings=settings, base=clean_environment({"PATH": os.defpath})) as ground:
        yield ground


def a_job(job_id: str, script: str, user: str = ANN, **fields: Any) -> Any:
    return a_torch_job(job_id, script, user=user, **{"max_replicas": 1, "policy": {"backoff_limit": 0}, **fields})


def uid(user: str) -> int:
    return pwd.getpwnam(user).pw_uid


async def printed_by(ground: Ground, script: str, user: str = ANN, **fields: Any) -> list[str]:
    """Return what a job prints that ends well."""
    await ground.start(a_job("a", script, user, **fields))
    await until(lambda: any(isinstance(notice, JobCompleted | JobFailed) for notice in ground.notices()))
    assert JobCompleted(job_id="a") in ground.notices(), ground.log(replica="worker-0")
    return ground.log(replica="worker-0").splitlines()


def failure(ground: Ground, job_id: str = "a") -> str:
    return next(
        (failure_text(n.reason) for n in ground.notices() if isinstance(n, JobFailed) and n.job_id == job_id), ""
    )


def refused(user: str, script: str) -> str:
    """Run a script as a user, and return what it prints; it has to fail."""
    return as_account(user, lambda: os.popen(f"({script}) 2>&1 && echo DONE").read())


async def test_job_runs_with_its_users_ids_groups_and_mask_in_its_users_folder(folder: Path) -> None:
    script = (
        "id -u; id -g; id -G; umask; grep NoNewPrivs /proc/self/status | cut -f2; pwd -P; stat -c '%U %a' ."
        "; grep CapEff /proc/self/status | cut -f2; ls -l /proc/self/fd/0 | sed 's/.* //'; touch made; stat -c %a made"
    )
    account = account_of(ANN)
    assert account is not None
    async with ground_of_users(folder) as ground:
        assert await printed_by(ground, script) == [
            *(str(account.uid), str(account.gid), " ".join(map(str, account.groups)), "0077", "1"),
            *(str(ground.folder / "a"), f"{ANN} 700", "0" * 16, "/dev/null", "600"),
        ]


async def test_nothing_that_voda_was_started_with_reaches_a_job(folder: Path) -> None:
    with roots_own(folder):
        async with ground_of_users(folder) as ground:
            assert await printed_by(ground, showing(folder)) == nothing_of_roots()


async def test_job_of_the_owner_without_an_account_runs_as_who_runs_voda(folder: Path) -> None:
    async with ground_of_users(folder) as ground:
        assert await printed_by(ground, "id -u; stat -c %U .", "admin") == ["0", "root"]
        assert not (ground.folder / ".records/a").exists()


async def test_environment_is_that_of_the_user_and_nothing_reaches_roots_process(folder: Path) -> None:
    program_env = (("LD_PRELOAD", "/tmp/evil.so"), ("A", "1"))
    async with ground_of_users(folder) as ground:
        spec = a_job("a", f"env; echo began; {FOREVER}")
        program = spec.programs["worker"]
        await ground.start(replace(spec, programs={"worker": replace(program, env=program_env)}))
        await ground.until_logged("began", replica="worker-0")
        shim = JobFolder(ground.folder, "a").replica("worker-0").alive(1)
        assert shim is not None
        home = ground.folder / ".records/a/.voda/replicas/worker-0"
        [its] = [environ for pid, environ in process_table.marked_processes(ground.folder) if pid == shim.pid]
        assert its == f"VODA_REPLICA={home}\0".encode()
        own = dict(line.split("=", 1) for line in ground.log(replica="worker-0").splitlines() if "=" in line)
        assert own["HOME"] == pwd.getpwnam(ANN).pw_dir
        assert (own["USER"], own["LOGNAME"], own["A"], own["LD_PRELOAD"]) == (ANN, ANN, "1", "/tmp/evil.so")
        assert own["VODA_JOB_DIR"] == str(ground.folder / "a")


async def test_user_cannot_read_what_is_anothers_or_vodas_and_can_read_the_own_log(folder: Path) -> None:
    (folder / "voda.db").touch(mode=0o600)
    (folder / "admin.token").touch(mode=0o600)
    async with ground_of_users(folder) as ground:
        await ground.start(a_job("a", f"echo secret > kept; echo hello; export B=2; {FOREVER}"))
        await ground.until_logged("hello", replica="worker-0")
        log, record = ground.folder / "a/logs/worker-0.log", ground.folder / ".records/a/.voda/record.json"
        assert as_account(ANN, log.read_text) == "hello\n"
        job = next(
            one.pid for one in JobFolder(ground.folder, "a").find_processes() if os.stat(f"/proc/{one.pid}").st_uid
        )
        for path in (ground.folder / "a/kept", log, ground.folder / "a", f"/proc/{job}/environ"):
            assert "Permission denied" in refused(BOB, f"cat {path}"), path
            assert "denied" in refused(BOB, f"ls {path}/") or "Not a directory" in refused(BOB, f"ls {path}/")
        for user in (ANN, BOB):
            for path in (
                folder / "voda.db",
                folder / "admin.token",
                record,
                ground.folder,
                record.parent.parent.parent,
            ):
                assert "Permission denied" in refused(user, f"cat {path} || ls {path}"), path
            shim = JobFolder(ground.folder, "a").replica("worker-0").alive(1)
            assert shim is not None
            assert "not permitted" in refused(user, f"kill -9 {shim.pid}")
            assert "Permission denied" in refused(user, f"cat /proc/{shim.pid}/environ")
        assert "not permitted" in refused(BOB, f"kill -9 {job}")
        assert is_alive(job)


async def test_job_that_forges_its_exit_or_kills_its_shim_fails_at_that(folder: Path) -> None:
    forge = (
        'home=$VODA_REPLICA; echo "{\\"run\\":1,\\"code\\":0}" > $home/exit.json && echo FORGED; rm -f $home/exit.tmp'
        " && echo REMOVED; mv $home $home.old && echo MOVED; ln -s /tmp $home/x && echo LINKED; kill -9 $PPID && echo"
        " KILLED; cat $home/grant && echo READ; mkdir -p .voda/replicas/worker-0; "
        'echo "{\\"run\\":1,\\"code\\":0}" > .voda/replicas/worker-0/exit.json; cp .voda/replicas/worker-0/exit.json'
        " .voda/record.json; flock -n $home/lock true && echo LOCKED; exit 3"
    )
    async with ground_of_users(folder) as ground:
        await ground.start(a_job("a", forge))
        await until(lambda: failure(ground) != "")
        assert failure(ground).startswith("worker-0 ended with exit code 3")
        printed = ground.log(replica="worker-0")
        for word in ("FORGED", "REMOVED", "MOVED", "LINKED", "KILLED", "READ", "LOCKED"):
            assert word not in printed.split(), printed


async def test_links_that_a_job_plants_lead_root_nowhere(folder: Path) -> None:
    victim = folder / "victim"
    victim.mkdir(mode=0o700)
    for name in ("record.json", "hostfile", "worker-0.log", "launcher.log", "exit.json"):
        (victim / name).write_text("root's")
    plant = (
        f"rm -rf logs mpi .voda; ln -s {victim} logs; ln -s {victim} mpi; ln -s {victim} .voda; "
        f"echo planted; [ -e again ] || {{ touch again; exit 1; }}; {FOREVER}"
    )
    async with ground_of_users(folder) as ground:
        await ground.start(an_mpi_job("a", plant, user=ANN, max_replicas=4), workers=1)
        await ground.until_logged("planted")
        await ground.try_again()
        await until(lambda: ground.log().count("planted") == 2)
        await ground.resize("a", 3)
        await ground.halt("a")
        await ground.until_workers()
        await ground.start(an_mpi_job("a", plant, user=ANN, max_replicas=4), workers=2)
        await until(lambda: ground.log().count("planted") == 3)
        await ground.stop("a")
        await ground.until_workers()
    assert {path.read_text() for path in victim.iterdir()} == {"root's"}
    assert {path.stat().st_uid for path in (victim, *victim.iterdir())} == {0}
    assert victim.stat().st_mode & 0o777 == 0o700


async def test_launcher_of_a_user_gets_into_its_workers_by_the_agent(folder: Path) -> None:
    # What mpirun does for each worker, by the script that it is given for that.
    script = (
        'for host in $(cut -d" " -f1 "$PRTE_MCA_prte_default_hostfile"); do'
        ' "$PRTE_MCA_plm_ssh_agent" $host "echo in \\$(uname -n) as \\$(id -u) of \\${VODA_REPLICA##*/}"; done; exit 0'
    )
    async with ground_of_users(folder) as ground:
        if ground.cluster._context.transport != "remote":
            pytest.skip("this system allows users no hostnames of a process's own")
        await ground.start(an_mpi_job("a", script, user=ANN), workers=2)
        await ground.until_told(JobCompleted(job_id="a"))
        host = "a-worker-{0}"
        assert ground.log().splitlines() == [
            f"in {host.format(index)} as {uid(ANN)} of worker-{index}" for index in range(2)
        ]
        assert "Permission denied" in refused(BOB, f"cat {ground.folder}/.records/a/.voda/replicas/worker-0/lock")


@pytest.mark.parametrize("holder", [ANN, BOB])
async def test_worker_that_was_taken_away_is_free_though_an_unmarked_process_keeps_its_lock(
    folder: Path, holder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_holders, "_SPARE_S", 0.5)
    finders: list[threading.Thread] = []

    find_holders = ReplicaFolder.find_users_lock_holders

    def find(replica: ReplicaFolder) -> tuple[MarkedProcess, ...]:
        finders.append(threading.current_thread())
        return find_holders(replica)

    monkeypatch.setattr(ReplicaFolder, "find_users_lock_holders", find)
    async with ground_of_users(folder, transport="rank") as ground:
        await ground.start(an_mpi_job("a", f"echo began; {FOREVER}", user=ANN, grace_s=0.1), workers=2)
        await ground.until_logged("began")
        path = JobFolder(ground.folder, "a").replicas / "worker-1/lock"
        # One that inherited the lock: another user can be handed it so.
        with path.open("rb") as lock:
            process_table.try_lock(lock.fileno())
            account = account_of(holder)
            assert account is not None
            kept = await asyncio.create_subprocess_exec(
                *("sleep", "1000"), env={}, pass_fds=[lock.fileno()], user=account.uid, group=account.gid
            )
        await ground.resize("a", 1)
        try:
            assert await ground.workers() == (0, 1)
            await ground.until_workers(0, within_s=20)
            if holder == ANN:
                assert await kept.wait() == -signal.SIGKILL
            assert is_alive(kept.pid) == (holder == BOB)
            # Once, as the user may have very many files open, and not on the event loop.
            assert [finder is threading.main_thread() for finder in finders] == [False]
        finally:
            if kept.returncode is None:
                kept.kill()
                await kept.wait()


async def test_jobs_of_users_when_voda_is_gone_run_on_and_are_taken_over(folder: Path) -> None:
    users = Users()
    async with ground_of_users(folder, users) as ground:
        await ground.start(a_job("a", f"trap 'exit 0' TERM; echo began; {FOREVER}"))
        await ground.start(a_job("b", "while [ ! -e end ]; do sleep 0.05; done; exit 4", BOB))
        await ground.until_logged("began", replica="worker-0")
        before = JobFolder(ground.folder, "a").replica("worker-0").alive(1)
        await ground.cluster.close()
        (ground.folder / "b/end").touch()
        await until(lambda: JobFolder(ground.folder, "b").replica("worker-0").exit(1) is not None)
        await ground.open()
        await until(lambda: failure(ground, "b") != "")
        assert "exit code 4" in failure(ground, "b")
        assert await ground.workers("a") == (0,)
        await ground.halt("a")
        await ground.until_workers()
        assert before is not None
        assert not is_alive(before.pid)


async def test_replica_of_a_job_taken_over_starts_again_as_its_user_once_the_account_is_found(folder: Path) -> None:
    users = Users()
    async with ground_of_users(folder, users) as ground:
        script = f"id -u; [ -e again ] || {{ touch again; exit 1; }}; {FOREVER}"
        await ground.start(a_job("a", script, policy={"backoff_limit": 3}))
        await until(lambda: JobFolder(ground.folder, "a").replica("worker-0").exit(1) is not None)
        await ground.cluster.close()
        users.known[ANN] = TransientError("LDAP does not answer")
        cluster = await ground.open()
        await cluster._find_missing_accounts()
        assert ground.log(replica="worker-0").split() == [str(uid(ANN))]
        users.known[ANN] = account_of(ANN)
        await cluster._find_missing_accounts()
        await ground.until_workers()
        await ground.apply(StartJob(job_id="a", nodes=("n1",)))
        await until(lambda: ground.log(replica="worker-0").split() == [str(uid(ANN))] * 2)


async def test_job_whose_owner_has_no_account_fails_with_its_reason_and_nothing_runs(folder: Path) -> None:
    async with ground_of_users(folder) as ground:
        await ground.start(a_job("a", "touch /tmp/never", "nobody-has-this"))
        assert failure(ground) == "user nobody-has-this has no account on this machine"
        assert not any(process_table.marked_processes(ground.folder))
        assert not (ground.folder / "a").exists()


async def test_job_that_ran_when_its_owner_lost_the_account_is_ended_by_the_next_voda(folder: Path) -> None:
    users = Users()
    async with ground_of_users(folder, users) as ground:
        await ground.start(a_job("a", f"echo began; {FOREVER}"))
        await ground.until_logged("began", replica="worker-0")
        await ground.cluster.close()
        users.known[ANN] = None
        cluster = await ground.open()
        await cluster._find_missing_accounts()
        assert failure(ground) == f"user {ANN} has no account on this machine"
        await ground.until_workers()


async def test_job_whose_owner_has_another_uid_now_gets_no_folder_of_the_former_one(folder: Path) -> None:
    users = Users()
    async with ground_of_users(folder, users) as ground:
        await ground.start(a_job("a", f"echo began; {FOREVER}"))
        await ground.until_logged("began", replica="worker-0")
        await ground.halt("a")
        await ground.until_workers()
        users.known[ANN] = account_of(BOB)
        await ground.apply(StartJob(job_id="a", nodes=("n1",)))
        assert f"belongs to uid {uid(ANN)}, expected uid {uid(BOB)}" in failure(ground)


async def test_job_that_ran_as_root_before_never_runs_as_its_user_in_roots_folder(folder: Path) -> None:
    (folder / "jobs/a/.voda/replicas").mkdir(parents=True)
    async with ground_of_users(folder) as ground:
        await ground.start(a_job("a", "touch made"))
        assert f"a belongs to uid 0, expected {uid(ANN)}" in failure(ground)


async def test_accounts_that_cannot_be_looked_up_put_a_start_off(folder: Path) -> None:
    users = Users()
    users.known[ANN] = TransientError("LDAP does not answer")
    async with ground_of_users(folder, users) as ground:
        with pytest.raises(ClusterUnavailable, match="job a: LDAP does not answer"):
            await ground.start(a_job("a", "true"))
        users.known[ANN] = account_of(ANN)
        await ground.apply(StartJob(job_id="a", nodes=("n1",)))
        await ground.until_told(JobCompleted(job_id="a"))


async def test_process_of_another_user_that_claims_to_be_a_jobs_neither_holds_its_devices_nor_is_killed(
    folder: Path,
) -> None:
    async with ground_of_users(folder) as ground:
        await ground.start(
            a_job("b", f"VODA_REPLICA={ground.folder}/.records/a/.voda/replicas/worker-0 sleep 1000", BOB)
        )
        await ground.start(a_job("a", f"echo began; {FOREVER}"))
        await ground.until_logged("began", replica="worker-0")
        claims = ground.folder / ".records/a/.voda/replicas/worker-0"
        await until(lambda: any(_user_of(pid) == uid(BOB) for pid, _ in process_table.marked_processes(claims)))
        [impostor] = [pid for pid, _ in process_table.marked_processes(claims) if _user_of(pid) == uid(BOB)]
        await ground.halt("a")
        await ground.until_workers(job_id="a")
        assert is_alive(impostor)


def _run(script: str) -> None:
    subprocess.run(["/bin/sh", "-c", script], check=True, timeout=60)


def _user_of(pid: int) -> int:
    return os.stat(f"/proc/{pid}").st_uid


SECRET_CASES = {
    "fine": ("install -o {user} -m 600 {source} {path}", ""),
    "open": ("install -o {user} -m 640 {source} {path}", "others may read it (mode 640): chmod 600 it"),
    "missing": ("true", "not found"),
    "link": ("ln -s {source} {path}", "it is a symbolic link, which is not followed"),
    "fifo": ("mkfifo -m 600 {path} && chown {user} {path}", "no regular file"),
    "foreign": ("install -m 604 {source} {path}", "it belongs to uid 0"),
    "roots": ("install -m 600 {source} {path}", "Permission denied"),
    "big": (
        "head -c 70000 /dev/zero > {path}; chown {user} {path}; chmod 600 {path}",
        "it holds more than 65536 bytes",
    ),
}


@pytest.mark.parametrize("case", SECRET_CASES)
async def test_variable_from_a_file_is_read_at_the_start_by_the_jobs_user_alone(folder: Path, case: str) -> None:
    prepare, problem = SECRET_CASES[case]
    source, path = folder / "source", folder / "key"
    source.write_text("s3cret\n")
    source.chmod(0o600)
    _run(prepare.format(user=ANN, source=source, path=path))
    async with ground_of_users(folder) as ground:
        await ground.start(a_job("a", 'echo "[$KEY]"', env_files={"KEY": str(path)}))
        if problem:
            await until(lambda: failure(ground) != "")
            assert failure(ground).startswith(f"worker-0 could not run: the file {path} of the variable KEY: {problem}")
        else:
            await ground.until_told(JobCompleted(job_id="a"))
            assert ground.log(replica="worker-0") == "[s3cret]\n"
            assert b"s3cret" not in b"".join(
                each.read_bytes() for each in (ground.folder / ".records").rglob("*.json") if each.is_file()
            )


def test_probe_for_users_shows_its_user_nothing_of_vodas_environment(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python, seen = folder / "python", folder / "seen"
    python.write_text(f"#!/bin/sh\ntr '\\0' '\\n' < /proc/$$/environ > {seen}\n")
    python.chmod(0o755)
    seen.touch()
    seen.chmod(0o666)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setenv("VODA_LOG", "postgresql://voda:secret@host/log")
    assert probe_for_users(folder)[0].python == str(python)
    assert (seen.stat().st_mtime_ns > python.stat().st_mtime_ns, seen.read_text()) == (True, "")


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["remote", "rank"])
async def test_mpirun_of_a_user_starts_its_ranks_as_the_user_on_its_workers(folder: Path, transport: str) -> None:
    mpirun = shutil.which("mpirun", path=str(Path(sys.executable).parent))
    if mpirun is None or "Permission denied" in refused(ANN, f"{mpirun} --version"):
        pytest.skip("users cannot reach mpirun here")
    script = f"exec {mpirun} sh -c 'echo \"$(id -un) in ${{VODA_REPLICA##*/}}\"'"
    async with ground_of_users(folder, transport=transport) as ground:
        if transport == "remote" and probe_for_users(ground.folder)[1] != "remote":
            pytest.skip("this system allows users no hostnames of a process's own")
        await ground.start(an_mpi_job("a", script, user=ANN), workers=2)
        await ground.until_told(JobCompleted(job_id="a"))
        # mpirun may warn that a rank was faster than it.
        assert sorted(line for line in ground.log().splitlines() if " in worker-" in line) == [
            f"{ANN} in worker-0",
            f"{ANN} in worker-1",
        ]


@pytest.mark.slow
@needs_debians_mpi()
@pytest.mark.parametrize("transport", ["remote", "rank"])
async def test_ranks_of_a_user_when_halted_are_told_before_mpirun_is(folder: Path, transport: str) -> None:
    rank = "trap 'sleep 2.5; echo saved; exit 143' TERM; echo up; while :; do sleep 0.05; done"
    async with ground_of_users(folder, transport=transport) as ground:
        if transport == "remote" and probe_for_users(ground.folder)[1] != "remote":
            pytest.skip("this system allows users no hostnames of a process's own")
        job = an_mpi_job("a", f"exec mpirun.openmpi sh -c {shlex.quote(rank)}", user=ANN, grace_s=60.0)
        await ground.start(job, workers=2)
        await ground.until_logged("up\nup\n")
        await ground.halt("a")
        await ground.until_workers()
        assert ground.log().count("saved\n") == 2


def test_folder_of_an_ended_job_is_in_use_by_its_processes_not_by_a_lock_that_its_user_takes(folder: Path) -> None:
    account = account_of(ANN)
    assert account is not None
    job = JobFolder(folder, "a", account=account)
    job.make(account)
    job.replica("worker-0").grant(0, ())
    folders = LocalJobFolders(folder)
    lock = job.replicas / "worker-0" / "lock"
    hold = ["flock", "--no-fork", str(lock), "sleep", "60"]
    holder = subprocess.Popen(hold, user=account.uid, group=account.gid, extra_groups=[])
    try:
        wait_until(lambda: job.replica("worker-0").is_locked())
        assert not folders.is_in_use("a")
        environment = {process_table.REPLICA_MARK: str(job.replicas / "worker-0")}
        with subprocess.Popen(["sleep", "60"], user=account.uid, env=environment) as replica:
            wait_until(lambda: folders.is_in_use("a"))
            replica.kill()
    finally:
        holder.kill()
        holder.wait()
    # That of a run which only voda starts is voda's own, so it counts.
    job.replica("worker-1").grant(1, ())
    with job.replica("worker-1").lock():
        assert folders.is_in_use("a")
    assert not folders.is_in_use("a")


async def test_command_that_a_users_job_lacks_does_not_tell_what_roots_folders_hold(folder: Path) -> None:
    hidden = folder / "hidden"
    hidden.mkdir(mode=0o700)
    (hidden / "python").touch(mode=0o755)
    job = a_job("a", "echo no-such-torchrun: not found; exit 127")
    program = replace(job.programs["worker"], env=(("PATH", f"{hidden}:/usr/bin:/bin"),))
    async with ground_of_users(folder) as ground:
        await ground.start(replace(job, programs={"worker": program}))
        await until(lambda: failure(ground) != "")
        assert "no-such-torchrun: not found; its PATH was " in failure(ground)
        assert "python" not in failure(ground)
