"""From a SQLite log to state: the whole log folded, and a snapshot with its tail."""

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

from benchmarks.table import Row
from voda.controller.follower import catch_up, restore
from voda.controller.snapshots import take_snapshots
from voda.domain.gpus import Gpus
from voda.domain.job import JobSpec
from voda.domain.node import Node
from voda.events.envelope import ANY_VERSION, Fact
from voda.events.types import (
    AnyFact,
    JobCompleted,
    JobProgressed,
    JobSubmitted,
    NodeJoined,
    WorkerExited,
    WorkerStarted,
)
from voda.log.factory import open_store
from voda.log.store import EventStore
from voda.projections.live import Live

TITLE = "Replay a SQLite log to the state that decisions read"
_EVENTS = 1_000_000
"""Enough to tell seconds from milliseconds."""
_EPOCHS = 14
_TAIL = 5_000
_LIVE = 500
"""Jobs that live at the same time."""


def run() -> Sequence[Row]:
    """Return events/s of a full replay, and the time until a log with a snapshot is ready."""
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_measured(Path(folder) / "log.db"))


async def _measured(path: Path) -> Sequence[Row]:
    events = await filled(path)
    whole_s, whole = await _replayed(path)
    await _leave_snapshot(path, events - _TAIL)
    resumed_s, resumed = await _replayed(path)
    assert resumed.state_hash() == whole.state_hash()
    return [
        Row(
            what=f"full replay of {events:,} events",
            figure=events / whole_s,
            unit="events/s",
            goal=150_000,
            better="higher",
        ),
        Row(
            what=f"{events:,} events, snapshot {_TAIL:,} before the end",
            figure=resumed_s,
            unit="s",
            goal=1.0,
            yardstick="full replay",
            ratio=resumed_s / whole_s,
        ),
    ]


async def _replayed(path: Path) -> tuple[float, Live]:
    """Do what a restarted controller does, and return the seconds it took."""
    begun = perf_counter()
    store, live = await open_store(path), Live()
    await catch_up(store, [live], after=await restore(store, live))
    await store.close()
    return perf_counter() - begun, live


async def _leave_snapshot(path: Path, position: int) -> None:
    store, live = await open_store(path), Live()
    await catch_up(store, [live], after=0, until=position)
    await take_snapshots(store, [live], position)
    await store.close()


async def filled(path: Path) -> int:
    """Write the lives of many jobs, _LIVE of them at a time, and return the number of events."""
    store = await open_store(path)
    nodes = [NodeJoined(node=Node(name=f"node-{number:03}", gpus=Gpus(8))) for number in range(_LIVE // 4)]
    await asyncio.gather(*(_append(store, [node], at=0.0) for node in nodes))
    number = 0
    while await store.position() < _EVENTS:
        wave = [f"job-{number + i}" for i in range(_LIVE)]
        for step, facts in enumerate(zip(*(_life(job_id) for job_id in wave), strict=True)):
            await asyncio.gather(*(_append(store, few, at=100.0 * number + step) for few in facts))
        number += _LIVE
    end = await store.position()
    await store.close()
    return end


async def _append(store: EventStore, data: Sequence[AnyFact], *, at: float) -> None:
    stream = data[0].stream
    facts = [
        Fact(data=one, event_id=f"{stream}/{at}/{order}", recorded_at=at, actor="bench")
        for order, one in enumerate(data)
    ]
    await store.append(stream, ANY_VERSION, facts)


def _life(job_id: str) -> Sequence[Sequence[AnyFact]]:
    """Return the facts of one job, in the batches they are appended in."""
    spec = JobSpec(job_id=job_id, max_replicas=4, epochs=_EPOCHS, category=f"kind-{len(job_id) % 20}")
    workers = {0: "node-000", 1: "node-001"}
    epochs = [
        JobProgressed(job_id=job_id, epochs_done=float(epoch), workers=2, epoch_s=60.0 + epoch % 3)
        for epoch in range(1, _EPOCHS + 1)
    ]
    half = _EPOCHS // 2
    return (
        [JobSubmitted(spec=spec), WorkerStarted(job_id=job_id, workers=workers)],
        epochs[:half],
        [WorkerExited(job_id=job_id, workers=(1,)), WorkerStarted(job_id=job_id, workers={1: "node-002"})],
        epochs[half:],
        [JobCompleted(job_id=job_id), WorkerExited(job_id=job_id, workers=(0, 1), cause="finished")],
    )
