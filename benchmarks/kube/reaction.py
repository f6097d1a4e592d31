"""How soon a lost node is answered by a plan, on a full cluster of 1,000 nodes with 500 jobs."""

import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.kube.options import Options
from benchmarks.kube.plane import Stage, control_plane
from benchmarks.kube.replica import serving
from benchmarks.kube.seeding import add_node, add_nodes, in_parallel, nodes
from benchmarks.kube.shares import Shares
from benchmarks.kube.tail import Tail
from benchmarks.kube.workers import WorkersOnly
from benchmarks.table import Row
from tests.kube import client as api
from tests.kube.objects import an_mpijob
from tests.kube.stand_in_world import StandInWorld
from voda.events.envelope import Event
from voda.events.types import NodeChanged, NodeLeft, PlanAdopted, WorkerStarted

TITLE = "node lost, 1,000 nodes x 8 GPUs, 500 running jobs"
_NODES = 1_000
_JOBS = 500
_WORKERS = 4
_GPUS = 4
"""Of a worker; the jobs fill the cluster, so that every lost node takes workers of two of them."""
_TRIES = 20
"""Of each way to lose a node."""
_START_S = 420.0
_QUIET_S = 0.7


async def run(options: Options) -> Sequence[Row]:
    """Return the time from the answered request to the plan in the log, as a reader of the log sees it."""
    count, jobs = options.scaled(_NODES, 4), options.scaled(_JOBS, 2)
    with tempfile.TemporaryDirectory(prefix="voda-bench-") as folder, control_plane() as plane:
        log = str(Path(folder) / "voda.db")
        async with Stage(plane, [WorkersOnly]) as world:
            await add_nodes(world.client, nodes(count))
            with serving(plane, Path(folder) / "one", log, profile=options.profile) as replica:
                await replica.until_leads()
                async with Tail(log) as tail:
                    await _fill(world, tail, jobs)
                    shares = Shares(plane, [replica])
                    laps = await _laps(world, tail, options.scaled(_TRIES, 2), count)
                    return [*_rows(laps), *shares.rows()]


def _rows(laps: dict[str, list[tuple[float, float]]]) -> Sequence[Row]:
    told = [1e3 * told for each in laps.values() for told, _ in each]
    planned = [1e3 * planned for each in laps.values() for _, planned in each]
    rows = [
        Row(what=f"node lost to plan.adopted, p95 of {len(planned)}", figure=_at(planned, 95), unit="ms", goal=200),
        Row(what="the same, p50", figure=_at(planned, 50), unit="ms"),
        Row(what="node lost to the node's own event, p50", figure=_at(told, 50), unit="ms"),
    ]
    for way, each in laps.items():
        rows.append(Row(what=f"{way}, to plan.adopted, p95", figure=_at([1e3 * lap for _, lap in each], 95), unit="ms"))
    return rows


async def _fill(world: StandInWorld, tail: Tail, jobs: int) -> None:
    """Submit the jobs as kubectl does, and wait until all their workers are in the log and the log rests."""
    made = [
        an_mpijob(
            f"job-{number}", world.namespace, _WORKERS, least=1, most=_WORKERS, gpus=_GPUS, suspend=True, pool="v100"
        )
        for number in range(jobs)
    ]
    await in_parallel([partial(world.submit, job) for job in made], 16)
    seen: set[tuple[str, int]] = set()
    deadline = time.perf_counter() + _START_S
    while len(seen) < jobs * _WORKERS:
        event, _ = await tail.until(lambda event: isinstance(event.data, WorkerStarted), within_s=_START_S)
        assert isinstance(event.data, WorkerStarted), "as asked for"
        seen |= {(event.data.job_id, index) for index in event.data.workers}
        if time.perf_counter() > deadline:
            raise RuntimeError(f"only {len(seen)} of {jobs * _WORKERS} workers started in {_START_S:g} s")
    await tail.rested(3.0)


async def _laps(world: StandInWorld, tail: Tail, tries: int, count: int) -> dict[str, list[tuple[float, float]]]:
    """Lose nodes by turns in both ways, and let each come back; return (to its event, to the plan), seconds."""
    laps: dict[str, list[tuple[float, float]]] = {"NotReady": [], "deleted": []}
    for number in range(2 * tries):
        way = "NotReady" if number % 2 == 0 else "deleted"
        name = f"v100-{(number * 37) % count:04}"
        await tail.rested(_QUIET_S)
        if way == "NotReady":
            await world.set_ready(name, False)
            laps[way].append(await _lap(tail, name))
            await tail.rested(_QUIET_S)
            await world.set_ready(name, True)
        else:
            node = await world.client.get(api.NODES, name)
            await world.remove_node(name)
            laps[way].append(await _lap(tail, name))
            await tail.rested(_QUIET_S)
            metadata = {"name": name, "labels": node["metadata"]["labels"]}
            await add_node(
                world.client, {"metadata": metadata, "spec": {"taints": []}, "status": _status(node["status"])}
            )
            world.kubelet.restore(name)
        await tail.until(lambda event: isinstance(event.data, PlanAdopted))
    return laps


async def _lap(tail: Tail, name: str) -> tuple[float, float]:
    answered = time.perf_counter()
    _, told = await tail.until(partial(_is_about, name))
    _, planned = await tail.until(lambda event: isinstance(event.data, PlanAdopted))
    return told - answered, planned - answered


def _is_about(name: str, event: Event) -> bool:
    match event.data:
        case NodeLeft():
            return event.data.name == name
        case NodeChanged(node=node):
            return node.name == name and not node.is_ready
        case _:
            return False


def _status(status: api.Object) -> api.Object:
    return {key: status[key] for key in ("capacity", "allocatable", "conditions")}


def _at(laps: Sequence[float], percent: float) -> float:
    return float(np.percentile(laps, percent))
