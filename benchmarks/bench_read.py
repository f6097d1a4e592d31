"""How fast events come out of a SQLite log, against the bare rows of a sqlite3 cursor."""

import asyncio
import sqlite3
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

from benchmarks.table import Row
from voda.clock import SystemClock
from voda.events.envelope import ANY_VERSION, Fact
from voda.events.types import JobProgressed
from voda.log.archive.verify import verify_log
from voda.log.factory import open_store
from voda.log.sql.schema import READ

TITLE = "Read a SQLite log"
_EVENTS = 200_000
_PAGE = 5_000
_BATCH = 10_000


def run() -> Sequence[Row]:
    """Return events/s read, proven and decoded, and events/s verified."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.db"
        asyncio.run(_fill(path))
        return asyncio.run(_measured(path))


async def _measured(path: Path) -> Sequence[Row]:
    bare_s = min(_bare(path) for _ in range(3))
    read_s = min([await _read(path) for _ in range(3)])
    verify_s = await _verify(path)
    return [
        Row(
            what=f"store.read, pages of {_PAGE:,}",
            figure=read_s / _EVENTS * 1e6,
            unit="us/event",
            goal=4.0,
            yardstick=f"bare cursor, not decoded ({bare_s / _EVENTS * 1e6:.2f} us/event)",
            ratio=read_s / bare_s,
        ),
        Row(what="voda log verify", figure=_EVENTS / verify_s, unit="events/s", better="higher"),
    ]


def _bare(path: Path) -> float:
    connection = sqlite3.connect(path)
    begun = perf_counter()
    after = 0
    while rows := connection.execute(READ, {"after": after, "limit": _PAGE}).fetchall():
        after = rows[-1][0]
    took_s = perf_counter() - begun
    connection.close()
    return took_s


async def _read(path: Path) -> float:
    store = await open_store(path, read_only=True)
    begun = perf_counter()
    after = 0
    while events := await store.read(after, _PAGE):
        after = events[-1].position
    took_s = perf_counter() - begun
    await store.close()
    return took_s


async def _verify(path: Path) -> float:
    store = await open_store(path, read_only=True)
    begun = perf_counter()
    assert (await verify_log(store)).is_intact
    took_s = perf_counter() - begun
    await store.close()
    return took_s


async def _fill(path: Path) -> None:
    clock = SystemClock()
    store = await open_store(path)
    for first in range(0, _EVENTS, _BATCH):
        facts = [
            Fact(
                data=JobProgressed(job_id=f"job-{first}", epochs_done=float(number), workers=4, epoch_s=12.5),
                event_id=clock.new_id(),
                recorded_at=clock.now(),
            )
            for number in range(_BATCH)
        ]
        await store.append(f"job.job-{first}", ANY_VERSION, facts)
    await store.close()
