"""Asks the real kube-scheduler whether it puts workers where plans have them, of clusters drawn by chance.

Each worker becomes a pod that may go to its planned node alone, as voda lets it go. Many clusters share one control
plane, without controllers and kubelets: their nodes are of pools, and pods, of their own.

Rule: the plans are made by the code of the product, from the objects that the API server shows.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tests.builders import a_state
from tests.decisions import decide
from tests.kube import client as api
from tests.kube.client import Client, Object
from tests.kube.drawn_clusters import DrawnCluster, drawn_cluster
from tests.kube.objects import GPU, POOL
from tests.waiting import pauses
from voda.cluster.kubernetes.kinds.template import GPU_TAINTS, placed_by_voda
from voda.cluster.kubernetes.objects import NodeObject, Pod
from voda.cluster.kubernetes.state.inventory import Inventory
from voda.cluster.kubernetes.state.nodes import PoolRule
from voda.domain.job import Job, JobSpec, Phase
from voda.domain.node import Node
from voda.domain.plan import Placement, Plan
from voda.domain.state import ClusterState
from voda.manifests.parse import parse
from voda.placement import PLACERS
from voda.policies import POLICIES

_AT_ONCE = 16
_HOST = "kubernetes.io/hostname"
_WITHIN_S = 300.0
_SETTLED_S = 3.0
"""A pod that is refused for so long is not bound in a moment: kube-scheduler had not seen its node yet."""
_PLACERS = ("steady", "packed")


class Verdict(Struct):
    """What came of the draws."""

    clusters: int = 0
    planned: int = 0
    """Workers that plans put on nodes."""
    refused: list[str] = []
    """Those of them that kube-scheduler does not bind there, with its words."""
    impossible: int = 0
    """Newcomers of which kube-scheduler binds no worker anywhere, even without the other jobs."""
    disturbed: list[str] = []
    """Workers of others that a plan stopped or moved for such a newcomer, and that stay without it."""

    def add(self, other: "Verdict") -> None:
        """Count another one too."""
        self.clusters += other.clusters
        self.planned += other.planned
        self.refused += other.refused
        self.impossible += other.impossible
        self.disturbed += other.disturbed


class Pool:
    """One drawn cluster, as voda sees it."""

    def __init__(self, seed: int, drawn: DrawnCluster, placer: str) -> None:
        self.seed = seed
        self.drawn = drawn
        self.specs = {spec.job_id: spec for spec in map(_spec, drawn.jobs)}
        self.newcomer = _spec(drawn.newcomer)
        self._placer = PLACERS[placer]
        self.nodes: Mapping[str, Node] = {}

    def see(self, nodes: Iterable[Object], pods: Iterable[Object]) -> None:
        """Take in what the API server shows of its nodes, and of others' pods."""
        inventory = Inventory(PoolRule(), lambda _: None)
        for node in nodes:
            inventory.put_node(node["metadata"]["name"], msgspec.convert(node, NodeObject))
        for pod in pods:
            inventory.put_pod(pod["metadata"]["name"], msgspec.convert(pod, Pod))
        self.nodes = inventory.stock.pool_nodes(self.drawn.pool)

    def first_plan(self) -> Plan:
        """Return where the jobs go."""
        return self._decide([_job(spec, ()) for spec in self.specs.values()], {})

    def second_plan(self, at_work: Placement, *newcomers: JobSpec) -> Plan:
        """Return where all go, the others being at work: once newcomers have come, or without them."""
        jobs = [_job(spec, at_work.get(spec.job_id, ())) for spec in self.specs.values()]
        return self._decide([*jobs, *(_job(spec, ()) for spec in newcomers)], at_work)

    def _decide(self, jobs: Sequence[Job], placement: Placement) -> Plan:
        state: ClusterState = a_state(jobs=jobs, nodes=self.nodes.values(), placement=placement)
        return decide(state, POLICIES["elastic-fifo"], self._placer, 100.0, cause="test")

    def pods(self, placement: Placement) -> dict[str, Object]:
        """Return the workers of a plan as pods, by name; a name says where."""
        manifests = {job["metadata"]["name"]: job for job in (*self.drawn.jobs, self.drawn.newcomer)}
        found = (
            _worker(manifests[job_id], index, {_HOST: node})
            for job_id, nodes in placement.items()
            for index, node in enumerate(nodes)
        )
        return {pod["metadata"]["name"]: pod for pod in found}


