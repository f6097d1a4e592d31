"""Jobs with drawn hostile folders on a real local cluster, beside an API that has to answer all the while.

Rule: whatever lies in a job's folder, at its start, while it runs, at its end or when voda starts again, the event loop
goes on, the job ends, its devices are free again, and a job that does no harm still runs.
"""

import asyncio
import os
import random
import shutil
import socket
import stat
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from tests.local_jobs import Ground, a_ground, an_mpi_job
from tests.service import Service, a_service
from tests.waiting import until_it_is
from voda.cluster.local.devices import cpu_slots
from voda.cluster.local.outputs import LocalOutputs
from voda.domain.errors import VodaError
from voda.events.types import JobCompleted, JobSubmitted

DRAWS = 40
MANY_DRAWS = 1_000
AT_ONCE = 8
READY_S = 1.0
TARGETS = (
    "logs/launcher.log",
    "logs",
    "mpi",
    "mpi/hostfile",
    ".voda",
    ".voda/record.json",
    ".voda/replicas",
    ".voda/replicas/launcher",
    ".voda/replicas/launcher/lock",
    ".voda/replicas/launcher/grant",
    ".voda/replicas/launcher/exit.json",
    ".voda/replicas/launcher/exit.tmp",
    ".voda/replicas/launcher/process.json",
    ".",
)
MOMENTS = ("start", "life", "restart")


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            server.bind(f"/proc/self/fd/{folder}/{path.name}")
        finally:
            os.close(folder)


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


def _growing(path: Path) -> None:
    with path.open("ab", buffering=0) as file:
        for _ in range(200):
            file.write(b"more\n" * 1_000)


def _chain(path: Path) -> None:
    for index in range(5):
        (path.parent / f"link-{index}").symlink_to(f"link-{index + 1}")
    (path.parent / "link-5").symlink_to("/dev/zero")
    path.symlink_to("link-0")


def _node(path: Path) -> None:
    """Make a device node, which never ends or takes long to open; only root may."""
    kind, number = random.Random(str(path)).choice(
        [(stat.S_IFCHR, os.makedev(1, 5)), (stat.S_IFCHR, os.makedev(5, 1)), (stat.S_IFBLK, os.makedev(7, 0))]
    )
    os.mknod(path, 0o666 | kind, number)


def _crowd(path: Path, files: int = 1_000) -> None:
    path.mkdir()
    for number in range(files):
        os.mknod(path / f"{'worker-' if number % 2 else ''}{number}{'.log' if number % 3 else ''}")


KINDS: dict[str, Callable[[Path], object]] = {
    "fifo": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "socket": _socket,
    "chain": _chain,
    "loop": lambda path: path.symlink_to(path.name),
    "sparse": _sparse,
    "growing": _growing,
    "gone": lambda path: None,
    "nested": lambda path: path.write_bytes(b'{"run":1,"x":' + b"[" * 1_500),
    "garbage": lambda path: path.write_bytes(b'{"run":'),
    "folder": lambda path: path.mkdir(),
    "node": _node,
    "crowd": _crowd,
}
DRAWN = tuple(KINDS)
KINDS["crowd of 100,000"] = partial(_crowd, files=100_000)


def _make_hostile(path: Path, kind: str) -> None:
    """Put something in place of a file or folder; the job may do something to it at the same time."""
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
        if kind == "gone":
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind != "mode":
            KINDS[kind](path)
        else:
            path.touch(mode=0)


class Pulse:
    """Asks for /readyz again and again, and measures how long the event loop stood still."""

    def __init__(self, service: Service) -> None:
        self.longest_s = 0.0
        self._service = service

    async def run(self) -> None:
        while True:
            began = time.perf_counter()
            answer = await self._service.ask("GET", "/readyz")
            assert answer.status == 200
            self.longest_s = max(self.longest_s, time.perf_counter() - began)
            await asyncio.sleep(0.02)


Draw = tuple[str, str, str, int]
"""Moment, kind, target, exit status."""


