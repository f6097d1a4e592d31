"""A whole service on this machine, with its API, and jobs that put into their folders what would hold it up."""

import asyncio
import os
import resource
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.local_jobs import base_environment
from tests.needs import needs
from tests.waiting import DEADLINE_S, until, until_it_is
from voda.app.machine import MachineOptions
from voda.app.service import MachineService, running
from voda.cluster.local import cluster as local_cluster
from voda.cluster.local.folder import job_ids
from voda.cluster.local.isolation.cgroups import find_cgroups

FIFO = 'cd "$VODA_JOB_DIR/logs"; rm launcher.log; mkfifo launcher.log; exit 1'
BOMB = """exec /usr/bin/python3 -c '
import os, time
while True:
    try:
        os.fork()
    except OSError:
        os.write(1, b"full\\n")
        time.sleep(0.2)
'"""
"""Forks in every process that it has, and goes on where that is refused."""
GLUTTON = """/usr/bin/python3 -c '
import os
while True:
    if os.fork() == 0:
        try:
            held = bytearray(200 << 20)
        except MemoryError:
            os._exit(1)
        os._exit(0)
    if os.wait()[1] == 9:
        os.write(1, b"killed\\n")
'"""
"""Takes more memory than it may again and again: the kernel kills each of its children."""
UNREADABLE = "[voda: the output cannot be read: logs/launcher.log is a FIFO, expected a regular file]\n"
ZEROS = 'cd "$VODA_JOB_DIR/logs"; rm launcher.log; ln -s /dev/zero launcher.log; exit 1'


@pytest.fixture(autouse=True)
def watchdog() -> Iterator[None]:
    """Interrupt a system call that blocks the event loop, which no timeout of asyncio does."""

    def interrupt(_number: int, _frame: object) -> None:
        raise TimeoutError("the event loop was blocked")

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.alarm(int(DEADLINE_S))
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@dataclass
class Up:
    """A service, and a caller of its API."""

    service: MachineService
    session: aiohttp.ClientSession

    async def get(self, path: str, *, within_s: float = DEADLINE_S) -> tuple[int, str]:
        async with asyncio.timeout(within_s), self.session.get(self.service.url + path) as answer:
            return answer.status, await answer.text()

    async def submit(self, name: str, script: str, *, memory: str = "") -> str:
        manifest = a_manifest(name, script, memory=memory)
        async with self.session.post(f"{self.service.url}/api/v1/jobs", json=manifest) as answer:
            assert answer.status == 201, await answer.text()
            return str((await answer.json())["job"]["job_id"])

    async def job(self, job_id: str) -> dict[str, Any]:
        async with self.session.get(f"{self.service.url}/api/v1/jobs/{job_id}") as answer:
            assert answer.status == 200, await answer.text()
            body: dict[str, Any] = await answer.json()
            return body

    async def until_phase(self, job_id: str, phase: str) -> dict[str, Any]:
        async def reached() -> bool:
            return str((await self.job(job_id))["phase"]).lower() == phase

        await until_it_is(reached, within_s=60)
        return await self.job(job_id)


def a_manifest(name: str, script: str, *, memory: str = "") -> dict[str, Any]:
    container: dict[str, Any] = {"name": "main", "image": "example/any", "command": ["sh", "-c", script]}
    if memory:
        container["resources"] = {"limits": {"memory": memory}}
    role = {"replicas": 1, "template": {"spec": {"containers": [container]}}}
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": name},
        "spec": {"runPolicy": {"backoffLimit": 0}, "mpiReplicaSpecs": {"Launcher": role, "Worker": role}},
    }


@asynccontextmanager
async def an_up(home: Path, **options_of: Any) -> AsyncIterator[Up]:
    options = MachineOptions(
        home=home,
        environment=base_environment(),
        port=0,
        slots=4,
        has_tokens=False,
        settings={"ratelimit_s": 0.0},
        **options_of,
    )
    async with running(options) as service, aiohttp.ClientSession() as session:
        yield Up(service, session)


async def _goes_on(up: Up) -> None:
    """Check that another job still runs to its end."""
    job_id = await up.submit("another", "exit 0")
    await up.until_phase(job_id, "completed")


