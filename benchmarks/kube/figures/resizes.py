"""How many writes to a job's object a resize takes, as the API server counts them.

A pod of somebody else takes the GPUs of a node and gives them back, so that the one job shrinks and grows.
"""

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.kube.figures.idle import counted
from benchmarks.kube.jobs_plane import JobsStage, jobs_plane
from benchmarks.kube.options import Options
from benchmarks.kube.replica import serving
from benchmarks.kube.tail import Tail
from benchmarks.table import Row
from tests.kube import client as api
from tests.kube.objects import a_pod, an_indexed_job
from voda.events.types import PlanAdopted

TITLE = "resizes of an Indexed Job, 2 kwok nodes"
_TRIES = 6
_QUIET_S = 2.0


async def run(options: Options) -> Sequence[Row]:
    """Return the writes of jobs while one job is resized, and what it took in time."""
    tries = options.scaled(_TRIES, 2)
    with tempfile.TemporaryDirectory(prefix="voda-bench-") as folder:
        log = str(Path(folder) / "voda.db")
        async with jobs_plane(2) as world:
            with serving(world.plane, Path(folder) / "one", log) as replica:
                await replica.until_leads()
                async with Tail(log) as tail:
                    job = an_indexed_job("a", world.namespace, 1, least=1, most=16, suspend=True, pool="v100")
                    await world.client.create(api.JOBS, job)
                    await _until_runs(world, 16)
                    await tail.rested(_QUIET_S)
                    before, resizes = await _writes(world), 0
                    for number in range(tries):
                        resizes += await _resized_twice(world, tail, number)
                    writes = await _writes(world) - before
    return [
        Row(what=f"writes to the Job, per resize of {resizes}", figure=writes / resizes, unit="", goal=1),
    ]


async def _resized_twice(world: JobsStage, tail: Tail, number: int) -> int:
    """Have the job shrink and grow again, and return by how many plans."""
    await tail.new()
    name = f"other-{number}"
    await world.client.create(api.PODS, a_pod(name, world.namespace, node="v100-0001", gpus=8))
    await _until_runs(world, 8)
    await tail.rested(_QUIET_S)
    await world.client.delete(api.PODS, name, world.namespace, grace_s=0)
    await _until_runs(world, 16)
    plans = sum(isinstance(event.data, PlanAdopted) for event in await tail.new())
    await tail.rested(_QUIET_S)
    return max(2, plans)


async def _writes(world: JobsStage) -> int:
    return (await asyncio.to_thread(counted, world.plane))["PATCH jobs"]


async def _until_runs(world: JobsStage, workers: int) -> None:
    async def runs() -> bool:
        return len(await world.running("a")) == workers

    await world.until_it_is(runs)
