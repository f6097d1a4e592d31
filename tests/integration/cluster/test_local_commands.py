"""Commands beside local replicas: with what they run, and that nothing of them is left; real processes and users."""

import asyncio
import os
import signal
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.accounts import passable_folder
from tests.inherited import nothing_of_roots, roots_own, showing
from tests.local_jobs import FOREVER, Ground, a_ground, a_torch_job, an_mpi_job
from tests.needs import missing, needs
from tests.waiting import DEADLINE_S, is_alive, until
from voda.accounts import account_of
from voda.cluster.local.exec.commands import LocalCommands
from voda.cluster.local.exec.session import ExecSession
from voda.cluster.local.isolation.cgroups import find_cgroups
from voda.cluster.local.isolation.job_environment import clean_environment
from voda.cluster.port import CommandEnd, CommandRequest, RemoteCommand, TerminalSize
from voda.domain.errors import ClusterUnavailable, InvalidInput, WrongState
from voda.domain.job import JobSpec

ANN = "games"
"""An account that every system has; no process of it runs on a machine for tests."""
as_root = needs(os.geteuid() == 0, "only root starts processes of other users")
_SIZES = """
while [ "$(stty size)" = "0 0" ]; do sleep 0.05; done; stty size; read line
while [ "$(stty size)" = "30 100" ]; do sleep 0.05; done; stty size; echo err >&2
"""


@asynccontextmanager
async def beside(ground: Ground, *argv: str, replica: str = "worker-0", **fields: Any) -> AsyncIterator[ExecSession]:
    """Run a command beside a replica of job a."""
    request = CommandRequest(argv=argv, **fields)
    async with LocalCommands(lambda: [ground.cluster]).run("a", replica, request) as command:
        yield command


async def printed(command: RemoteCommand) -> tuple[bytes, bytes, CommandEnd]:
    """Return all that a command prints, to standard output and error, and how it ends."""
    out, errors = b"", b""
    async with asyncio.timeout(DEADLINE_S):
        while not isinstance(got := await command.read(), CommandEnd):
            out, errors = (out, errors + got.data) if got.is_error else (out + got.data, errors)
    return out, errors, got


async def until_printed(command: RemoteCommand, text: bytes) -> None:
    """Read until a command has printed something."""
    found = b""
    async with asyncio.timeout(DEADLINE_S):
        while text not in found:
            got = await command.read()
            assert not isinstance(got, CommandEnd), (got, found)
            found += got.data


async def said(ground: Ground, script: str, **fields: Any) -> list[str]:
    """Return the lines that a shell script prints beside a replica, to standard output and error."""
    async with beside(ground, "sh", "-c", script, **fields) as command:
        out, errors, _ = await printed(command)
    return (out + errors).decode().splitlines()


@pytest.fixture
def folder() -> Iterator[Path]:
    with passable_folder() as made:
        yield made


@asynccontextmanager
async def a_job_of_ann(folder: Path, script: str = FOREVER, **settings: Any) -> AsyncIterator[Ground]:
    async def account(_spec: JobSpec) -> Any:
        return account_of(ANN)

    base = clean_environment({"PATH": os.defpath})
    async with a_ground(folder, settings={"account": account, **settings}, base=base) as ground:
        await ground.start(a_torch_job("a", script, user=ANN, max_replicas=1, policy={"backoff_limit": 0}))
        yield ground


@pytest.fixture
async def ground(ground: Ground) -> Ground:
    """One with a job `a`, of which one replica runs."""
    await ground.start(a_torch_job("a", FOREVER, min_replicas=1))
    return ground


async def run(ground: Ground, *argv: str) -> tuple[bytes, bytes, CommandEnd]:
    """Return what a command without input prints, and how it ends."""
    async with beside(ground, *argv) as command:
        return await printed(command)


async def test_output_and_errors_stay_apart_and_the_status_is_told(ground: Ground) -> None:
    script = "echo out; echo err >&2; exit 3"
    assert await run(ground, "sh", "-c", script) == (b"out\n", b"err\n", CommandEnd(3))