def _draw(chance: random.Random) -> Draw:
    return (
        chance.choice(MOMENTS),
        chance.choice([*DRAWN, "mode"]),
        chance.choice(TARGETS),
        chance.choice((0, 1)),
    )


async def _misbehave(ground: Ground, service: Service, draw: Draw, job_id: str) -> None:
    moment, kind, target, status = draw
    folder = ground.folder / job_id
    path = folder if target == "." else folder / target
    script = f"until [ -e {ground.folder.parent}/{job_id}.go ]; do sleep 0.05; done; exit {status}"
    run_spec = an_mpi_job(job_id, script, policy={"backoff_limit": 0}, grace_s=0.2)
    await service.happens(JobSubmitted(spec=run_spec.spec))
    if moment == "start":
        await asyncio.to_thread(_make_hostile, path, kind)
    with suppress(VodaError):
        await ground.start(run_spec)
    if moment == "life":
        await asyncio.to_thread(_make_hostile, path, kind)
    for query in ("", "/replicas"):
        answer = await service.ask("GET", f"/api/v1/jobs/{job_id}/logs{query}" + ("" if query else "?tail_bytes=1000"))
        assert answer.status < 500
    assert (await service.ask("GET", f"/api/v1/jobs/{job_id}")).status == 200
    if moment == "restart":
        await asyncio.to_thread(_make_hostile, path, kind)
    (ground.folder.parent / f"{job_id}.go").touch()


async def _run(tmp_path: Path, draws: Sequence[Draw]) -> None:
    async with (
        a_ground(tmp_path, devices=cpu_slots(AT_ONCE + 1)) as ground,
        a_service(outputs=LocalOutputs(ground.folder)) as service,
    ):
        pulse = Pulse(service)
        beating = asyncio.get_running_loop().create_task(pulse.run())
        for first in range(0, len(draws), AT_ONCE):
            some = {f"h{first + index}": draw for index, draw in enumerate(draws[first : first + AT_ONCE])}
            jobs = list(some)
            await asyncio.gather(*(_misbehave(ground, service, draw, job_id) for job_id, draw in some.items()))
            await ground.cluster.close()
            await ground.open()
            await _ends(ground, jobs, f"harmless{first}")
            assert not beating.done(), "the API did not answer"
        beating.cancel()
        assert pulse.longest_s < READY_S


async def _ends(ground: Ground, jobs: list[str], harmless: str) -> None:
    await ground.start(an_mpi_job(harmless, "exit 0"))
    await ground.until_told(JobCompleted(job_id=harmless))
    for job_id in (*jobs, harmless):
        await ground.stop(job_id)
        ground.run_specs.pop(job_id)

    async def is_free() -> bool:
        seen = await ground.cluster.observe()
        return not seen.workers and not ground.cluster.jobs

    await until_it_is(is_free, within_s=60)


def _drawn(count: int, seed: int) -> Sequence[Draw]:
    chance = random.Random(seed)
    return [_draw(chance) for _ in range(count)]


async def test_jobs_with_hostile_folders_when_there_are_a_few_hold_up_nobody(tmp_path: Path) -> None:
    await _run(tmp_path, _drawn(DRAWS, seed=1))


@pytest.mark.parametrize("target", ["logs/launcher.log", ".voda/record.json", ".voda/replicas/launcher/exit.json", "."])
async def test_jobs_with_device_nodes_when_made_by_root_hold_up_nobody(target: str, tmp_path: Path) -> None:
    await _run(tmp_path, [(moment, "node", target, 1) for moment in MOMENTS])


@pytest.mark.slow
async def test_jobs_with_hostile_folders_when_there_are_many_hold_up_nobody(tmp_path: Path) -> None:
    await _run(tmp_path, _drawn(MANY_DRAWS, seed=2))


@pytest.mark.slow
async def test_jobs_with_a_hundred_thousand_files_hold_up_nobody(tmp_path: Path) -> None:
    targets = ("logs", ".voda/replicas", ".")
    await _run(
        tmp_path, [(moment, "crowd of 100,000", target, 1) for moment, target in zip(MOMENTS, targets, strict=True)]
    )
