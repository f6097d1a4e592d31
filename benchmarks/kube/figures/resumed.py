"""How fast suspended jobs that are created at once are adopted, planned and resumed, on 1,000 nodes.

The Job controller and kube-scheduler do not run: what they do after a Job is resumed would take the same two cores.
"""

import asyncio
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.kube.options import Options
from benchmarks.kube.plane import Stage, control_plane
from benchmarks.kube.replica import serving
from benchmarks.kube.requests import Requests
from benchmarks.kube.seeding import add_nodes, in_parallel, nodes
from benchmarks.kube.shares import Shares
from benchmarks.table import Row
from tests.kube import client as api
from tests.kube.client import Object
from tests.kube.mirror import Mirror
from tests.kube.objects import an_indexed_job

TITLE = "suspended rigid jobs of 4 GPUs created at once, 1,000 nodes"
_NODES = 1_000
_JOBS = 500
_GPUS = 4
_WITHIN_S = 300.0


async def run(options: Options) -> Sequence[Row]:
    """Return the rate at which they are resumed, as a watch shows it."""
    count, jobs = options.scaled(_NODES, 10), options.scaled(_JOBS, 5)
    with tempfile.TemporaryDirectory(prefix="voda-bench-") as folder, control_plane() as plane:
        async with Stage(plane, []) as world:
            await add_nodes(world.client, nodes(count))
            log = str(Path(folder) / "voda.db")
            with serving(plane, Path(folder) / "one", log, program=options.program) as replica:
                await replica.until_leads()
                requests, shares = Requests(plane), Shares(plane, [replica])
                replica.measure()
                created, resumed = await _resumed(world, jobs)
                costs = [
                    Row(what="CPU: voda, per job", figure=1e3 * shares.voda_s() / jobs, unit="ms", goal=5),
                    Row(what="CPU: all parts, per job", figure=1e3 * shares.total_s() / jobs, unit="ms"),
                ]
                return [*_rows(created, resumed), *costs, *shares.rows(), *requests.rows(jobs)]


def _rows(created: dict[str, float], resumed: dict[str, float]) -> Sequence[Row]:
    jobs, span_s = len(resumed), max(resumed.values()) - min(created.values())
    waits = [resumed[name] - created[name] for name in resumed]
    making_s = max(created.values()) - min(created.values())
    return [
        Row(
            what=f"{jobs} jobs resumed, from the first that was created",
            figure=jobs / span_s,
            unit="/s",
            goal=140,
            better="higher",
            yardstick=f"creating them alone, 64 at a time ({jobs / making_s:.0f}/s)",
            ratio=making_s / span_s,
        ),
        Row(what="a job created to resumed, p50", figure=float(np.median(waits)), unit="s", goal=1.5),
        Row(what="the same, p95", figure=float(np.percentile(waits, 95)), unit="s"),
    ]


async def _resumed(world: Stage, jobs: int) -> tuple[dict[str, float], dict[str, float]]:
    """Create the jobs, and return when each was created and when it was resumed, as a watch shows it."""
    created: dict[str, float] = {}
    resumed: dict[str, float] = {}
    done = asyncio.Event()

    def see(job: Object, is_there: bool) -> None:
        name, now = job["metadata"]["name"], time.perf_counter()
        created.setdefault(name, now)
        if not job["spec"].get("suspend"):
            resumed.setdefault(name, now)
        if len(resumed) == jobs:
            done.set()

    mirror = Mirror(world.client, api.JOBS)
    mirror.on_change = see
    following = asyncio.create_task(mirror.run())
    await mirror.is_synced.wait()
    made = [
        an_indexed_job(f"job-{number}", world.namespace, 1, least=1, most=1, gpus=_GPUS, suspend=True, pool="v100")
        for number in range(jobs)
    ]
    await in_parallel([partial(world.client.create, api.JOBS, job) for job in made], 64)
    async with asyncio.timeout(_WITHIN_S):
        await done.wait()
    following.cancel()
    return created, resumed
