"""How many gates of pods a second voda lifts, beside a bare loop of the same requests over aiohttp in the same run."""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial

import aiohttp
import msgspec

from benchmarks.kube.options import Options
from benchmarks.kube.plane import control_plane
from benchmarks.kube.seeding import add_nodes, in_parallel, nodes
from benchmarks.kube.shares import Shares
from benchmarks.table import Row
from tests.kube import client as kube
from tests.kube.client import Client
from tests.kube.control_plane import ADMIN, ControlPlane
from tests.kube.objects import GPU, a_pod
from voda.clock import SystemClock
from voda.cluster.kubernetes import well_known
from voda.cluster.kubernetes.convergence.gates import GateLifter
from voda.cluster.kubernetes.convergence.refusals import RefusalReports
from voda.cluster.kubernetes.objects import NodeObject, Pod
from voda.cluster.kubernetes.state.inventory import Inventory
from voda.cluster.kubernetes.state.nodes import PoolRule
from voda.kubernetes_client.api import Api
from voda.metrics import NO_TELEMETRY

TITLE = "lifting the gates of worker pods"
_ROUNDS = 10
_JOBS = 32
"""Of a round: as many as voda works on at a time."""
_WORKERS = 8
_GOAL_PER_S = 150.0
_GOAL_SHARE = 0.8

Target = tuple[Pod, str]
"""A pod and the node it shall go to."""


async def run(options: Options) -> Sequence[Row]:
    """Return pods/s of the lifter and of the bare loop, in turns."""
    rounds = options.scaled(_ROUNDS, 2)
    with control_plane() as plane:
        async with Client(plane) as client, _api(plane) as api:
            await add_nodes(client, nodes(rounds * _JOBS))
            jobs = [f"job-{number}" for number in range(2 * rounds * _JOBS)]
            await in_parallel([partial(_add_workers, client, job_id) for job_id in jobs])
            inventory = await _inventory(api)
            refusals = RefusalReports(inventory, SystemClock(), lambda job_id, fact: None, telemetry=NO_TELEMETRY)
            lifter = GateLifter(inventory, api, refusals, telemetry=NO_TELEMETRY)
            shares = Shares(plane, [], rest="the lifter, the bare loop, in one process")
            rates = await _rates(plane, inventory, lifter, jobs)
            await _refuse_gated(api)
            return [*_rows(rates), *shares.rows()]


