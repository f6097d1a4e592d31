"""From 5 M events to a service that may answer and decide: the API's view and the controllers of two pools are ready.

Rule: every start is a process of its own; the snapshots are as old as they may become. What a server of the log needs
to start was done before.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from time import perf_counter

import msgspec
import uvloop
from msgspec import Struct

from benchmarks.log.long import POOLS, TAIL, kept_log, taken_over
from benchmarks.log.options import Options
from benchmarks.log.stores import STORES, place
from benchmarks.table import Row
from voda.app.runtime import last_recorded_at
from voda.application.read_model import ReadModel
from voda.clock import SystemClock
from voda.controller.controller import Controller
from voda.log.factory import open_store
from voda.placement import PLACERS
from voda.policies import POLICIES

TITLE = f"Start with snapshots {TAIL:,} events before the end of the log"
_EVENTS = 5_000_000
_STARTS = 3
_WITHIN_S = 600.0


async def run(options: Options) -> Sequence[Row]:
    """Return the seconds from opening the log, and from the start of the process, on each store; the best of three."""
    events = options.scaled(_EVENTS, 10_000)
    kept = str(await kept_log(events))
    rows: list[Row] = []
    for name in options.stores or STORES:
        async with _holding(name, kept) as location:
            starts = [await _started(location) for _ in range(_STARTS)]
        what = f"{name}, {events:,} events"
        best = min(starts, key=lambda start: start.opened_s)
        begun_s = min(start.begun_s for start in starts)
        rows.append(Row(what=f"{what}: log opened to ready", figure=best.opened_s, unit="s", goal=3.0))
        rows.append(Row(what=f"{what}: process started to ready", figure=begun_s, unit="s"))
        parts = zip(("store", "view", "controllers"), best.laps, strict=True)
        print(f"{name}:", *(f"{part} {spent_s:.2f} s" for part, spent_s in parts), file=sys.stderr)
    return rows


@asynccontextmanager
async def _holding(name: str, kept: str) -> AsyncIterator[str]:
    """Yield where a store of that kind holds the log that is kept in SQLite."""
    if name == "sqlite":
        yield kept
        return
    async with place(name) as location:
        store = await open_store(location)
        try:
            await taken_over(kept, store)
        finally:
            await store.close()
        yield location


class Start(Struct, frozen=True):
    """How long one start took; instants of the steady clock, which all processes share."""

    at: tuple[float, ...]
    """Instants: the log is to be opened, was opened, the view is ready, the controllers are."""
    begun_at: float = 0.0
    """Of the process."""

    @property
    def opened_s(self) -> float:
        """From opening the log to ready."""
        return self.at[-1] - self.at[0]

    @property
    def begun_s(self) -> float:
        """From the start of the process to ready."""
        return self.at[-1] - self.begun_at

    @property
    def laps(self) -> Sequence[float]:
        """Of the three parts."""
        return [later - earlier for earlier, later in pairwise(self.at)]


async def _started(location: str) -> Start:
    begun = perf_counter()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.log.start", location, stdout=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(_WITHIN_S):
            said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return msgspec.structs.replace(msgspec.json.decode(said, type=Start), begun_at=begun)


async def _start(location: str) -> None:
    """Do what a service does at its start, and say how long it took."""
    # Solvers are loaded by every process, whatever the length of the log.
    len(PLACERS)
    laps = [perf_counter()]
    store = await open_store(location)
    laps.append(perf_counter())
    clock = SystemClock(not_before=await last_recorded_at(store))
    view = ReadModel(store)
    await view.open()
    laps.append(perf_counter())
    for pool in POOLS:
        controller = Controller(
            pool=pool, store=store, clock=clock, policies=POLICIES.choose, placers=PLACERS.choose, initial=view.live
        )
        await controller.warm()
        assert controller.live.position == view.position
    laps.append(perf_counter())
    print(msgspec.json.encode(Start(tuple(laps))).decode())
    await store.close()


if __name__ == "__main__":
    uvloop.run(_start(sys.argv[1]))
