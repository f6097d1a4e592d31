"""The memory of a `voda serve` that mirrors 1,000 nodes and 10,000 pods: at rest, and while it lists them anew."""

import asyncio
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.kube.options import Options
from benchmarks.kube.plane import control_plane
from benchmarks.kube.replica import Replica, serving
from benchmarks.kube.seeding import add_nodes, add_running_pods, in_parallel, nodes
from benchmarks.table import Row
from tests.kube import client as kube
from tests.kube.client import Client, Object
from tests.kube.objects import a_pod
from voda.cluster.kubernetes import well_known

TITLE = "memory of voda serve, 1,000 nodes, 10,000 pods"
_NODES = 1_000
_PODS = 10_000
_NAMESPACES = 20
_RELIST_S = 15.0
_REST_S = 10.0
_RELISTS_S = 40.0
"""Within which each collection is listed anew at least twice."""
_LOOK_S = 0.05
MIB = 2**20

Held = tuple[int, int]
"""Bytes of the main process, and of those that it has started."""


async def run(options: Options) -> Sequence[Row]:
    """Return what is held, PSS, MiB."""
    count, pods = options.scaled(_NODES, 10), options.scaled(_PODS, 100)
    with tempfile.TemporaryDirectory(prefix="voda-bench-") as folder, control_plane() as plane:
        async with Client(plane) as client:
            await _fill(client, count, pods)
        # A list that finds the mirror right only compares names; what the watch missed is listed as a whole.
        settings = {"cluster": {"defaultPool": "", "relistSeconds": _RELIST_S}}
        with serving(plane, Path(folder) / "one", str(Path(folder) / "voda.db"), settings=settings) as replica:
            reading = await _most_while(replica, lambda: replica.leads)
            await asyncio.sleep(_REST_S)
            rest = replica.held_bytes()
            relisting = await _most_while(replica, _after(_RELISTS_S))
            peak = _peak_bytes(replica)
    return list(_rows(rest, relisting, reading, peak))


def _rows(rest: Held, relisting: Held, reading: Held, peak: int) -> Iterator[Row]:
    yield Row(what="memory at rest, all processes", figure=sum(rest) / MIB, unit="MiB", goal=400)
    yield Row(what="of that, the main process", figure=rest[0] / MIB, unit="MiB")
    yield Row(what="while relisting, most seen, all processes", figure=sum(relisting) / MIB, unit="MiB", goal=400)
    yield Row(what="while starting, most seen, all processes", figure=sum(reading) / MIB, unit="MiB")
    yield Row(what="main process, highest resident size ever", figure=peak / MIB, unit="MiB")


async def _most_while(replica: Replica, is_over: Callable[[], bool]) -> Held:
    """Return the most that is held at one time until something holds."""
    most = replica.held_bytes()
    while not is_over():
        if replica.process.poll() is not None:
            raise RuntimeError(f"voda serve ended; it said:\n{replica.text[-4000:]}")
        most = max(most, replica.held_bytes(), key=sum)
        await asyncio.sleep(_LOOK_S)
    return most


def _after(span_s: float) -> Callable[[], bool]:
    ends = time.perf_counter() + span_s
    return lambda: time.perf_counter() > ends


def _peak_bytes(replica: Replica) -> int:
    for line in Path(f"/proc/{replica.process.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("the process shows no memory")


async def _fill(client: Client, count: int, pods: int) -> None:
    """Add nodes, and pods of which half are workers as voda makes them ready and half are others'."""
    await in_parallel(
        [
            lambda number=number: client.create(kube.NAMESPACES, {"metadata": {"name": f"team-{number}"}})  # type: ignore[misc]
            for number in range(_NAMESPACES)
        ]
    )
    await add_nodes(client, nodes(count))
    made = (pod_of(each, f"v100-{each % count:04}", f"team-{each % _NAMESPACES}") for each in range(pods))
    await add_running_pods(client, made)


def pod_of(number: int, node: str, namespace: str) -> Object:
    """Return a pod on a node: a worker as voda makes it ready, or one of somebody else, by turns."""
    if number % 2:
        return a_pod(f"web-{number}", namespace, node=node, cpu="250m", memory="512Mi", labels={"app": "web"})
    job = f"job-{number // 16}"
    labels = {
        well_known.OPERATOR_JOB_NAME: job,
        well_known.OPERATOR_JOB_ROLE: "worker",
        "training.kubeflow.org/operator-name": "mpi-operator",
        "training.kubeflow.org/replica-index": str(number // 2 % 8),
        well_known.MANAGED: "true",
    }
    notes = {well_known.JOB_ID: f"{namespace}_{job}"}
    return a_pod(
        f"{job}-worker-{number // 2 % 8}",
        namespace,
        node=node,
        gpus=1,
        cpu="4",
        memory="16Gi",
        labels=labels,
        annotations=notes,
        spec={"hostname": f"{job}-worker-{number // 2 % 8}", "subdomain": job},
    )