def _rows(rates: dict[str, list[float]]) -> Sequence[Row]:
    voda, bare = (sorted(rates[who])[len(rates[who]) // 2] for who in ("voda", "bare"))
    goal = min(_GOAL_PER_S, _GOAL_SHARE * bare)
    at_once = f"{_JOBS} jobs of {_WORKERS} pods at a time"
    return [
        Row(
            what=f"gates lifted by voda, {at_once}, median of {len(rates['voda'])} rounds",
            figure=voda,
            unit="/s",
            goal=goal,
            better="higher",
            yardstick=f"bare PATCH of the pods, as many at a time ({bare:,.0f}/s)",
            ratio=voda / bare,
        )
    ]


async def _rates(
    plane: ControlPlane, inventory: Inventory, lifter: GateLifter, jobs: list[str]
) -> dict[str, list[float]]:
    rates: dict[str, list[float]] = {"voda": [], "bare": []}
    async with _session(plane) as session:
        ways: dict[str, Callable[[str, Sequence[Target]], Awaitable[object]]] = {
            "voda": partial(_by_voda, lifter),
            "bare": partial(_bare, session),
        }
        for number, first in enumerate(range(0, len(jobs), _JOBS)):
            who = ("voda", "bare")[number % 2]
            targets = _targets(inventory, jobs[first : first + _JOBS], first_node=first // 2 // _JOBS * _JOBS)
            rates[who].append(await _rate(targets, ways[who]))
    return rates


async def _rate(
    targets: dict[str, Sequence[Target]], lift: Callable[[str, Sequence[Target]], Awaitable[object]]
) -> float:
    """Lift the gates of all pods of some jobs, and return pods/s."""
    began = time.perf_counter()
    await asyncio.gather(*(lift(job_id, each) for job_id, each in targets.items()))
    return sum(map(len, targets.values())) / (time.perf_counter() - began)


def _targets(inventory: Inventory, jobs: Sequence[str], first_node: int) -> dict[str, Sequence[Target]]:
    """Return the workers of each job and their node, which no other job has."""
    return {
        job_id: [(pod, f"v100-{number:04}") for pod in inventory.workers(job_id).values()]
        for number, job_id in enumerate(jobs, first_node)
    }


async def _by_voda(lifter: GateLifter, job_id: str, targets: Sequence[Target]) -> None:
    await lifter.lift(job_id, targets)


async def _bare(session: aiohttp.ClientSession, job_id: str, targets: Sequence[Target]) -> None:
    await asyncio.gather(*(_patch(session, pod, node) for pod, node in targets))


async def _patch(session: aiohttp.ClientSession, pod: Pod, node: str) -> None:
    meta = pod.metadata
    body = {
        "metadata": {"uid": meta.uid, "annotations": {well_known.NODE: node}},
        "spec": {"schedulingGates": [], "nodeSelector": {well_known.HOSTNAME: node}},
    }
    path = f"/api/v1/namespaces/{meta.namespace}/pods/{meta.name}"
    headers = {"Content-Type": "application/merge-patch+json"}
    async with session.patch(path, data=msgspec.json.encode(body), headers=headers) as answer:
        if answer.status != 200:
            raise RuntimeError(f"a patch was answered with {answer.status}: {await answer.text()}")
        await answer.read()


async def _add_workers(client: Client, job_id: str) -> None:
    for index in range(_WORKERS):
        await client.create(kube.PODS, _worker(job_id, index))


def _worker(job_id: str, index: int) -> kube.Object:
    """Return a worker's pod as operators make it from a template that voda made ready; ended ones hold nothing."""
    labels = {well_known.OPERATOR_JOB_NAME: job_id, well_known.OPERATOR_JOB_ROLE: "worker", well_known.MANAGED: "true"}
    return a_pod(
        f"{job_id}-worker-{index}",
        "default",
        gpus=1,
        cpu="1",
        memory="1Gi",
        labels=labels,
        annotations={well_known.JOB_ID: job_id},
        spec={"schedulingGates": [{"name": well_known.GATE}]},
    )


async def _inventory(api: Api) -> Inventory:
    rule = PoolRule(label="vodascheduler/accelerator", resource=GPU, default_pool="", tolerated_taints=())
    inventory = Inventory(rule, lambda job_id: None)
    for node in (await api.list("/api/v1/nodes", NodeObject)).items:
        inventory.put_node(node.metadata.name, node)
    for pod in (await api.list("/api/v1/pods", Pod)).items:
        inventory.put_pod(pod.metadata.key, pod)
    return inventory


async def _refuse_gated(api: Api) -> None:
    gated = [pod for pod in (await api.list("/api/v1/pods", Pod)).items if pod.gates]
    if gated:
        raise RuntimeError(f"{len(gated)} pods are gated still, e.g. {gated[0].metadata.key}")


@asynccontextmanager
async def _api(plane: ControlPlane) -> AsyncIterator[Api]:
    api = await Api.open(plane.kubeconfig())
    try:
        yield api
    finally:
        await api.close()


@asynccontextmanager
async def _session(plane: ControlPlane) -> AsyncIterator[aiohttp.ClientSession]:
    trusting = ssl.create_default_context(cafile=str(plane.certificate))
    trusting.check_hostname = False
    headers = {"Authorization": f"Bearer {ADMIN}", "Content-Type": "application/json"}
    # As many connections as the client of voda opens.
    connector = aiohttp.TCPConnector(ssl=trusting, limit=100)
    async with aiohttp.ClientSession(plane.url, headers=headers, connector=connector) as session:
        yield session
