"""How soon the workers of many Indexed Jobs run that are created at once, on 1,000 kwok nodes."""

import asyncio
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.kube.jobs_plane import JobsStage, jobs_plane
from benchmarks.kube.options import Options
from benchmarks.kube.replica import serving
from benchmarks.kube.shares import Shares
from benchmarks.table import Row
from tests.kube import client as api
from tests.kube.objects import an_indexed_job

TITLE = "320 workers of 40 Indexed Jobs to running, idle cluster of 1,000 kwok nodes"
_NODES = 1_000
_JOBS = 40
_WORKERS = 8


async def run(options: Options) -> Sequence[Row]:
    """Return the time from the first request of kubectl; the yardstick is the same Jobs without voda."""
    nodes, jobs = options.scaled(_NODES, 40), options.scaled(_JOBS, 4)
    with tempfile.TemporaryDirectory(prefix="voda-bench-") as folder:
        async with jobs_plane(nodes) as world:
            plain_s = await _lap(world, "plain", jobs, managed=False)
            log = str(Path(folder) / "voda.db")
            with serving(world.plane, Path(folder) / "one", log, program=options.program) as replica:
                await replica.until_leads()
                await asyncio.sleep(5.0)
                shares = Shares(world.plane, [replica])
                span_s = await _lap(world, "gated", jobs, managed=True)
                used = [*shares.rows(), _cost(shares, jobs)]
    what = f"{jobs * _WORKERS} workers of {jobs} jobs created to running"
    yardstick = f"the same Jobs without voda, in the same run ({plain_s:.2g} s)"
    goal = 10.0 if options.scale == 1.0 else None
    return [Row(what=what, figure=span_s, unit="s", goal=goal, yardstick=yardstick, ratio=span_s / plain_s), *used]


def _cost(shares: Shares, jobs: int) -> Row:
    return Row(what="CPU: voda, per job", figure=1e3 * shares.voda_s() / jobs, unit="ms")


async def _lap(world: JobsStage, prefix: str, jobs: int, *, managed: bool) -> float:
    """Create jobs at once, and return how long it took until all their workers ran; then delete them."""
    names = [f"{prefix}-{number}" for number in range(jobs)]
    bounds = {"least": _WORKERS, "most": _WORKERS} if managed else {}
    made = [
        an_indexed_job(name, world.namespace, _WORKERS, managed=managed, suspend=managed, pool="v100", **bounds)
        for name in names
    ]
    running, began = world.pods.running, time.perf_counter()
    await asyncio.gather(*(world.client.create(api.JOBS, job) for job in made))
    await world.pods.until(lambda: all(len(running.get(name, ())) == _WORKERS for name in names), "all workers run")
    span_s = max(at for name in names for at in running[name].values()) - began
    await asyncio.gather(*(world.client.delete(api.JOBS, name, world.namespace) for name in names))
    await world.pods.until_gone()
    return span_s
