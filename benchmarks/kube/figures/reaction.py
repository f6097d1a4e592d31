"""How soon a deleted node is answered by a plan and by workers elsewhere: 1,000 nodes, 500 jobs, room for all.

A stand-in of this process makes pods anew at once: the Job controller looks at a Job's pods once a second.
"""

import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.kube.options import Options
from benchmarks.kube.plane import Stage, control_plane
from benchmarks.kube.pods import Pods
from benchmarks.kube.replica import serving
from benchmarks.kube.seeding import add_node, add_nodes, in_parallel, nodes
from benchmarks.kube.shares import Shares
from benchmarks.kube.tail import Tail
from benchmarks.kube.workers import WorkersOnly
from benchmarks.table import Row
from tests.kube import client as api
from tests.kube.objects import an_mpijob
from tests.kube.operators.base import JOB_NAME
from tests.kube.stand_in_world import StandInWorld
from voda.events.types import NodeLeft, PlanAdopted, WorkerStarted

TITLE = "node deleted, 1,000 nodes x 8 GPUs, 500 running jobs on three quarters of them"
_NODES = 1_000
_JOBS = 500
WORKERS = 3
_GPUS = 4
"""Of a worker: a node has two."""
_TRIES = 30
_START_S = 420.0
_QUIET_S = 0.7

Lap = tuple[float, float, float]
"""Seconds from the answered deletion of a node to its event, to the plan and to the last gate."""


async def run(options: Options) -> Sequence[Row]:
    """Return the time from the answered request to the plan in the log, and to the gates of the pods made anew."""
    count, jobs = options.scaled(_NODES, 8), options.scaled(_JOBS, 2)
    with tempfile.TemporaryDirectory(prefix="voda-bench-") as folder, control_plane(scheduler=True) as plane:
        log = str(Path(folder) / "voda.db")
        async with Stage(plane, [WorkersOnly]) as world:
            pods = Pods(world.client, JOB_NAME)
            await add_nodes(world.client, nodes(count))
            with serving(plane, Path(folder) / "one", log, program=options.program) as replica:
                await replica.until_leads()
                async with Tail(log) as tail, pods.followed():
                    await fill(world, tail, jobs)
                    shares = Shares(plane, [replica])
                    laps = [await _lap(world, tail, pods, number) for number in range(options.scaled(_TRIES, 2))]
                    return [*_rows(laps), *shares.rows()]


def _rows(laps: Sequence[Lap]) -> Sequence[Row]:
    ways = {"the node's own event": 0, "plan.adopted": 1, "all gates lifted of the pods made anew": 2}
    rows = []
    for what, place in ways.items():
        figures = [1e3 * lap[place] for lap in laps]
        goal = 300.0 if place == len(ways) - 1 else None
        rows.append(
            Row(what=f"node deleted to {what}, p95 of {len(laps)}", figure=_at(figures, 95), unit="ms", goal=goal)
        )
        rows.append(Row(what="the same, p50", figure=_at(figures, 50), unit="ms"))
    return rows


async def fill(world: StandInWorld, tail: Tail, jobs: int) -> None:
    """Submit rigid jobs as kubectl does, and wait until all their workers are in the log and the log rests."""
    size = {"least": WORKERS, "most": WORKERS, "gpus": _GPUS}
    made = [
        an_mpijob(f"job-{number}", world.namespace, WORKERS, suspend=True, pool="v100", **size)
        for number in range(jobs)
    ]
    await in_parallel([partial(world.submit, job) for job in made], 16)
    seen: set[tuple[str, int]] = set()
    deadline = time.perf_counter() + _START_S
    while len(seen) < jobs * WORKERS:
        event, _ = await tail.until(lambda event: isinstance(event.data, WorkerStarted), within_s=_START_S)
        assert isinstance(event.data, WorkerStarted), "as asked for"
        seen |= {(event.data.job_id, index) for index in event.data.workers}
        if time.perf_counter() > deadline:
            raise RuntimeError(f"only {len(seen)} of {jobs * WORKERS} workers started in {_START_S:g} s")
    await tail.rested(3.0)


async def _lap(world: StandInWorld, tail: Tail, pods: Pods, number: int) -> Lap:
    """Delete a node that has workers, and let it come back once they are elsewhere."""
    on_nodes = [pod for pod in pods.mirror.objects.values() if pod["spec"].get("nodeName")]
    name = sorted({str(pod["spec"]["nodeName"]) for pod in on_nodes})[number * 37 % (len(on_nodes) // 2)]
    lost = [pod for pod in on_nodes if pod["spec"]["nodeName"] == name]
    names, uids = {api.key_of(pod) for pod in lost}, {pod["metadata"]["uid"] for pod in lost}
    node = await world.client.get(api.NODES, name)
    await world.remove_node(name)
    answered = time.perf_counter()
    _, told = await tail.until(lambda event: isinstance(event.data, NodeLeft) and event.data.name == name)
    _, planned = await tail.until(lambda event: isinstance(event.data, PlanAdopted))

    def anew() -> list[str]:
        there = (pods.mirror.get(key) for key in names)
        return [pod["metadata"]["uid"] for pod in there if pod is not None and pod["metadata"]["uid"] not in uids]

    ungated = {uid: at for of_job in pods.ungated.values() for uid, at in of_job.items()}

    def are_lifted() -> bool:
        nonlocal ungated
        ungated = {uid: at for of_job in pods.ungated.values() for uid, at in of_job.items()}
        return len(found := anew()) == len(names) and ungated.keys() >= set(found)

    await pods.until(are_lifted, f"the workers of {name} are elsewhere")
    lifted = max(ungated[uid] for uid in anew())
    await tail.rested(_QUIET_S)
    metadata = {"name": name, "labels": node["metadata"]["labels"]}
    await add_node(world.client, {"metadata": metadata, "spec": {"taints": []}, "status": _status(node["status"])})
    world.kubelet.restore(name)
    await tail.rested(_QUIET_S)
    return told - answered, planned - answered, lifted - answered


def _status(status: api.Object) -> api.Object:
    return {key: status[key] for key in ("capacity", "allocatable", "conditions")}


def _at(laps: Sequence[float], percent: float) -> float:
    return float(np.percentile(laps, percent))
