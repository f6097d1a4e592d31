"""The service over HTTP: durable submits, reads of a list, and memory, with client and server on the same cores."""

import asyncio
import multiprocessing
import sqlite3
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection

import aiohttp
import msgspec
import numpy as np
from aiohttp import web

from benchmarks.served import Served, manifest, resident_bytes, serving
from benchmarks.table import Row

TITLE = "voda up over HTTP"
_SPAN_S = 30.0
_CLIENTS = 64
_RATE_PER_S = 300.0
_WAITING = 5_000
_READS = 3_000
_READERS = 8
_ROUNDS = 3
_REST_S = 30.0
_TIMEOUT = aiohttp.ClientTimeout(total=30)
# No job of these may start, so that the service alone is measured: their minimum is more than there is.
_TOO_LARGE = 64


def run() -> Sequence[Row]:
    """Return submits/s, their latency at a steady rate, reads against a bare handler, and memory."""
    rows: list[Row] = []
    with serving("--slots", "4", "--jobs-per-user", "1000000") as served:
        rows += asyncio.run(_flood(served))
    with serving("--slots", "4", "--jobs-per-user", "1000000") as served:
        rows += asyncio.run(_steady(served))
    with serving("--slots", "4", "--jobs-per-user", "1000000") as served:
        asyncio.run(_fill(served, _WAITING))
        rows += _memory(served)
        rows += asyncio.run(_reads(served))
    return rows


async def _flood(served: Served) -> Sequence[Row]:
    """Submit from many clients at once, as fast as answers come."""
    begun, laps = time.perf_counter(), []

    async def client(session: aiohttp.ClientSession, number: int) -> None:
        count = 0
        while time.perf_counter() < begun + _SPAN_S:
            count += 1
            laps.append(await _submit(session, served, f"flood-{number}-{count}"))

    async with aiohttp.ClientSession(headers=served.headers, timeout=_TIMEOUT) as session:
        await asyncio.gather(*(client(session, number) for number in range(_CLIENTS)))
    took_s = time.perf_counter() - begun
    lost = len(laps) - _recorded(served)
    return [
        Row(
            what=f"submits, {_CLIENTS} clients, {_SPAN_S:.0f} s",
            figure=len(laps) / took_s,
            unit="/s",
            goal=1_500,
            better="higher",
        ),
        Row(what="submits acknowledged and not in the log", figure=lost, unit="of " + f"{len(laps):,}", goal=0),
        Row(what="the same, latency p99", figure=float(np.percentile(laps, 99)) * 1e3, unit="ms"),
    ]


async def _steady(served: Served) -> Sequence[Row]:
    """Submit at a steady rate, whether or not the last answers have come."""
    laps: list[float] = []
    begun = time.perf_counter()

    async def one(session: aiohttp.ClientSession, number: int) -> None:
        due = begun + number / _RATE_PER_S
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        # A late start counts as latency: the user had clicked already.
        await _submit(session, served, f"steady-{number}")
        laps.append(time.perf_counter() - due)

    # A client that waits for one of its connections is late too; the server takes 500, and 300/s may need more.
    connector = aiohttp.TCPConnector(limit=_CLIENTS)
    async with aiohttp.ClientSession(headers=served.headers, timeout=_TIMEOUT, connector=connector) as session:
        await asyncio.gather(*(one(session, number) for number in range(int(_RATE_PER_S * _SPAN_S))))
    p50, p99 = (float(np.percentile(laps, q)) * 1e3 for q in (50, 99))
    return [
        Row(what=f"submit latency p99 at {_RATE_PER_S:.0f}/s, {_SPAN_S:.0f} s", figure=p99, unit="ms", goal=50),
        Row(what="the same, p50", figure=p50, unit="ms"),
    ]


async def _submit(session: aiohttp.ClientSession, served: Served, name: str) -> float:
    body = msgspec.json.encode(manifest(name, "true", least=_TOO_LARGE, most=_TOO_LARGE))
    begun = time.perf_counter()
    async with session.post(f"{served.url}/api/v1/jobs", data=body) as answer:
        if answer.status != 201:
            raise RuntimeError(f"a submit was answered with {answer.status}: {await answer.text()}")
        await answer.read()
    return time.perf_counter() - begun


async def _fill(served: Served, jobs: int) -> None:
    async with aiohttp.ClientSession(headers=served.headers, timeout=_TIMEOUT) as session:
        for first in range(0, jobs, 50):
            await asyncio.gather(*(_submit(session, served, f"job-{number}") for number in range(first, first + 50)))


def _recorded(served: Served) -> int:
    with sqlite3.connect(served.home / "voda.db") as log:
        (count,) = log.execute("SELECT count(*) FROM events WHERE type = 'job.submitted'").fetchone()
    return int(count)


def _memory(served: Served) -> Sequence[Row]:
    """Return the memory while jobs still come, forecasts included, and once nothing has happened for a while."""
    busy = [resident_bytes(int(pid)) for pid in _children(served.pid)]
    busy.append(resident_bytes(served.pid))
    time.sleep(_REST_S)
    rest = [resident_bytes(int(pid)) for pid in (str(served.pid), *_children(served.pid))]
    return [
        Row(
            what=f"memory with {_WAITING:,} waiting jobs, all processes", figure=sum(rest) / 2**20, unit="MiB", goal=250
        ),
        Row(what="the same, while the process that forecasts is at work", figure=sum(busy) / 2**20, unit="MiB"),
    ]


def _children(pid: int) -> Sequence[str]:
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return file.read().split()


async def _reads(served: Served) -> Sequence[Row]:
    """Read the first 100 of the jobs in turns with a bare handler that gives the same bytes."""
    url = f"{served.url}/api/v1/jobs?limit=100"
    async with aiohttp.ClientSession(headers=served.headers, timeout=_TIMEOUT) as session:
        async with session.get(url) as answer:
            answer.raise_for_status()
            body = await answer.read()
        ours, theirs = multiprocessing.Pipe()
        bare = multiprocessing.get_context("spawn").Process(target=_serve_bare, args=(body, theirs), daemon=True)
        bare.start()
        port = await asyncio.to_thread(ours.recv)
        rates: dict[str, list[float]] = {"voda": [], "bare": []}
        try:
            for _ in range(_ROUNDS):
                rates["voda"].append(await _rate(session, url))
                rates["bare"].append(await _rate(session, f"http://127.0.0.1:{port}/jobs"))
        finally:
            bare.kill()
    voda, yardstick = max(rates["voda"]), max(rates["bare"])
    return [
        Row(
            what=f"reads of 100 of {_WAITING:,} jobs ({len(body) / 1e3:.0f} kB), of the bare handler's rate",
            figure=100 * voda / yardstick,
            unit="%",
            goal=60,
            better="higher",
            yardstick=f"bare aiohttp handler, same bytes ({yardstick:,.0f}/s)",
            ratio=voda / yardstick,
        )
    ]


async def _rate(session: aiohttp.ClientSession, url: str) -> float:
    begun = time.perf_counter()

    async def reader() -> None:
        for _ in range(_READS // _READERS):
            async with session.get(url) as answer:
                await answer.read()

    await asyncio.gather(*(reader() for _ in range(_READERS)))
    return _READS / (time.perf_counter() - begun)


def _serve_bare(body: bytes, told: Connection) -> None:
    """Serve these bytes and nothing else, on any port, and tell which."""

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(body=body, content_type="application/json")

    async def serve() -> None:
        app = web.Application()
        app.router.add_get("/jobs", answer)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        told.send(runner.addresses[0][1])
        await asyncio.sleep(3600)

    asyncio.run(serve())
