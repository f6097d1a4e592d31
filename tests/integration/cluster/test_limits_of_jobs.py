"""Limits that the kernel of this machine keeps, as far as its control groups are voda's to use."""

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.local_jobs import FOREVER, a_ground, a_torch_job, an_mpi_job
from tests.needs import needs
from tests.waiting import is_alive, until
from voda.cluster.local.devices import Device
from voda.cluster.local.folder import JobFolder
from voda.cluster.local.isolation.cgroups import Cgroups, find_cgroups, group_name
from voda.cluster.local.isolation.limits import Limits
from voda.events.text.failures import failure_text
from voda.events.types import JobCompleted, JobFailed

pytestmark = needs(os.geteuid() == 0, "only root is sure to make control groups")


@pytest.fixture
def found() -> Iterator[Cgroups]:
    """Control groups of v1, each of which allows a test to look at one controller."""
    groups = find_cgroups()
    yield replace(groups, hierarchies=tuple(each for each in groups.hierarchies if not each.is_v2))
    for each in groups.hierarchies:
        left = [path.name for path in each.base.glob("voda-*")]
        assert not [name for name in left if name.endswith("-a.worker-0")], left


def needs_controller(groups: Cgroups, controller: str) -> None:
    if controller not in groups.controllers:
        pytest.skip(f"no control groups of {controller} here: {groups.obstacle}")


def a_job(script: str, limits: Limits, **fields: Any) -> Any:
    policy = {"backoff_limit": 0}
    return a_torch_job("a", script, policy=policy, max_replicas=1, limits={"worker": limits}, **fields)


async def test_memory_beyond_the_limit_ends_the_job_with_a_word_on_it(tmp_path: Path, found: Cgroups) -> None:
    needs_controller(found, "memory")
    hungry = "exec /usr/bin/python3 -c 'b = bytearray(200 << 20); print(len(b))'"
    async with a_ground(tmp_path, settings={"cgroups": found}) as ground:
        await ground.start(a_job(hungry, Limits(memory_bytes=50 << 20)))
        await until(lambda: any(isinstance(notice, JobFailed) for notice in ground.notices()))
        [failed] = [notice for notice in ground.notices() if isinstance(notice, JobFailed)]
        assert failure_text(failed.reason) == "worker-0 was killed for memory: its limit is 50 MiB"
        assert "its memory limit was reached" in ground.log(replica="worker-0")


HUNGRY_BEYOND_ITS_OUTPUT = """
import fcntl, os, time
print("began", flush=True)
while not os.path.exists("go"):
    time.sleep(0.02)
fcntl.fcntl(1, fcntl.F_SETFL, 0)
low, high = 0, 1 << 63
while high - low > 1:
    middle = (low + high) // 2
    try:
        os.lseek(1, middle, os.SEEK_SET)
        low = middle
    except OSError:
        high = middle
os.lseek(1, low, os.SEEK_SET)
try:
    os.write(1, b"a line")
except OSError as error:
    print(error.strerror, file=open("refused", "w"), flush=True)
b = bytearray(200 << 20)
"""
"""A program that takes all its memory once the place where it and its shim write lies where no file reaches."""


async def test_group_of_a_job_whose_output_takes_nothing_more_is_removed_after_its_memory_was_too_little(
    tmp_path: Path, found: Cgroups
) -> None:
    needs_controller(found, "memory")
    [base] = [each.base for each in found.hierarchies if "memory" in each.controllers]
    async with a_ground(tmp_path, settings={"cgroups": found}) as ground:
        script = f"exec /usr/bin/python3 -c '{HUNGRY_BEYOND_ITS_OUTPUT}'"
        await ground.start(a_job(script, Limits(memory_bytes=50 << 20)))
        await ground.until_logged("began", replica="worker-0")
        group = base / group_name(ground.folder, "a", "worker-0")
        assert group.exists()
        # What is left of a replica is its shim's to remove, where voda is gone.
        await ground.cluster.close()
        (ground.folder / "a/go").touch()
        await until(lambda: JobFolder(ground.folder, "a").replica("worker-0").exit(1) is not None)
        await until(lambda: not JobFolder(ground.folder, "a").replica("worker-0").is_locked())
        assert (ground.folder / "a/refused").read_text() == "File too large\n"
        assert not group.exists()
        await ground.open()


async def test_processes_beyond_the_limit_are_refused(tmp_path: Path, found: Cgroups) -> None:
    needs_controller(found, "pids")
    script = "for n in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 1000 & done; echo all; kill $(jobs -p)"
    async with a_ground(tmp_path, settings={"cgroups": found, "pids_limit": 6}) as ground:
        await ground.start(a_job(script, Limits()))
        await until(lambda: any(isinstance(notice, JobFailed) for notice in ground.notices()))
        assert "all" not in ground.log(replica="worker-0")


