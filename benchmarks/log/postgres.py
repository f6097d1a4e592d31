"""Many writers of a log in PostgreSQL, against bare asyncpg that inserts the same rows.

Rule: both write the same tables of one server with the same durability (fsync, synchronous_commit), in turns, so that a
noisy machine troubles both alike; the ratio is the median over the turns. The bare loop has its rows made already, and
inserts them in batches of as many as there are writers: a group commit has no more to write.
"""

import asyncio
import gc
from collections.abc import Sequence
from statistics import median
from time import perf_counter

import asyncpg
import numpy as np

from benchmarks.log.facts import some_facts
from benchmarks.log.options import Options
from benchmarks.table import Row
from tests.postgres import Server, serving
from voda.events.envelope import ANY_VERSION, Fact
from voda.log.append_plan import EventRow, GroupPlan, HeadRow
from voda.log.factory import open_store
from voda.log.sql.postgres import PostgresDatabase

TITLE = "Append to PostgreSQL (fsync on), 50 concurrent writers of single events"
_WRITERS = 50
_EVENTS = 20_000
"""Of one turn."""
_TURNS = 5
_BEFORE = 100_000
"""Events that are there before: in an empty log every index is a page."""
_PAGE = 10_000
_EVENT = "INSERT INTO events VALUES ($1, $2, $3, $4, $5, $6, $7, $8)"
_HEAD = (
    "INSERT INTO streams VALUES ($1, $2, $3, $4, $5) ON CONFLICT (stream) DO UPDATE SET version = excluded.version,"
    " hash = excluded.hash, epoch = excluded.epoch, position = excluded.position"
)

Batch = tuple[Sequence[EventRow], Sequence[HeadRow]]


async def run(options: Options) -> Sequence[Row]:
    """Return events/s, the 99th percentile of an append's time, and the ratio to the bare loop."""
    with serving(is_durable=True) as server:
        ratios, rates, times = [], [], []
        before = await _before()
        facts = some_facts(options.scaled(_EVENTS, _WRITERS), jobs=_WRITERS)
        for turn in range(options.scaled(_TURNS)):
            our_url, bare_url = await _filled(server, before), await _filled(server, before)
            if turn == 0:
                batches = await _batches(our_url, facts)
                our_url = await _filled(server, before)
            if turn % 2:
                bare_s = await _bare(bare_url, batches)
                our_s, each_s = await _ours(our_url, facts)
            else:
                our_s, each_s = await _ours(our_url, facts)
                bare_s = await _bare(bare_url, batches)
            ratios.append(bare_s / our_s)
            rates.append(len(facts) / our_s)
            times += each_s
    bare = f"bare asyncpg, the same rows in batches of {_WRITERS}"
    return [
        Row(
            what=f"append, {_WRITERS} writers",
            figure=median(rates),
            unit="events/s",
            goal=5_000,
            better="higher",
            yardstick=bare,
            ratio=median(ratios),
        ),
        Row(what="the same, ratio to bare asyncpg", figure=median(ratios), unit="x", goal=0.7, better="higher"),
        Row(what="an append, p99", figure=float(np.percentile(times, 99)) * 1e3, unit="ms", goal=50.0),
        Row(what="an append, p50", figure=float(np.percentile(times, 50)) * 1e3, unit="ms"),
    ]


async def _ours(url: str, facts: Sequence[Fact]) -> tuple[float, list[float]]:
    """Return the seconds that all appends took, and each."""
    store = await open_store(url)
    times: list[float] = []

    async def write(writer: int) -> None:
        for fact in facts[writer::_WRITERS]:
            begun = perf_counter()
            await store.append(f"job.{writer}", ANY_VERSION, [fact])
            times.append(perf_counter() - begun)

    gc.collect()
    begun = perf_counter()
    async with asyncio.TaskGroup() as group:
        for writer in range(_WRITERS):
            group.create_task(write(writer))
    took_s = perf_counter() - begun
    await store.close()
    return took_s, times


async def _bare(url: str, batches: Sequence[Batch]) -> float:
    connection = await asyncpg.connect(url)
    gc.collect()
    begun = perf_counter()
    for rows, heads in batches:
        async with connection.transaction():
            await connection.executemany(_EVENT, rows)
            await connection.executemany(_HEAD, heads)
    took_s = perf_counter() - begun
    await connection.close()
    return took_s


async def _batches(url: str, facts: Sequence[Fact]) -> Sequence[Batch]:
    """Let the facts be written by us once, which is not counted, and return what the bare loop is to write."""
    await _ours(url, facts)
    store = await open_store(url, read_only=True)
    batches: list[Batch] = []
    after = _BEFORE
    while rows := await store.read_rows(after, _WRITERS):
        heads = {row[1]: (row[1], row[2], row[7], 0, row[0]) for row in rows}
        batches.append((rows, list(heads.values())))
        after = rows[-1][0]
    await store.close()
    return batches


async def _before() -> Sequence[GroupPlan]:
    """Return the log so far: many streams of ten events each."""
    from voda.log.append_plan import Append, plan_group

    facts = some_facts(_BEFORE, jobs=100)
    plans: list[GroupPlan] = []
    for first in range(0, _BEFORE, _PAGE):
        group = [Append(f"old.{at}", ANY_VERSION, facts[at : at + 10], 0) for at in range(first, first + _PAGE, 10)]
        plans.append(plan_group(group, position=first, heads={}, known={}))
    return plans


async def _filled(server: Server, before: Sequence[GroupPlan]) -> str:
    url = server.create_database()
    await PostgresDatabase.migrate(url)
    store = await open_store(url)
    for plan in before:
        await store.take_over(plan, after=plan.rows[0][0] - 1)
    await store.close()
    # What is left to be written by the server itself is nobody's cost.
    server.sql(url, "VACUUM ANALYZE")
    server.sql(url, "CHECKPOINT")
    return url
