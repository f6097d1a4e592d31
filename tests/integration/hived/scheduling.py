"""HiveD's endpoints over a log in memory, on a real socket, and the pods of a cluster that is only a dictionary."""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import aiohttp
import msgspec

from tests.service import Answer, Service, a_backend
from tests.unit.hived.pods import a_group, a_pod
from voda.api.listener import serving
from voda.api.server import application
from voda.domain.errors import NotFound, WrongState
from voda.hived.pod_request import HivedPod, PodMetadata
from voda.log.memory import MemoryStore
from voda.operator.extender import Extender
from voda.operator.hived.pod_scheduler import PodScheduler
from voda.operator.hived.pod_watch import PodWatch
from voda.operator.pod_ports import PodPorts

NODES = {"n1": 4, "n2": 4, "n3": 4, "n4": 4}
TEAMS = """
virtualClusters:
  a: {cells: {node: 2}}
  b: {cells: {node: 2}, members: [team]}
"""


@dataclass
class MemoryPods:
    """The pods that there are, by `namespace/name`."""

    pods: dict[str, HivedPod] = field(default_factory=dict)
    nodes: dict[str, str] = field(default_factory=dict)
    woken: list[str] = field(default_factory=list)

    def create(self, name: str, **spec: Any) -> HivedPod:
        pod = self.pods[f"team/{name}"] = a_pod(name, **spec)
        return pod

    def gang(self, name: str, pods: int, leafs: int, **spec: Any) -> Sequence[HivedPod]:
        group = a_group(name, (pods, leafs))
        return [self.create(f"{name}-{n}", leafCellNumber=leafs, affinityGroup=group, **spec) for n in range(pods)]

    def delete(self, *pods: HivedPod) -> None:
        for pod in pods:
            del self.pods[pod.key]
            self.nodes.pop(pod.key, None)

    def uid(self, key: str) -> str:
        return self.pods[key].metadata.uid if key in self.pods else ""

    def bound(self) -> Iterable[tuple[HivedPod, str]]:
        return [(self.pods[key], node) for key, node in self.nodes.items()]

    def pending(self) -> Iterable[HivedPod]:
        return [pod for key, pod in self.pods.items() if key not in self.nodes]

    async def wake(self, key: str, uid: str, now: float) -> None:
        self.woken.append(key)

    async def bind(self, key: str, uid: str, node: str, annotations: Mapping[str, str]) -> None:
        if self.uid(key) != uid:
            raise NotFound(f"pod {key} ({uid}) is gone")
        if self.nodes.setdefault(key, node) != node:
            raise WrongState(f"pod {key} is bound to node {self.nodes[key]}, not to {node}")
        meta = self.pods[key].metadata
        notes = {**(meta.annotations or {}), **annotations}
        self.pods[key] = HivedPod(PodMetadata(meta.name, meta.namespace, meta.uid, notes))


@dataclass
class Scheduling:
    """A replica, and what kube-scheduler asks it."""

    service: Service
    scheduler: PodScheduler
    watch: PodWatch
    pods: MemoryPods

    async def ask(self, verb: str, body: Any, token: str = "") -> Answer:
        return await self.service.ask("POST", f"/v1/extender/{verb}", body=body, token=token)

    async def filter(self, pod: HivedPod, nodes: Iterable[str] = NODES) -> dict[str, Any]:
        answer = await self.ask("filter", {"Pod": pod, "Nodes": None, "NodeNames": list(nodes)})
        assert answer.status == 200, answer.body
        return dict(answer.json())

    async def node(self, pod: HivedPod) -> str:
        """Return the only node for a pod; empty: none."""
        return next(iter((await self.filter(pod))["NodeNames"]), "")

    async def reason(self, pod: HivedPod) -> str:
        """Return why there is no node."""
        answer = await self.filter(pod)
        assert not answer["NodeNames"]
        failed = {**answer["FailedNodes"], **answer["FailedAndUnresolvableNodes"]}
        return str(answer["Error"] or failed["n1"])

    async def bind(self, pod: HivedPod, node: str) -> str:
        """Return why a pod is not bound; empty: it is."""
        meta = pod.metadata
        body = {"PodName": meta.name, "PodNamespace": meta.namespace, "PodUID": meta.uid, "Node": node}
        answer = await self.ask("bind", body)
        assert answer.status == 200, answer.body
        return str(answer.json()["Error"])

    async def start(self, *pods: HivedPod) -> list[str]:
        """Filter and bind pods; return their nodes."""
        nodes = [await self.node(pod) for pod in pods]
        assert [await self.bind(pod, node) for pod, node in zip(pods, nodes, strict=True)] == [""] * len(pods)
        return nodes

    async def preempt(self, pod: HivedPod) -> dict[str, list[str]]:
        """Return node -> uids of the pods that must leave it."""
        considered = {node: {"Pods": [], "NumPDBViolations": 0} for node in NODES}
        answer = await self.ask("preempt", {"Pod": pod, "NodeNameToMetaVictims": considered})
        assert answer.status == 200, answer.body
        victims = answer.json()["NodeNameToMetaVictims"]
        return {node: [each["UID"] for each in found["Pods"]] for node, found in victims.items()}

    async def inspect(self, path: str) -> Any:
        answer = await self.service.ask("GET", f"/v1/inspect/{path}")
        assert answer.status == 200, answer.body
        return answer.json()

    async def facts(self) -> list[str]:
        """Return the types of the facts about gangs."""
        return [event.type for event in await self.service.backend.journal.store.read(0, 1000, stream="gangs.default")]


@asynccontextmanager
async def scheduling(
    pods: MemoryPods | None = None,
    store: MemoryStore | None = None,
    *,
    not_leading: Callable[[], str] = str,
    admin: str = "",
    **fields: Any,
) -> AsyncIterator[Scheduling]:
    """Yield a replica that leads, on a log to go on with or on an empty one with two virtual clusters of two nodes."""
    pods, is_new = pods or MemoryPods(), store is None
    async with a_backend(store, **{"nodes": NODES, **fields}) as backend:
        scheduler = PodScheduler(
            store=backend.journal.store,
            clock=backend.journal.clock,
            view=backend.journal.view,
            pods=pods,
            not_leading=not_leading,
        )
        backend.journal.view.subscribe(scheduler.see)
        app = application(replace(backend, pods=PodPorts(hived=Extender(scheduler))))
        async with (
            serving(app, "127.0.0.1", 0, limits=backend.limits) as url,
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session,
        ):
            service = Service(backend, url, session)
            watch = PodWatch(scheduler)
            if is_new:
                yaml = {"Content-Type": "application/yaml"}
                answer = await service.ask("PUT", "/api/v1/virtual-clusters", body=TEAMS, headers=yaml, token=admin)
                assert answer.status == 200, msgspec.json.decode(answer.body)
            await watch.adopt()
            scheduler.is_ready = True
            yield Scheduling(service, scheduler, watch, pods)