async def test_limit_that_the_kernel_refuses_ends_the_job_with_the_reason(tmp_path: Path, found: Cgroups) -> None:
    needs_controller(found, "cpu")
    async with a_ground(tmp_path, settings={"cgroups": found}) as ground:
        await ground.start(a_job("echo began", Limits(cpu_milli=10**18)))
        await until(lambda: any(isinstance(notice, JobFailed) for notice in ground.notices()))
        [reason] = [failure_text(notice.reason) for notice in ground.told if isinstance(notice, JobFailed)]
        assert re.match(r"this machine refuses what it asks for: /.*cpu\.(cfs_quota_us|max): ", reason)
        await ground.until_workers()


async def test_group_holds_the_cpu_limit_and_is_gone_with_its_job_and_the_strays_in_it(
    tmp_path: Path, found: Cgroups
) -> None:
    needs_controller(found, "cpu")
    async with a_ground(tmp_path, settings={"cgroups": found}) as ground:
        await ground.start(a_job(f"setsid sleep 1000 & echo began; {FOREVER}", Limits(cpu_milli=500)))
        await ground.until_logged("began", replica="worker-0")
        [base] = [each.base for each in found.hierarchies if "cpu" in each.controllers]
        group = base / group_name(ground.folder, "a", "worker-0")
        assert (group / "cpu.cfs_quota_us").read_text() == "50000\n"
        assert len((group / "cgroup.procs").read_text().split()) >= 2
        await ground.halt("a")
        await ground.until_workers()
        assert not group.exists()


async def test_group_shares_the_cpus_also_where_nothing_is_limited(tmp_path: Path, found: Cgroups) -> None:
    needs_controller(found, "cpu")
    async with a_ground(tmp_path, settings={"cgroups": found}) as ground:
        await ground.start(a_job("grep :cpu /proc/self/cgroup", Limits()))
        await ground.until_told(JobCompleted(job_id="a"))
        groups = {line.split(":")[1]: line.rpartition("/")[2] for line in ground.log(replica="worker-0").splitlines()}
        assert groups["cpu"] == group_name(ground.folder, "a", "worker-0")


async def test_launcher_has_the_limits_of_as_many_workers_as_it_has(tmp_path: Path, found: Cgroups) -> None:
    needs_controller(found, "cpu")
    limits = {"launcher": Limits(cpu_milli=100), "worker": Limits(cpu_milli=1_000)}
    async with a_ground(tmp_path, settings={"cgroups": found}) as ground:
        await ground.start(an_mpi_job("a", f"echo began; {FOREVER}", limits=limits), workers=1)
        await ground.until_logged("began")
        [base] = [each.base for each in found.hierarchies if "cpu" in each.controllers]
        quota = base / group_name(ground.folder, "a", "launcher") / "cpu.cfs_quota_us"
        assert quota.read_text() == "110000\n"
        await ground.resize("a", 3)
        assert quota.read_text() == "310000\n"
        await ground.resize("a", 1)
        await ground.until_workers(0)
        assert quota.read_text() == "110000\n"


async def test_device_files_of_gpus_that_a_job_was_not_given_are_refused(
    tmp_path: Path, found: Cgroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_controller(found, "devices")
    # The memory devices stand for those of NVIDIA: null is 3, zero is 5.
    monkeypatch.setattr("voda.cluster.local.isolation.cgroups._NVIDIA_MAJOR", 1)
    devices = (Device(name="0", minor=3, model="T"), Device(name="1", minor=5, model="T"))
    settings = {"cgroups": replace(found, gpus=frozenset({3, 5}))}
    script = "head -c 1 /dev/null && echo own; head -c 1 /dev/zero || echo refused; exit 0"
    async with a_ground(tmp_path, devices=devices, settings=settings) as ground:
        await ground.start(a_job(script, Limits()))
        await ground.until_told(JobCompleted(job_id="a"))
        printed = ground.log(replica="worker-0").splitlines()
        assert printed[0] == "own"
        assert printed[-1] == "refused"
        assert "Operation not permitted" in printed[1]


async def test_stray_without_a_mark_when_its_shim_is_killed_ends_with_its_group(tmp_path: Path, found: Cgroups) -> None:
    needs_controller(found, "pids")
    script = f"env -u VODA_REPLICA setsid sleep 1000 & echo $! > stray; echo began; {FOREVER}"
    async with a_ground(tmp_path, settings={"cgroups": found, "pids_limit": 100}) as ground:
        await ground.start(a_job(script, Limits()))
        await ground.until_logged("began", replica="worker-0")
        folder = JobFolder(ground.folder, "a")
        shim = folder.replica("worker-0").alive(1)
        assert shim is not None
        stray = int(folder.files.read("stray"))
        os.kill(shim.pid, signal.SIGKILL)
        await until(lambda: any(isinstance(notice, JobFailed) for notice in ground.notices()))
        await until(lambda: not is_alive(stray))


async def test_folder_of_a_job_is_its_owners_alone_also_where_that_is_who_runs_voda(tmp_path: Path) -> None:
    async with a_ground(tmp_path) as ground:
        await ground.start(a_job("stat -c %a .", Limits()))
        await ground.until_told(JobCompleted(job_id="a"))
        assert ground.log(replica="worker-0") == "700\n"