def pool_of(seed: int, placer: str) -> Pool:
    """Draw a cluster, as voda sees it where no API server has added anything."""
    drawn = drawn_cluster(seed, "drawn")
    pool = Pool(seed, drawn, placer)
    pool.see(drawn.nodes, drawn.others)
    return pool


async def asked(client: Client, seeds: Sequence[int], namespace: str) -> Verdict:
    """Draw clusters by seed, make plans of them, and return what kube-scheduler says of these.

    The control plane is left with their nodes and pods gone; the namespace exists.
    """
    pools = [Pool(seed, drawn_cluster(seed, namespace), _PLACERS[seed % len(_PLACERS)]) for seed in seeds]
    verdict = Verdict(clusters=len(pools))
    try:
        await _fill(client, pools)
        await _show(client, pools, namespace)
        impossible = await _impossible(client, pools, namespace)
        plans = {pool.seed: pool.first_plan() for pool in pools}
        first = {name: pod for pool in pools for name, pod in pool.pods(plans[pool.seed].placement).items()}
        refused = await _refused(client, first, namespace)
        verdict.planned, verdict.refused = len(first), [f"{name}: {said}" for name, said in sorted(refused.items())]
        # Where a worker is missing, there is no telling what the next plan is for.
        sound = [pool for pool in pools if not any(f"{pool.seed}-" in name for name in refused)]
        await _second(client, {pool: plans[pool.seed].placement for pool in sound}, (impossible, namespace), verdict)
    finally:
        await _sweep(client, pools, namespace)
    return verdict


async def _second(
    client: Client, at_work: Mapping[Pool, Placement], about: tuple[frozenset[int], str], verdict: Verdict
) -> None:
    """Let the newcomers come."""
    impossible, namespace = about
    before: dict[str, Object] = {}
    after: dict[str, Object] = {}
    for pool, placement in at_work.items():
        now = pool.second_plan(placement, pool.newcomer).placement
        before |= (held := pool.pods(placement))
        after |= (wanted := pool.pods(now))
        if pool.seed in impossible:
            verdict.impossible += 1
            stay = pool.pods(pool.second_plan(placement).placement)
            verdict.disturbed += sorted((held.keys() & stay.keys()) - wanted.keys())
    gone = [(name, 0) for name in before.keys() - after.keys()]
    await _in_parallel(lambda each: client.delete(api.PODS, each[0], namespace, grace_s=each[1]), gone)
    new = {name: pod for name, pod in after.items() if name not in before}
    refused = await _refused(client, new, namespace)
    verdict.planned += len(new)
    verdict.refused += [f"{name}: {said}" for name, said in sorted(refused.items())]


async def _fill(client: Client, pools: Iterable[Pool]) -> None:
    async def add_node(node: Object) -> None:
        await client.create(api.NODES, node)
        # The server taints whatever is new as not ready.
        await client.patch(api.NODES, node["metadata"]["name"], {"spec": {"taints": node["spec"]["taints"]}})

    async def add_pod(pod: Object) -> None:
        made = await client.create(api.PODS, pod)
        if status := pod.get("status"):
            await client.patch(api.PODS, api.key_of(made), {"status": status}, "status")

    pools = list(pools)
    await _in_parallel(add_node, [node for pool in pools for node in pool.drawn.nodes])
    await _in_parallel(add_pod, [pod for pool in pools for pod in pool.drawn.others])


