"""Durable appends to SQLite, against a bare sqlite3 loop that writes the same rows in the same batches.

Rule: both write the same tables with the same pragmas to the same file system, in turns, so that a noisy machine
troubles both alike, each going first every other time; the ratio is the median over the turns.
"""

import asyncio
import gc
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from time import perf_counter

from benchmarks.table import Row
from voda.clock import SystemClock
from voda.events.envelope import ANY_VERSION, Fact
from voda.events.types import JobProgressed
from voda.log.append_plan import EventRow, HeadRow, plan_copy
from voda.log.factory import open_store
from voda.log.sql.sqlite import INSERT_EVENT, UPSERT_HEAD

TITLE = "Durable append to SQLite (WAL, synchronous=FULL)"
_EVENTS = {1: 2_000, 100: 20_000, 1_000: 40_000}
"""Batch size -> events per turn."""
_TURNS = 9
_SO_FAR = "so-far.db"
_LOG_SO_FAR = 100_000
"""Events that are there before: in an empty log every index is a page, and an insert costs next to nothing."""
_FILL_BATCH = 10_000
_STREAMS = 100
_GOAL = 0.8
_APPENDERS = 100

Written = tuple[list[EventRow], list[HeadRow]]
"""What one batch leaves in the tables."""


def run() -> Sequence[Row]:
    """Return events/s and their ratio to the bare loop for each batch size, and for many appenders at once."""
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_fill(Path(folder) / _SO_FAR))
        rows = [_against_bare_loop(Path(folder), batch) for batch in _EVENTS]
        return [*rows, asyncio.run(_many_appenders(Path(folder)))]


def _against_bare_loop(folder: Path, batch: int) -> Row:
    facts = _facts(_EVENTS[batch])
    # Every turn begins with the same log, so the rows of this first one, which is not counted, are those of all.
    _, written = asyncio.run(_ours(folder / "first.db", facts, batch))
    ratios, rates = [], []
    for turn in range(_TURNS):
        path = folder / f"turn-{batch}-{turn}.db"
        if turn % 2:
            bare_s = _bare(path, written)
            our_s, _ = asyncio.run(_ours(path, facts, batch))
        else:
            our_s, _ = asyncio.run(_ours(path, facts, batch))
            bare_s = _bare(path, written)
        ratios.append(bare_s / our_s)
        rates.append(len(facts) / our_s)
    return Row(
        what=f"append, batches of {batch:,}: ratio to the bare loop ({median(rates):,.0f} events/s)",
        figure=median(ratios),
        unit="x",
        goal=_GOAL,
        better="higher",
        yardstick="bare sqlite3 loop, same rows and batches",
        ratio=median(ratios),
    )


async def _ours(
    path: Path, facts: Sequence[Fact], batch: int
) -> tuple[float, list[tuple[list[EventRow], list[HeadRow]]]]:
    _copy(path)
    store = await open_store(path)
    length = await store.position()
    _settle()
    begun = perf_counter()
    for first in range(0, len(facts), batch):
        await store.append(f"job.{first // batch % _STREAMS}", ANY_VERSION, facts[first : first + batch])
    took_s = perf_counter() - begun
    written = []
    for first in range(0, len(facts), batch):
        plan = plan_copy(await store.read_sealed(length + first, batch))
        written.append((plan.rows, plan.head_rows()))
    await store.close()
    return took_s, written


async def _fill(path: Path) -> None:
    store = await open_store(path)
    facts = _facts(_LOG_SO_FAR)
    for first in range(0, len(facts), _FILL_BATCH):
        await store.append(f"old.{first}", ANY_VERSION, facts[first : first + _FILL_BATCH])
    await store.close()


def _bare(path: Path, batches: Sequence[Written]) -> float:
    _copy(path)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA synchronous = FULL")
    _settle()
    begun = perf_counter()
    for rows, heads in batches:
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(INSERT_EVENT, rows)
        connection.executemany(UPSERT_HEAD, heads)
        connection.execute("COMMIT")
    took_s = perf_counter() - begun
    connection.close()
    return took_s


async def _many_appenders(folder: Path) -> Row:
    facts = _facts(_EVENTS[100])
    alone_s, _ = await _ours(folder / "alone.db", facts[: _EVENTS[1]], 1)
    _copy(folder / "many.db")
    store = await open_store(folder / "many.db")
    _settle()

    async def append(appender: int) -> None:
        for fact in facts[appender::_APPENDERS]:
            await store.append(f"job.{appender}", ANY_VERSION, [fact])

    begun = perf_counter()
    async with asyncio.TaskGroup() as group:
        for appender in range(_APPENDERS):
            group.create_task(append(appender))
    took_s = perf_counter() - begun
    await store.close()
    rate, alone = len(facts) / took_s, _EVENTS[1] / alone_s
    return Row(
        what=f"{_APPENDERS} appenders at once, one event each",
        figure=rate,
        unit="events/s",
        better="higher",
        yardstick=f"one appender alone ({alone:,.0f} events/s)",
        ratio=rate / alone,
    )


def _facts(count: int) -> list[Fact]:
    clock = SystemClock()
    return [
        Fact(
            data=JobProgressed(job_id=f"job-{number % _STREAMS}", epochs_done=float(number), workers=4, epoch_s=12.5),
            event_id=clock.new_id(),
            recorded_at=clock.now(),
            actor="watcher",
        )
        for number in range(count)
    ]


def _copy(path: Path) -> None:
    """Begin with the log so far, whatever lay there before, and nothing of it still on its way to the disk."""
    path.unlink(missing_ok=True)
    shutil.copy(path.with_name(_SO_FAR), path)
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _settle() -> None:
    # What was left over from the turn before is nobody's cost, nor is looking again and again at what stays.
    gc.collect()
    gc.freeze()
