"""Kueue's baseline shape, end to end: MPIJobs from kubectl to their end, adopted, placed, bound, run and recorded.

Source: kubernetes-sigs/kueue, test/performance/scheduler/configs/baseline (generator.yaml, rangespec.yaml): 30 queues
of 20 units each, and for each queue 350 jobs of 1 unit and 200 ms, 100 of 5 and 500 ms, 50 of 20 and 1 s; 15,000 jobs
took 351.1 s there, 42.7/s. What they measure is less: Workload objects are made directly and their execution is
mimicked; there are no jobs of an operator and no pods.
"""

import asyncio
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from benchmarks.kube.options import Options
from benchmarks.kube.plane import Stage, control_plane
from benchmarks.kube.replica import Replica, serving
from benchmarks.kube.seeding import add_nodes, in_parallel
from benchmarks.kube.shares import Shares
from benchmarks.kube.tail import Tail
from benchmarks.table import Row
from tests.kube.client import Object
from tests.kube.kubelet import RUNS_FOR_S
from tests.kube.objects import a_node, an_mpijob
from tests.kube.operators.mpi_v2 import MpiOperatorV2
from tests.kube.world import World
from voda.events.envelope import Event
from voda.events.types import JobCompleted, JobSubmitted, PlanAdopted, WorkerExited, WorkerStarted

TITLE = "Kueue's baseline shape, end to end"
KUEUE_PER_S = 42.7
_QUEUES = 30
_UNITS = 20
"""Of a queue."""
_NODE_UNITS = 8
_SUBMITTERS = 16
_TELL_S = 10.0


class Class(NamedTuple):
    """Jobs that are alike."""

    name: str
    jobs: int
    """Of each queue."""
    units: int
    runs_s: float
    priority: int


_CLASSES = (Class("small", 350, 1, 0.2, 50), Class("medium", 100, 5, 0.5, 100), Class("large", 50, 20, 1.0, 200))


class Course(Struct):
    """Job -> when it came to a stage, as the log has it; seconds since the epoch."""

    admitted: dict[str, float] = {}
    planned: dict[str, float] = {}
    started: dict[str, float] = {}
    finished: dict[str, float] = {}
    freed: dict[str, float] = {}
    """No worker of it holds a GPU any more."""

    def see(self, event: Event) -> None:
        """Take note of an event."""
        match event.data:
            case JobSubmitted(spec=spec):
                self.admitted.setdefault(spec.job_id, event.recorded_at)
            case PlanAdopted(placed=placed):
                for job_id in placed:
                    self.planned.setdefault(job_id, event.recorded_at)
            case WorkerStarted(job_id=job_id):
                self.started.setdefault(job_id, event.recorded_at)
            case JobCompleted(job_id=job_id):
                self.finished.setdefault(job_id, event.recorded_at)
            case WorkerExited(job_id=job_id):
                self.freed[job_id] = event.recorded_at
            case _:
                return

    def stages(self) -> Iterator[tuple[str, Sequence[float]]]:
        """Yield how long each job spent between two stages, seconds."""
        stages = {
            "admitted to planned": (self.admitted, self.planned),
            "planned to workers bound": (self.planned, self.started),
            "workers bound to finished": (self.started, self.finished),
            "finished to GPUs free": (self.finished, self.freed),
        }
        for name, (begin, end) in stages.items():
            yield name, [end[job_id] - begin[job_id] for job_id in end if job_id in begin]


async def run(options: Options) -> Sequence[Row]:
    """Return jobs/s admitted, started and finished, and who used the cores meanwhile."""
    with (
        tempfile.TemporaryDirectory(prefix="voda-bench-") as folder,
        control_plane(controllers=True, scheduler=True) as plane,
    ):
        log = str(Path(folder) / "voda.db")
        async with Stage(plane, [MpiOperatorV2]) as world:
            await add_nodes(world.client, _nodes(options))
            settings = {"pools": {pool: {"ratelimitSeconds": 0.0} for pool in _pools(options)}}
            with serving(plane, Path(folder) / "one", log, settings=settings, program=options.program) as replica:
                await replica.until_leads()
                async with Tail(log) as tail:
                    return await _measured(world, tail, replica, options)


