"""A long log: the lives of very many jobs in two pools, 500 of them at a time, and snapshots shortly before its end.

Rule: made once and kept under out/, because it takes minutes (and 3 GB); the other stores take it over byte for byte.
"""

import asyncio
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from voda.application.read_model import ReadModel
from voda.controller.follower import catch_up
from voda.controller.snapshots import take_snapshots
from voda.domain.gpus import Gpus
from voda.domain.job import JobSpec
from voda.domain.node import Node
from voda.events.envelope import ANY_VERSION, Fact, Head
from voda.events.types import (
    AnyFact,
    JobCompleted,
    JobProgressed,
    JobSubmitted,
    NodeJoined,
    WorkerExited,
    WorkerStarted,
)
from voda.log.append_plan import Append, GroupPlan, plan_group
from voda.log.factory import open_store
from voda.log.store import DurableStore

POOLS = ("first", "second")
TAIL = 50_000
"""Events behind the snapshots: as many as there may be before the next ones are taken."""
_FOLDER = Path("out/bench-log")
_EPOCHS = 14
_LIVE = 500
_PAGE = 500
"""Appends in a group."""
_ROWS = 5_000


async def kept_log(events: int) -> Path:
    """Return the path of a log of that many events, made now if it is not there."""
    path = _FOLDER / f"{events}.db"
    if not path.exists():
        await asyncio.to_thread(_FOLDER.mkdir, parents=True, exist_ok=True)
        new = path.with_suffix(".new")
        store = await open_store(new)
        for group in _groups(events):
            await store.take_over(group, after=group.rows[0][0] - 1)
        await _leave_snapshots(store, events - min(TAIL, events // 2))
        await store.close()
        new.rename(path)
    return path


async def taken_over(kept: str, store: DurableStore) -> None:
    """Fill an empty log with all that a kept one holds, snapshots included."""
    source = await open_store(kept, read_only=True)
    position = 0
    while rows := await source.read_rows(position, _ROWS):
        heads = {row[1]: Head(row[2], row[7], 0) for row in rows}
        await store.take_over(GroupPlan(list(rows), heads, []), after=position)
        position = rows[-1][0]
    async for snapshot in source.snapshots.all():
        await store.snapshots.save(snapshot)
    await source.close()


async def _leave_snapshots(store: DurableStore, position: int) -> None:
    view = ReadModel(store)
    await catch_up(store, [view.live, view.job_registry], after=0, until=position)
    for projection in (view.live, view.job_registry):
        await take_snapshots(store, [projection], position)


def _groups(events: int) -> Iterator[GroupPlan]:
    position = 0
    heads: dict[str, Head] = {}
    appends = _appends()
    while position < events:
        plan = plan_group(list(islice(appends, _PAGE)), position=position, heads=heads, known={})
        if position + len(plan.rows) > events:
            plan = _cut(plan, events - position)
        position += len(plan.rows)
        # A job's stream is never written to again once it has ended, and the log is long.
        heads = {stream: head for stream, head in (heads | plan.heads).items() if head.version < _EVENTS_OF_A_LIFE}
        yield plan


def _cut(plan: GroupPlan, events: int) -> GroupPlan:
    rows = plan.rows[:events]
    return GroupPlan(rows, {row[1]: Head(row[2], row[7], 0) for row in rows}, [])


def _appends() -> Iterator[Append]:
    for number in range(_LIVE // 4):
        yield _append([NodeJoined(node=Node(name=f"node-{number:03}", pool=POOLS[number % 2], gpus=Gpus(8)))], at=0.0)
    wave = 0
    while True:
        lives = [_life(wave * _LIVE + number) for number in range(_LIVE)]
        for step, batches in enumerate(zip(*lives, strict=True)):
            for batch in batches:
                yield _append(batch, at=100.0 * (wave + 1) + step)
        wave += 1


def _append(data: Sequence[AnyFact], *, at: float) -> Append:
    stream = data[0].stream
    facts = [
        Fact(data=one, event_id=f"{at:09.1f}-{stream}-{order}", recorded_at=at, actor="bench")
        for order, one in enumerate(data)
    ]
    return Append(stream, ANY_VERSION, facts, 0)


def _life(number: int) -> Sequence[Sequence[AnyFact]]:
    """Return the facts of one job, in the batches they are appended in."""
    job_id, node = f"job-{number:07}", f"node-{number % (_LIVE // 4):03}"
    spec = JobSpec(
        job_id=job_id, pool=POOLS[number % 2], max_replicas=4, epochs=_EPOCHS, category=f"kind-{number % 20}"
    )
    epochs = [
        JobProgressed(job_id=job_id, epochs_done=float(epoch), workers=2, epoch_s=60.0 + epoch % 3)
        for epoch in range(1, _EPOCHS + 1)
    ]
    half = _EPOCHS // 2
    return (
        [JobSubmitted(spec=spec), WorkerStarted(job_id=job_id, workers={0: node, 1: node})],
        epochs[:half],
        [WorkerExited(job_id=job_id, workers=(1,)), WorkerStarted(job_id=job_id, workers={1: node})],
        epochs[half:],
        [JobCompleted(job_id=job_id), WorkerExited(job_id=job_id, workers=(0, 1), cause="finished")],
    )


_EVENTS_OF_A_LIFE = sum(map(len, _life(0)))