async def test_input_reaches_the_command_and_its_end_too(ground: Ground) -> None:
    async with beside(ground, "wc", "-c", has_input=True) as command:
        for _ in range(20):
            await command.write(b"x" * 10_000)
        await command.end_input()
        out, _, end = await printed(command)
    assert (int(out), end) == (200_000, CommandEnd(0))


async def test_without_input_the_command_reads_an_end_at_once(ground: Ground) -> None:
    assert await run(ground, "cat") == (b"", b"", CommandEnd(0))


async def test_command_that_is_not_there_is_told_so_with_127(ground: Ground) -> None:
    out, errors, end = await run(ground, "no-such-program")
    assert (out, errors, end.status) == (b"", b"", 127)
    assert "no-such-program" in end.problem


async def test_large_output_arrives_whole(ground: Ground) -> None:
    out, _, end = await run(ground, "head", "-c", "3000000", "/dev/zero")
    assert (len(out), end) == (3_000_000, CommandEnd(0))


async def test_terminal_has_its_size_and_one_output(ground: Ground) -> None:
    size = TerminalSize(columns=100, rows=30)
    async with beside(ground, "sh", "-c", _SIZES, has_input=True, terminal=size) as command:
        await until_printed(command, b"30 100")
        await command.resize(TerminalSize(columns=120, rows=40))
        await command.write(b"\n")
        out, errors, end = await printed(command)
    assert b"40 120" in out
    assert b"err" in out
    assert (errors, end) == (b"", CommandEnd(0))


async def test_command_ends_with_its_replica(ground: Ground) -> None:
    async with beside(ground, "sh", "-c", "echo began; sleep 1000") as command:
        await until_printed(command, b"began")
        await ground.stop("a")
        _, _, end = await printed(command)
    assert end.status != 0


async def test_replicas_are_those_that_run_and_no_command_runs_beside_another(ground: Ground) -> None:
    commands = LocalCommands(lambda: [ground.cluster])
    assert len(await commands.replicas("a")) == 1
    assert not await commands.replicas("no-such-job")
    with pytest.raises(WrongState):
        async with beside(ground, "true", replica="worker-7"):
            pass


async def test_environment_is_that_of_the_program_and_the_folder_the_jobs(tmp_path: Path) -> None:
    program = "env | grep -v ^_= | sort; echo shown; " + FOREVER
    async with a_ground(tmp_path) as ground:
        await ground.start(a_torch_job("a", program, min_replicas=1))
        await ground.until_logged("shown", replica="worker-0")
        own = [line for line in ground.log(replica="worker-0").splitlines() if "=" in line]
        *shown, folder = await said(ground, "env | grep -v ^_= | sort; pwd")
        ours, theirs = ({line for line in lines if not line.startswith("PWD=")} for lines in (own, shown))
        assert ours == theirs
        assert folder == str(ground.folder / "a")


async def test_command_begins_where_the_program_began(tmp_path: Path) -> None:
    started = tmp_path / "project"
    started.mkdir()
    async with a_ground(tmp_path / "ground") as ground:
        await ground.start(a_torch_job("a", f"pwd; {FOREVER}", min_replicas=1, working_dir=str(started)))
        await ground.until_logged(str(started), replica="worker-0")
        assert await said(ground, "pwd") == [str(started)]
        assert await said(ground, 'cd "$VODA_JOB_DIR"; pwd') == [str(ground.folder / "a")]


async def test_launcher_of_an_mpi_job_is_the_replica_that_runs(tmp_path: Path) -> None:
    async with a_ground(tmp_path) as ground:
        await ground.start(an_mpi_job("a", FOREVER), workers=2)
        assert await LocalCommands(lambda: [ground.cluster]).replicas("a") == ["launcher"]
        assert await said(ground, "echo $VODA_POD_NAME", replica="launcher") == ["a-launcher"]


async def test_nothing_is_left_once_the_block_ends(ground: Ground) -> None:
    stubborn = "trap '' TERM HUP; setsid sleep 1000 & echo $! $$; while :; do sleep 0.05; done"
    async with beside(ground, "sh", "-c", stubborn) as command:
        output = await command.read()
        pids = [int(word) for word in getattr(output, "data", b"").split()]
        assert len(pids) == 2
    await until(lambda: not any(map(is_alive, pids)))
    assert await ground.workers() == (0,)