async def _measured(world: World, tail: Tail, replica: Replica, options: Options) -> Sequence[Row]:
    jobs = list(_jobs(world.namespace, options))
    course, shares, began = Course(), Shares(world.plane, [replica]), time.time()  # noqa: TID251 - the log's clock
    loading = asyncio.create_task(in_parallel([partial(world.submit, job) for job in jobs], _SUBMITTERS))
    tell_at, deadline = _TELL_S, options.within_s
    while len(course.finished) < len(jobs) and (lap := time.time() - began) < deadline:  # noqa: TID251
        await asyncio.sleep(0.25)
        for event in await tail.new():
            course.see(event)
        if lap >= tell_at:
            tell_at += _TELL_S
            done = f"{len(course.admitted)} admitted, {len(course.started)} started, {len(course.finished)} finished"
            print(f"  {lap:.0f} s: {done} of {len(jobs)}", flush=True)
    used = [*shares.rows(), _cost(shares, course)]
    if not loading.done():
        loading.cancel()
    await asyncio.gather(loading, return_exceptions=True)
    return [*_rows(course, began, len(jobs)), *used]


def _rows(course: Course, began: float, jobs: int) -> Iterator[Row]:
    for what, instants in (
        ("admitted (adopted into the log)", course.admitted),
        ("started (workers bound)", course.started),
        ("finished (Completed in the log)", course.finished),
    ):
        count, span_s = len(instants), max(instants.values(), default=began) - began
        yield Row(
            what=f"jobs {what}: {count:,} of {jobs:,} in {span_s:.0f} s",
            figure=count / (span_s or 1.0),
            unit="/s",
            yardstick=f"Kueue's published {KUEUE_PER_S}/s: Workloads alone, no pods",
            ratio=count / (span_s or 1.0) / KUEUE_PER_S,
        )
    for stage, spans_s in course.stages():
        if spans_s:
            yield Row(what=f"{stage}, p50", figure=float(np.percentile(spans_s, 50)), unit="s")
            yield Row(what="the same, p95", figure=float(np.percentile(spans_s, 95)), unit="s")


def _cost(shares: Shares, course: Course) -> Row:
    return Row(
        what="CPU: voda, per finished job", figure=1e3 * shares.voda_s() / max(1, len(course.finished)), unit="ms"
    )


def _pools(options: Options) -> Sequence[str]:
    return [f"pool-{number:02}" for number in range(_QUEUES)] if options.has_pools else ["v100"]


def _nodes(options: Options) -> Iterator[Object]:
    """Yield nodes with as many GPUs as all queues have units."""
    if not options.has_pools:
        for number in range(_QUEUES * _UNITS // _NODE_UNITS):
            yield a_node(f"node-{number:03}", _NODE_UNITS)
        return
    for pool in _pools(options):
        for number, units in enumerate((_NODE_UNITS, _NODE_UNITS, _UNITS - 2 * _NODE_UNITS)):
            yield a_node(f"{pool}-{number}", units, pool)


def _jobs(namespace: str, options: Options) -> Iterator[Object]:
    """Yield all jobs, those of a queue apart from each other, as they would come from 30 users at once."""
    share = options.scale * (1.0 if options.is_full else 0.1)
    for each in _CLASSES:
        for number in range(max(1, round(each.jobs * share))):
            for queue in range(_QUEUES):
                yield _job(namespace, options, each, queue, number)


def _job(namespace: str, options: Options, each: Class, queue: int, number: int) -> Object:
    name = f"{each.name}-{queue}-{number}"
    return an_mpijob(
        name,
        namespace,
        each.units,
        least=each.units,
        most=each.units,
        priority=each.priority,
        pool=_pools(options)[queue if options.has_pools else 0],
        annotations={"voda.dev/user": f"user-{queue}"},
        launcher_notes={RUNS_FOR_S: str(each.runs_s)},
        # The run time begins once all workers are there.
        spec={"launcherCreationPolicy": "WaitForWorkersReady"},
        policy={"cleanPodPolicy": "Running", "suspend": True},
    )
