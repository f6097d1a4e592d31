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
from tests.waiting import DEADLINE_S, until, until_it_is
from voda.app.machine import MachineOptions
from voda.app.service import MachineService, running
from voda.cluster.local import cluster as local_cluster
from voda.cluster.local.folder import job_ids

FIFO = 'cd "$VODA_JOB_DIR/logs"; rm launcher.log; mkfifo launcher.log; exit 1'
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

    async def submit(self, name: str, script: str) -> str:
        manifest = a_manifest(name, script)
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


def a_manifest(name: str, script: str) -> dict[str, Any]:
    container = {"name": "main", "image": "example/any", "command": ["sh", "-c", script]}
    role = {"replicas": 1, "template": {"spec": {"containers": [container]}}}
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": name},
        "spec": {"runPolicy": {"backoffLimit": 0}, "mpiReplicaSpecs": {"Launcher": role, "Worker": role}},
    }


@asynccontextmanager
async def an_up(home: Path) -> AsyncIterator[Up]:
    options = MachineOptions(
        home=home, environment=base_environment(), port=0, slots=4, has_tokens=False, ratelimit_s=0.0
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


def _used_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
