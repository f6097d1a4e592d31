"""How long after it was appended an event is seen by another replica: a process of its own with a tail of the log.

Rule: both ends are stamped by the machine's steady clock, which all processes share; what counts is from the append's
call.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from time import perf_counter

import numpy as np
import uvloop

from benchmarks.log.facts import some_facts
from benchmarks.log.options import Options
from benchmarks.log.stores import STORES, opened, place
from benchmarks.table import Row
from voda.domain.rng import rng_at
from voda.events.envelope import ANY_VERSION

TITLE = "Tail: append to seen by another replica"
_APPENDS = 300
_PAUSE_S = 0.05
"""Mean pause between two appends: each is the first after a quiet time, as an intent mostly is."""
_WITHIN_S = 60.0


async def run(options: Options) -> Sequence[Row]:
    """Return the 95th percentile on each store."""
    rows: list[Row] = []
    for name in options.stores or STORES:
        async with place(name) as location:
            rows += _rows(name, *await _measured(location, options.scaled(_APPENDS, 20)))
    return rows


def _rows(name: str, called: Sequence[float], answered: Sequence[float]) -> Sequence[Row]:
    p50, p95 = np.percentile(called, [50, 95]) * 1e3
    return [
        Row(what=f"{name}: append called to event seen, p95", figure=float(p95), unit="ms", goal=20.0),
        Row(what=f"{name}: the same, p50", figure=float(p50), unit="ms"),
        Row(
            what=f"{name}: append answered to event seen, p95",
            figure=float(np.percentile(answered, 95)) * 1e3,
            unit="ms",
        ),
    ]


async def _measured(location: str, appends: int) -> tuple[Sequence[float], Sequence[float]]:
    """Return seconds from the call, and from the answer, until the event was seen elsewhere."""
    chance = rng_at(1)
    pauses = [chance.expovariate(1 / _PAUSE_S) for _ in range(appends)]
    called, answered = [], []
    async with opened(location) as store, _reader(location) as reader:
        assert reader.stdout is not None
        for fact, pause_s in zip(some_facts(appends, jobs=10), pauses, strict=True):
            await asyncio.sleep(pause_s)
            begun = perf_counter()
            await store.append("job.tail", ANY_VERSION, [fact])
            ended = perf_counter()
            async with asyncio.timeout(_WITHIN_S):
                seen = float(await reader.stdout.readline())
            called.append(seen - begun)
            answered.append(seen - ended)
    return called, answered


@asynccontextmanager
async def _reader(location: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run another replica's tail for the length of the block."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.log.tail", location, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(_WITHIN_S):
            assert await process.stdout.readline() == b"ready\n"
        # It waits for its first event a moment later.
        await asyncio.sleep(1.0)
        yield process
    finally:
        process.kill()
        await process.wait()


async def _tail(location: str) -> None:
    """Say when each event was seen."""
    async with opened(location) as store:
        position = await store.position()
        print("ready", flush=True)
        async for _ in store.tail(position):
            print(perf_counter(), flush=True)


if __name__ == "__main__":
    uvloop.run(_tail(sys.argv[1]))
