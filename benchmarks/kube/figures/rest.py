"""What voda takes at rest: 1,000 kwok nodes with their heartbeats, 8,000 pods that run."""

import asyncio
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks.kube.figures.memory import MIB, pod_of
from benchmarks.kube.jobs_plane import JobsStage, jobs_plane
from benchmarks.kube.options import Options
from benchmarks.kube.replica import serving
from benchmarks.kube.seeding import in_parallel
from benchmarks.kube.shares import Shares
from benchmarks.table import Row
from tests.kube import client as api
from tests.kube.operators.base import phase_of

TITLE = "voda at rest, 1,000 kwok nodes, 8,000 pods"
_NODES = 1_000
_PODS = 8_000
_SETTLE_S = 20.0
_SPAN_S = 60.0


async def run(options: Options) -> Sequence[Row]:
    """Return the share of a core, and the memory of all its processes (PSS)."""
    nodes, pods = options.scaled(_NODES, 10), options.scaled(_PODS, 80)
    with tempfile.TemporaryDirectory(prefix="voda-bench-") as folder:
        async with jobs_plane(nodes) as world:
            await _fill(world, nodes, pods)
            with serving(world.plane, Path(folder) / "one", str(Path(folder) / "voda.db")) as replica:
                await replica.until_leads()
                await asyncio.sleep(_SETTLE_S)
                shares, began = Shares(world.plane, [replica], rest="this benchmark"), time.perf_counter()
                await asyncio.sleep(_SPAN_S)
                voda_s, span_s = shares.voda_s(), time.perf_counter() - began
                held = sum(replica.held_bytes())
    return [
        Row(what="CPU: voda", figure=100 * voda_s / span_s, unit="% of a core", goal=3),
        Row(what="memory, all processes", figure=held / MIB, unit="MiB", goal=350),
    ]


async def _fill(world: JobsStage, nodes: int, pods: int) -> None:
    """Add pods that name their nodes, half of them workers, and wait until kwok has them run."""
    made = [pod_of(number, f"v100-{number % nodes:04}", world.namespace) for number in range(pods)]
    await in_parallel([partial(world.client.create, api.PODS, pod) for pod in made])
    objects = world.pods.mirror.objects
    await world.pods.until(lambda: sum(map(_runs, objects.values())) == pods, f"{pods} pods run")


def _runs(pod: api.Object) -> bool:
    return phase_of(pod) == "Running"
