"""The first minute of a user: `voda up` until it is ready, and `voda submit -- PROGRAM` until the program prints."""

import asyncio
import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import aiohttp
import msgspec
import numpy as np

from benchmarks.served import Served, command, environment, manifest, serving, start
from benchmarks.table import Row

TITLE = "the first minute: real processes"
_STARTS = 5
_SUBMITS = 30
_LIVE = 1_000
_AT_ONCE = 32
_WAIT_S = 30.0
_TICKS = os.sysconf("SC_CLK_TCK")
# No job of these may start: their minimum is more than there is.
_TOO_LARGE = 64


def run() -> Sequence[Row]:
    """Return what a start costs, with and without jobs, and how soon a submitted program prints."""
    empty = [_start_empty() for _ in range(_STARTS)]
    with serving("--slots", "4", "--ratelimit", "0") as served:
        first, cpu = zip(*(_submit(served, number) for number in range(_SUBMITS)), strict=True)
    return [
        Row(what="voda up to ready, empty folder, CPU", figure=_median([cpu for cpu, _ in empty]), unit="s", goal=1.0),
        Row(what="the same, seconds", figure=_median([took for _, took in empty]), unit="s"),
        *_start_with_jobs(),
        Row(what="voda submit -- PROGRAM to its first output, p95", figure=_p95(first) * 1e3, unit="ms", goal=250),
        Row(what="the same, p50", figure=_median(first) * 1e3, unit="ms"),
        Row(what="voda submit, CPU", figure=_median(cpu) * 1e3, unit="ms"),
    ]


def _start_empty() -> tuple[float, float]:
    """Return the CPU time until an empty folder is served, and the seconds."""
    with tempfile.TemporaryDirectory(prefix="voda-bench-") as folder:
        begun = time.perf_counter()
        served = start(Path(folder), "--port", "0")
        took = time.perf_counter() - begun
        cpu = _cpu_s(served.pid)
        served.stop()
    return cpu, took


def _start_with_jobs() -> Sequence[Row]:
    """Start again over live jobs, after an end in order: the last of several starts."""
    with tempfile.TemporaryDirectory(prefix="voda-bench-") as folder:
        served = start(Path(folder), "--port", "0", "--slots", "4")
        asyncio.run(_fill(served))
        took, cpu = [], []
        for _ in range(_STARTS):
            served.stop()
            begun = time.perf_counter()
            served = start(Path(folder), "--port", "0", "--slots", "4")
            took.append(time.perf_counter() - begun)
            cpu.append(_cpu_s(served.pid))
        live = served.get("/api/v1/jobs?limit=1")["total"]
        served.stop()
    return [
        Row(what=f"voda up to ready, {live:,} live jobs", figure=_median(took), unit="s", goal=3.0),
        Row(what="the same, CPU", figure=_median(cpu), unit="s"),
    ]


async def _fill(served: Served) -> None:
    connector = aiohttp.TCPConnector(limit=_AT_ONCE)

    async def submit(session: aiohttp.ClientSession, number: int) -> None:
        body = msgspec.json.encode(manifest(f"job-{number}", "true", least=_TOO_LARGE, most=_TOO_LARGE))
        async with session.post(f"{served.url}/api/v1/jobs", data=body) as answer:
            answer.raise_for_status()

    async with aiohttp.ClientSession(headers=served.headers, connector=connector) as session:
        await asyncio.gather(*(submit(session, number) for number in range(_LIVE)))


def _submit(served: Served, number: int) -> tuple[float, float]:
    """Return the seconds from a command's start to the first line of its job, and the command's CPU time."""
    script = "date +%s.%N; true"
    before = os.times()
    begun = time.time()  # noqa: TID251 - compared with what another process prints
    subprocess.run(
        command("submit", "--name", f"first-{number}", "--", "sh", "-c", script),
        env=environment(served.home),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
        timeout=_WAIT_S,
    )
    after = os.times()
    log = served.home / "jobs" / f"first-{number}" / "logs"
    deadline = time.perf_counter() + _WAIT_S
    while not (printed := "".join(file.read_text() for file in log.glob("*.log"))).endswith("\n"):
        if time.perf_counter() > deadline:
            raise RuntimeError(f"job first-{number} printed nothing in {_WAIT_S:.0f} s")
        time.sleep(0.01)
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return float(printed.split()[0]) - begun, cpu


def _cpu_s(pid: int) -> float:
    """Return the CPU time of a process, and of those of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / _TICKS


def _median(figures: Sequence[float]) -> float:
    return float(np.median(figures))


def _p95(figures: Sequence[float]) -> float:
    return float(np.percentile(figures, 95))