async def test_log_that_became_a_fifo_when_the_job_ends_fails_the_job_and_holds_up_nobody(tmp_path: Path) -> None:
    async with an_up(tmp_path) as up:
        job_id = await up.submit("fifo", FIFO)
        failed = await up.until_phase(job_id, "failed")
        assert "logs/launcher.log is a FIFO, expected a regular file" in str(failed)
        status, text = await up.get(f"/api/v1/jobs/{job_id}/logs", within_s=10)
        assert (status, text) == (200, UNREADABLE)
        await _goes_on(up)
    async with an_up(tmp_path) as up:
        await _goes_on(up)


async def test_log_that_became_a_fifo_when_read_while_the_job_lives_is_refused(tmp_path: Path) -> None:
    async with an_up(tmp_path) as up:
        job_id = await up.submit("fifo", FIFO.replace("exit 1", "echo made > made; sleep 1000"))
        await until((tmp_path / "jobs" / job_id / "logs/made").exists)
        for query in ("", "?follow=true", "?tail_bytes=100"):
            status, text = await up.get(f"/api/v1/jobs/{job_id}/logs{query}", within_s=10)
            assert (status, text) == (200, UNREADABLE)
        assert (await up.get("/readyz", within_s=10))[0] == 200
        async with up.session.delete(f"{up.service.url}/api/v1/jobs/{job_id}") as answer:
            assert answer.status < 300
        await up.until_phase(job_id, "canceled")


async def test_log_that_became_a_link_to_zeros_when_the_job_ends_is_not_read(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_used_bytes() + (2 << 30), limits[1]))
    try:
        async with an_up(tmp_path) as up:
            job_id = await up.submit("zeros", ZEROS)
            failed = await up.until_phase(job_id, "failed")
            assert "logs/launcher.log is a symbolic link, expected a regular file" in str(failed)
            await _goes_on(up)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


async def test_api_when_jobs_are_looked_for_slowly_answers_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()

    def slow(folder: Path) -> tuple[str, ...]:
        assert go_on.wait(DEADLINE_S)
        return job_ids(folder)

    monkeypatch.setattr(local_cluster, "job_ids", slow)
    try:
        async with an_up(tmp_path) as up:
            assert await up.get("/healthz", within_s=10) == (200, "ok\n")
            waiting = "starting: the jobs of pool default are being looked for"

            async def says_so() -> bool:
                status, text = await up.get("/readyz", within_s=10)
                return status == 503 and waiting in text

            await until_it_is(says_so)
            go_on.set()
            await _goes_on(up)
    finally:
        go_on.set()


@needs(os.geteuid() == 0, "only root is sure to make control groups")
async def test_readyz_when_jobs_fill_their_limits_of_processes_and_memory_answers_within_a_second_also_after_a_restart(
    tmp_path: Path,
) -> None:
    if not {"pids", "memory", "cpu"} <= (groups := find_cgroups()).controllers:
        pytest.skip(f"control groups of processes, memory and CPU are not voda's here: {groups.obstacle}")
    async with an_up(tmp_path, pids_limit=300) as up:
        bomb, glutton = await up.submit("bomb", BOMB), await up.submit("glutton", GLUTTON, memory="32Mi")
        asked = []

        async def both_are_full() -> bool:
            asked.append(await up.get("/readyz", within_s=1))
            printed = [(await up.get(f"/api/v1/jobs/{job}/logs", within_s=10))[1] for job in (bomb, glutton)]
            return "full" in printed[0] and printed[1].count("killed") > 2

        await until_it_is(both_are_full, within_s=60)
        for _ in range(20):
            asked.append(await up.get("/readyz", within_s=1))
        await _goes_on(up)
        assert {status for status, _ in asked} <= {200, 503}
        assert asked[-1][0] == 200
    # The jobs go on, and the next start finds them so.
    async with an_up(tmp_path, pids_limit=300) as up:

        async def is_ready() -> bool:
            return (await up.get("/readyz", within_s=1))[0] == 200

        await until_it_is(is_ready, within_s=60)
        assert (await up.job(bomb))["replicas"] == (await up.job(glutton))["replicas"] == 1
        for job_id in (bomb, glutton):
            async with up.session.delete(f"{up.service.url}/api/v1/jobs/{job_id}") as answer:
                assert answer.status < 300
            await up.until_phase(job_id, "canceled")


def _used_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