async def test_nothing_of_a_command_is_left_once_the_devices_of_its_replica_are_free(ground: Ground) -> None:
    stubborn = "trap '' TERM HUP; setsid sleep 1000 & echo $! $$; while :; do sleep 0.05; done"
    async with beside(ground, "env", "-i", "/bin/sh", "-c", stubborn) as command:
        pids = [int(word) for word in getattr(await command.read(), "data", b"").split()]
        assert len(pids) == 2
        await ground.stop("a")
        await ground.until_workers()
        assert [is_alive(pid) for pid in pids] == [False, False]


async def test_command_is_told_to_end_as_soon_as_its_replica_is(tmp_path: Path) -> None:
    program = "trap '' TERM; echo ready; until [ -e $VODA_JOB_DIR/done ]; do sleep 0.05; done"
    told = "trap '' HUP; trap 'echo told; exit 3' TERM; echo began; while :; do sleep 0.05; done"
    async with a_ground(tmp_path) as ground:
        await ground.start(a_torch_job("a", program, min_replicas=1, grace_s=60.0))
        await ground.until_logged("ready", replica="worker-0")
        async with beside(ground, "sh", "-c", told) as command:
            await until_printed(command, b"began")
            await ground.stop("a")
            output, _, end = await printed(command)
            assert (output, end.status) == (b"told\n", 3)
            assert await ground.workers() == (0,)
            with pytest.raises(WrongState, match="has just ended, or is about to"):
                await said(ground, "true")
        (ground.folder / "a" / "done").touch()


async def test_command_ignores_no_signal_that_voda_ignores(tmp_path: Path) -> None:
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGQUIT, signal.SIGTTOU)}
    show = "grep SigIgn /proc/self/status"
    try:
        async with a_ground(tmp_path) as ground:
            await ground.start(a_torch_job("a", f"{show}; {FOREVER}", min_replicas=1))
            await ground.until_logged("SigIgn", replica="worker-0")
            for line in (*await said(ground, show), ground.log(replica="worker-0")):
                ignored = int(line.split()[1], 16)
                assert not [number for number in before if ignored >> (number - 1) & 1], line
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


async def test_what_a_command_leaves_behind_ends_with_it(ground: Ground) -> None:
    [pid] = await said(ground, "(setsid sleep 1000 </dev/null >/dev/null 2>&1 & echo $!)")
    await until(lambda: not is_alive(int(pid)))


async def test_output_that_another_process_keeps_open_does_not_keep_the_command(tmp_path: Path) -> None:
    reader = "until read pid < pid; do sleep 0.02; done; exec 3> /proc/$pid/fd/1; echo held; " + FOREVER
    async with a_ground(tmp_path) as ground:
        await ground.start(a_torch_job("a", f"cd $VODA_JOB_DIR; {reader}", min_replicas=1))
        async with beside(
            ground, "sh", "-c", "echo $$ > new; mv new pid; read line; echo hi", has_input=True
        ) as command:
            await ground.until_logged("held", replica="worker-0")
            await command.write(b"\n")
            assert (await printed(command))[0] == b"hi\n"


async def test_terminal_when_the_block_ends_hangs_up(ground: Ground) -> None:
    size = TerminalSize(columns=80, rows=24)
    async with beside(ground, "sh", "-c", "echo pid $$; sleep 1000", terminal=size, has_input=True) as command:
        output = await command.read()
        pid = int(getattr(output, "data", b"").split()[1])
    await until(lambda: not is_alive(pid))


async def test_terminal_when_control_c_comes_interrupts_the_command(ground: Ground) -> None:
    size = TerminalSize(columns=80, rows=24)
    async with beside(ground, "sh", "-c", "echo began; exec cat", terminal=size, has_input=True) as command:
        await until_printed(command, b"began")
        await command.write(b"\x03")
        _, _, end = await printed(command)
    assert end.status == 128 + signal.SIGINT


async def test_command_with_words_that_none_can_have_is_refused(ground: Ground) -> None:
    with pytest.raises(InvalidInput, match="null byte"):
        await said(ground, "echo \0")


