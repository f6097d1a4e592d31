"""What the page asks for: a moment of a long log, the timeline, and the present for many viewers."""

import asyncio
import os
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter, process_time

import msgspec
import numpy as np

from benchmarks.bench_replay import filled
from benchmarks.table import Row
from voda.api.presenters.moments import Moments, moment_view
from voda.api.streams.moment_hub import MomentHub
from voda.api.streams.shared_bodies import SharedBodies
from voda.application.read_model import ReadModel
from voda.clock import SystemClock
from voda.domain.gpus import Gpus
from voda.domain.job import JobSpec
from voda.domain.node import Node
from voda.events.envelope import ANY_VERSION, Fact
from voda.events.types import JobProgressed, JobSubmitted, NodeJoined, WorkerStarted
from voda.log.factory import open_store
from voda.log.memory import MemoryStore
from voda.log.store import EventStore
from voda.projections.cluster.live_cluster import LiveCluster
from voda.timetravel.past import Past

TITLE = "The page: moments of a long log, and the present for many viewers"
_STEPS = 60
_NODES = 1_000
_JOBS = 2_000
_VIEWERS = 50
_EVENTS_PER_S = 10
_WATCHED_S = 10.0


def run() -> Sequence[Row]:
    """Return how long a step of the slider takes, and what viewers cost."""
    with tempfile.TemporaryDirectory() as folder:
        return [*asyncio.run(_slider(Path(folder) / "log.db")), *asyncio.run(_viewers())]


async def _slider(path: Path) -> Sequence[Row]:
    events = await filled(path)
    store = await open_store(path)
    past = Past(store)
    begun = perf_counter()
    await past.at(events, _body)
    first_s = perf_counter() - begun
    rng, taken = random.Random(1), list[float]()
    for _ in range(_STEPS):
        begun = perf_counter()
        await past.at(rng.randint(1, events), _body)
        taken.append(perf_counter() - begun)
    moment, bodies = events // 2, SharedBodies()

    async def made() -> bytes:
        return await past.at(moment, _body)

    begun = process_time()
    await asyncio.gather(*(bodies.body(moment, made) for _ in range(_VIEWERS)))
    shared_s = process_time() - begun
    begun = perf_counter()
    await past.read_on(events)
    read_s = perf_counter() - begun
    begun = perf_counter()
    past.activity.between(past.activity.begins_at or 0.0, past.activity.known_until, 500)
    timeline_s = perf_counter() - begun
    await store.close()
    return [
        Row(
            what=f"slider anywhere in {events:,} events, p95",
            figure=float(np.quantile(taken, 0.95)),
            unit="s",
            goal=0.15,
        ),
        Row(what="the same, median", figure=float(np.median(taken)), unit="s"),
        Row(what="first look at its end, which keeps states on the way", figure=first_s, unit="s"),
        Row(what=f"{_VIEWERS} viewers of the same moment of it, CPU time of all", figure=shared_s, unit="s"),
        Row(what="reading its activity", figure=read_s, unit="s"),
        Row(what="timeline of it in 500 stretches", figure=timeline_s, unit="s"),
    ]


def _body(cluster: LiveCluster) -> bytes:
    return msgspec.json.encode(moment_view(Moments().moment(cluster, 0.0), 0))


async def _viewers() -> Sequence[Row]:
    store, clock = MemoryStore(), SystemClock()
    await _populate(store)
    view = ReadModel(store)
    await view.open()
    following = asyncio.create_task(view.run())
    hub = MomentHub(view, clock, lambda _node: {})
    begun = perf_counter()
    hub.state()
    whole_s = perf_counter() - begun
    alone_s = await _cost(store, view, 0, hub)
    latencies, alone_bytes = list[float](), _memory_bytes()
    watched_s = await _cost(store, view, _VIEWERS, hub, latencies)
    watched_bytes = _memory_bytes()
    following.cancel()
    return [
        Row(what=f"the present of {_NODES:,} nodes and {_JOBS:,} jobs, the first time", figure=whole_s, unit="s"),
        Row(
            what=f"{_VIEWERS} viewers, {_EVENTS_PER_S} events a second: share of a core",
            figure=(watched_s - alone_s) / _WATCHED_S,
            unit="",
            goal=0.1,
        ),
        Row(
            what=f"{_VIEWERS} viewers: more memory", figure=(watched_bytes - alone_bytes) / 2**20, unit="MiB", goal=50.0
        ),
        Row(what="from an event to a viewer, p95", figure=float(np.quantile(latencies, 0.95)), unit="s", goal=0.3),
    ]


async def _cost(
    store: EventStore, view: ReadModel, viewers: int, hub: MomentHub, latencies: list[float] | None = None
) -> float:
    """Return the CPU seconds of some time in which jobs report and so many look."""
    reported = {0: 0.0}

    async def write(frame: bytes) -> None:
        if latencies is not None and frame.startswith(b"event: changes"):
            position = int(frame.split(b"\n", 2)[1].removeprefix(b"id: "))
            if position in reported:
                latencies.append(perf_counter() - reported[position])

    watching = [asyncio.create_task(hub.follow(write, 15.0)) for _ in range(viewers)]
    await asyncio.sleep(1.0)
    began, ends = process_time(), perf_counter() + _WATCHED_S
    number = 0
    while perf_counter() < ends:
        number += 1
        fact = JobProgressed(job_id=f"job-{number % _JOBS}", epochs_done=number / 100, workers=1)
        made = Fact(data=fact, event_id=f"{viewers}-{number}", recorded_at=1_000.0 + number)
        begun = perf_counter()
        reported[await store.append(fact.stream, ANY_VERSION, [made])] = begun
        await asyncio.sleep(1 / _EVENTS_PER_S)
    took = process_time() - began
    for task in watching:
        task.cancel()
    await asyncio.gather(*watching, return_exceptions=True)
    return took


def _memory_bytes() -> int:
    pages = Path("/proc/self/statm").read_text("ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


async def _populate(store: EventStore) -> None:
    number = 0
    for node in range(_NODES):
        await _append(store, NodeJoined(node=Node(name=f"node-{node:04}", gpus=Gpus(8))), number := number + 1)
    for job in range(_JOBS):
        spec = JobSpec(job_id=f"job-{job}", max_replicas=4, epochs=50, user=f"user-{job % 40}")
        await _append(store, JobSubmitted(spec=spec), number := number + 1)
        workers = {index: f"node-{(job + index) % _NODES:04}" for index in range(3)}
        await _append(store, WorkerStarted(job_id=spec.job_id, workers=workers), number := number + 1)


async def _append(store: EventStore, fact: NodeJoined | JobSubmitted | WorkerStarted, number: int) -> None:
    made = Fact(data=fact, event_id=f"begin-{number}", recorded_at=float(number))
    await store.append(fact.stream, ANY_VERSION, [made])
