"""A whole cluster in memory, on virtual time: the stand-ins of a real one's tests, and replicas of voda on top.

Rules: everything that is drawn is drawn from one seed; what must never be, whatever happens, is looked for at every
change (`breaches`).
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from tests.kube.client import NODES, PODS, Client, Object, key_of
from tests.kube.kubelet import Kubelet
from tests.kube.memory_api import MemoryApi, MemoryClient, Wire
from tests.kube.memory_controllers import Controllers, gpus_of, held_gpus
from tests.kube.memory_server import Change, MemoryServer
from tests.kube.mirrored import is_mirrored
from tests.kube.objects import GPU
from tests.kube.operators.base import Operator
from tests.kube.stand_in_world import StandInWorld
from tests.virtual_time import now_s
from voda.app.kubernetes.options import KubernetesOptions, ReplicaContext
from voda.app.kubernetes.service import KubernetesService
from voda.clock import SystemClock
from voda.cluster.kubernetes.well_known import JOB_ID, MANAGED
from voda.domain.rng import rng_at
from voda.log.memory import MemoryStore
from voda.telemetry.prometheus import PrometheusTelemetry

START_S: Final = 1_700_000_000.0
POOL: Final = "v100"


def wall_s() -> float:
    """Return the virtual time of day."""
    return START_S + now_s()


class CountingClock(SystemClock):
    """Virtual time, ahead of that of the cluster or behind it, and ids that count."""

    def __init__(self, prefix: str, skew_s: float = 0.0) -> None:
        super().__init__(wall=lambda: wall_s() + skew_s, steady=wall_s)
        self.prefix = prefix
        self._ids = 0

    def new_id(self) -> str:
        """Return the next number."""
        self._ids += 1
        return f"{self.prefix}-{self._ids}"


class StrictKubelet(Kubelet):
    """Refuses pods for which its node has no GPUs left, as device plugins do."""

    def __init__(self, server: MemoryServer, client: Client) -> None:
        super().__init__(client, start_delay_s=0.3, grace_s=1.0)
        self._server = server

    async def _start(self, pod: Object, life: Any) -> None:
        node = self._server.objects[NODES].get(("", pod["spec"]["nodeName"]))
        offered = int(node["status"]["allocatable"].get(GPU, "0")) if node is not None else 0
        if gpus_of(pod) and held_gpus(self._server, pod["spec"]["nodeName"]) > offered:
            status = {"phase": "Failed", "reason": f"OutOf{GPU}", "message": "Node didn't have enough resource"}
            body = {"metadata": {"uid": life.uid}, "status": status}
            await self._client.patch(PODS, key_of(pod), body, "status")
        else:
            await super()._start(pod, life)


class Breaches:
    """Takes note of what must never be."""

    def __init__(self, server: MemoryServer) -> None:
        self.found: list[str] = []
        self._server = server

    def see(self, change: Change) -> None:
        """Look at a change."""
        if change.resource == PODS and change.type == "MODIFIED":
            self._see_pod(change.object)
        elif change.resource.api_version.startswith("kubeflow.org/"):
            self._see_objects(change.object["metadata"].get("annotations", {}).get(JOB_ID, ""))

    def _see_pod(self, pod: Object) -> None:
        node, job_id = pod["spec"].get("nodeName", ""), job_of(pod)
        if not job_id or not node:
            return
        mine = [each for each in self._server.objects[PODS].values() if job_of(each) and _is_held(each)]
        there = self._server.objects[NODES].get(("", node))
        taken = sum(gpus_of(each) for each in mine if each["spec"]["nodeName"] == node)
        if there is not None and taken > int(there["status"]["allocatable"].get(GPU, "0")):
            self.found.append(f"node {node} is over its GPUs: {[key_of(each) for each in mine]}")
        twice = Counter(each["metadata"]["name"].rpartition("-")[2] for each in mine if job_of(each) == job_id)
        if any(count > 1 for count in twice.values()):
            self.found.append(f"job {job_id} runs twice: {twice}")

    def _see_objects(self, job_id: str) -> None:
        running = [
            key_of(each)
            for resource, there in self._server.objects.items()
            if resource.api_version.startswith("kubeflow.org/")
            for each in there.values()
            if each["metadata"].get("annotations", {}).get(JOB_ID) == job_id
            and not each["spec"].get("runPolicy", {}).get("suspend")
        ]
        if job_id and len(running) > 1:
            self.found.append(f"job {job_id} has several objects that run: {running}")


class MemoryWorld(StandInWorld):
    """See the module.

    Args:
        seed: of all that is drawn.
        operators: classes of stand-ins.
        wire: of the stand-ins.
        server: class of the API server.
    """

    def __init__(
        self,
        seed: int,
        operators: Sequence[type[Operator]],
        wire: Wire | None = None,
        *,
        server: type[MemoryServer] = MemoryServer,
    ) -> None:
        self.seed = seed
        self.server = server(wall_s, [operator.resource for operator in operators])
        self.client = MemoryClient(self.server, wire)
        self.kubelet = StrictKubelet(self.server, self.client)
        self.operators = [operator(self.client) for operator in operators]
        self.kinds = [operator.resource for operator in operators]
        self.namespace = "ns"
        self.store = MemoryStore()
        self.breaches = Breaches(self.server)
        self.server.on_change = self.breaches.see
        self._controllers = Controllers(self.server, self.client, rng_at(seed, "controllers"))
        self._namespaces = ["default"]
        self._replicas = 0

    def replica(
        self,
        wire: Wire,
        pools: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        skew_s: float = 0.0,
        **settings: Any,
    ) -> "Replica":
        """Return another replica of voda on this cluster, which does not run yet."""
        self._replicas += 1
        clock = CountingClock(f"replica-{self._replicas}", skew_s)
        return Replica(self, clock, wire, {"pools": pools or {POOL: {"ratelimitSeconds": 0.0}}, **settings})

    def workers(self) -> Sequence[Object]:
        """Return all pods that voda places."""
        return [pod for pod in self.server.objects[PODS].values() if job_of(pod)]

    def _parts(self) -> str:
        return "the API server is in memory"

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(super()._run())
            tasks.create_task(self._controllers.run())


class Replica:
    """One replica: voda's service as composed, without its HTTP server; when its block ends, mirrors are right."""

    def __init__(self, world: MemoryWorld, clock: CountingClock, wire: Wire, settings: Mapping[str, Any]) -> None:
        fields = {
            "cluster": {"defaultPool": "", "relistSeconds": 60.0},
            "leader": {"namespace": world.namespace},
            **settings,
        }
        self.wire = wire
        self._world = world
        self.service = KubernetesService(
            msgspec.convert(fields, KubernetesOptions),
            ReplicaContext(identity=clock.prefix, namespace=world.namespace, has_tokens=False),
            store=world.store,
            api=MemoryApi(world.server, wire),
            clock=clock,
            telemetry=PrometheusTelemetry(),
        )
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and not self.wire.is_down:
                await self._world.until_it_is(lambda: is_mirrored(self.service))
        finally:
            await self.stop()

    async def stop(self) -> None:
        """End it as SIGTERM does."""
        assert self._task is not None
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def kill(self) -> None:
        """End it as SIGKILL does: nothing it would still say is heard."""
        self.wire.is_down = True
        await self.stop()

    def check(self) -> None:
        """Fail if it has ended by itself."""
        if self._task is not None and self._task.done():
            self._task.result()

    async def _run(self) -> None:
        service = self.service
        await service.view.open()
        service.view.subscribe(service.see)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(service.view.run())
            tasks.create_task(service.mirror.run())
            tasks.create_task(service.leadership.run(service.lead, service.pools.follow))


def job_of(pod: Object) -> str:
    """Return the id of the job that a pod is a worker of; empty for others."""
    notes = pod["metadata"].get("annotations", {})
    return str(notes.get(JOB_ID, "")) if MANAGED in pod["metadata"].get("labels", {}) else ""


def _is_held(pod: Object) -> bool:
    return bool(pod["spec"].get("nodeName")) and pod["status"]["phase"] not in ("Succeeded", "Failed")