async def test_command_when_no_cluster_is_led_here_is_asked_for_again(tmp_path: Path) -> None:
    with pytest.raises(ClusterUnavailable, match="does not run the jobs"):
        await LocalCommands(lambda: ()).replicas("a")
    async with a_ground(tmp_path) as ground:
        with pytest.raises(WrongState, match="does not run any more"):
            async with beside(ground, "true"):
                pass


@as_root
async def test_command_has_the_ids_groups_mask_and_no_other_rights_of_its_user(folder: Path) -> None:
    account = account_of(ANN)
    assert account is not None
    script = (
        "id -u; id -g; id -G; umask; grep NoNewPrivs /proc/self/status | cut -f2"
        "; grep CapEff /proc/self/status | cut -f2; pwd; touch made; stat -c '%U %a' made; echo said > /dev/stderr"
        "; cat /proc/1/environ"
    )
    async with a_job_of_ann(folder) as ground:
        lines = await said(ground, script)
        assert lines[:-2] == [
            *(str(account.uid), str(account.gid), " ".join(map(str, account.groups)), "0077", "1", "0" * 16),
            *(str(ground.folder / "a"), f"{ANN} 600"),
        ]
        assert lines[-2] == "said"
        assert "Permission denied" in lines[-1]


@as_root
async def test_nothing_that_voda_was_started_with_reaches_a_command(folder: Path) -> None:
    with roots_own(folder):
        async with a_job_of_ann(folder) as ground:
            assert await said(ground, showing(folder)) == nothing_of_roots(nice=0)


@as_root
async def test_device_that_stands_for_no_input_stays_roots(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # One of the test's own: the machine's has to work whatever comes of this.
    device = folder / "null"
    try:
        os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        device.chmod(0o666)
        device.read_bytes()
    except OSError as error:
        missing(f"no device file can be made or opened here: {error}")
    async with a_job_of_ann(folder) as ground:
        monkeypatch.setattr("voda.cluster.local.exec.session.os.devnull", str(device))
        lines = await said(ground, "stat -L -c %t:%T:%U /dev/stdin; wc -c; echo said > /dev/stderr")
        assert lines == ["1:3:root", "0", "said"]
        assert device.stat().st_uid == 0


@as_root
async def test_terminal_belongs_to_the_user(folder: Path) -> None:
    async with a_job_of_ann(folder) as ground:
        size = TerminalSize(columns=80, rows=24)
        lines = await said(ground, "stat -c %U $(tty); echo hi > /dev/tty", terminal=size, has_input=True)
        assert lines == [ANN, "hi"]


@as_root
async def test_folder_is_entered_as_the_user_and_never_as_root(folder: Path) -> None:
    private = folder / "private"
    private.mkdir(mode=0o700)
    async with a_job_of_ann(folder) as ground:
        own = ground.folder / "a"
        own.rename(folder / "moved")
        own.symlink_to(private)
        async with beside(ground, "pwd") as command:
            out, errors, end = await printed(command)
        assert (out, errors, end.status) == (b"", b"", 126)
        assert end.problem == f"working directory {own}: Permission denied"
        own.unlink()
        (folder / "moved").rename(own)


@as_root
async def test_environment_is_what_voda_composed_and_not_what_the_program_shows(folder: Path) -> None:
    exec_with = "exec env VODA_JOB_DIR=/evil LD_PRELOAD=/evil.so sleep 1000"
    async with a_job_of_ann(folder, exec_with) as ground:
        assert await said(ground, "echo $VODA_JOB_DIR $LD_PRELOAD") == [str(ground.folder / "a")]


@as_root
async def test_processes_of_a_command_count_as_the_jobs(folder: Path) -> None:
    groups = find_cgroups()
    groups = replace(groups, hierarchies=tuple(each for each in groups.hierarchies if "pids" in each.controllers))
    if not groups.hierarchies:
        pytest.skip(f"no control groups of pids here: {groups.obstacle}")
    bomb = "for n in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 1000 & done; echo all"
    async with a_job_of_ann(folder, "exec sleep 1000", cgroups=groups, pids_limit=6) as ground:
        assert "all" not in await said(ground, bomb)
        assert await said(ground, "echo once more") == ["once more"]