async def _show(client: Client, pools: Iterable[Pool], namespace: str) -> None:
    nodes = await client.list(api.NODES)
    pods = await client.list(api.PODS, namespace)
    for pool in pools:
        own = [node for node in nodes if node["metadata"]["labels"].get(POOL) == pool.drawn.pool]
        names = {node["metadata"]["name"] for node in own}
        pool.see(own, [pod for pod in pods if pod["spec"].get("nodeName") in names])


async def _impossible(client: Client, pools: Iterable[Pool], namespace: str) -> frozenset[int]:
    """Return the draws of whose newcomer no node takes a worker."""
    probes = {
        pod["metadata"]["name"]: (pool.seed, pod)
        for pool in pools
        for pod in [_worker(pool.drawn.newcomer, 0, {POOL: pool.drawn.pool})]
    }
    refused = await _refused(client, {name: pod for name, (_, pod) in probes.items()}, namespace)
    await _in_parallel(lambda name: client.delete(api.PODS, name, namespace, grace_s=0), list(probes))
    return frozenset(probes[name][0] for name in refused)


async def _refused(client: Client, pods: Mapping[str, Object], namespace: str) -> Mapping[str, str]:
    """Create pods, and return those that kube-scheduler does not bind, with its words."""
    await _in_parallel(lambda pod: client.create(api.PODS, pod), list(pods.values()))
    pause_s = pauses(0.1)
    async with asyncio.timeout(_WITHIN_S):
        while _open(found := await _own(client, pods, namespace)):  # noqa: ASYNC110 - it has to be asked for
            await asyncio.sleep(next(pause_s))
    if any(map(_words, found)):
        await asyncio.sleep(_SETTLED_S)
        found = await _own(client, pods, namespace)
    return {pod["metadata"]["name"]: words for pod in found if (words := _words(pod))}


async def _own(client: Client, pods: Mapping[str, Object], namespace: str) -> list[Object]:
    return [pod for pod in await client.list(api.PODS, namespace) if pod["metadata"]["name"] in pods]


def _open(found: Iterable[Object]) -> bool:
    return any(not pod["spec"].get("nodeName") and not _words(pod) for pod in found)


def _words(pod: Object) -> str:
    """Return why a pod is not bound; empty: it is, or it is not known yet."""
    conditions = pod.get("status", {}).get("conditions", ())
    told = (each.get("message", "") for each in conditions if each["type"] == "PodScheduled")
    return "" if pod["spec"].get("nodeName") else next(told, "")


async def _sweep(client: Client, pools: Iterable[Pool], namespace: str) -> None:
    await client.delete_all(api.PODS, namespace)
    names = [node["metadata"]["name"] for pool in pools for node in pool.drawn.nodes]
    await _in_parallel(lambda name: client.delete(api.NODES, name), names)


def _worker(manifest: Object, index: int, selector: Mapping[str, str]) -> Object:
    """Return a worker as voda makes it ready and lets it go."""
    job_id = manifest["metadata"]["name"]
    template = placed_by_voda(manifest["spec"]["template"], job_id, GPU_TAINTS)
    spec: dict[str, Any] = dict(template["spec"])
    spec["nodeSelector"] = {**spec.get("nodeSelector", {}), **selector}
    name = f"{job_id}-{index}-{next(iter(selector.values()))}"
    return {"metadata": {"name": name, "namespace": manifest["metadata"]["namespace"]}, "spec": spec}


def _spec(manifest: Object) -> JobSpec:
    spec = parse(manifest, gpu_resource=GPU).spec
    return replace(spec, job_id=manifest["metadata"]["name"])


def _job(spec: JobSpec, nodes: Sequence[str]) -> Job:
    phase = Phase.RUNNING if nodes else Phase.WAITING
    return Job(spec=spec, submitted_at=0.0, counted_at=0.0, phase=phase, workers=dict(enumerate(nodes)))


async def _in_parallel(work: Callable[[Any], Awaitable[object]], items: Sequence[Any]) -> None:
    queue = iter(items)

    async def each() -> None:
        for item in queue:
            await work(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(_AT_ONCE):
            group.create_task(each())
