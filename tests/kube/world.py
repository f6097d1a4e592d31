"""A whole cluster for one test: the control plane, kubelets, operators, and a hand of the tests' own.

Who plays kubelets and operators, the real world (`peers/world.py`) and the one of stand-ins (`stand_in_world.py`) say.

Rule: a world starts empty, whatever a test without one left on the control plane, and what it made is gone when it
ends; where kubelets or operators break, the test fails.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from types import TracebackType
from typing import Protocol, Self

import aiohttp

from tests.kube import client as api
from tests.kube.assets import IS_OLD
from tests.kube.client import Client, Object, Refused, Resource
from tests.kube.control_plane import ControlPlane
from tests.kube.objects import a_node, ready
from tests.kube.operators.base import JOB_NAME, JOB_ROLE, REPLICA_TYPE, labelled, phase_of
from tests.kube.operators.status import find_condition, has_condition
from tests.waiting import pauses, place_of

DEADLINE_S = 420.0
"""Far more than anything takes, even on a busy machine, whose Job controller waits 10, 20, 40 s after each conflict,
and five minutes for the pods of a Job whose name was used before."""
_PAUSE_S = 0.02
_CLAIMS = (api.CLAIM_TEMPLATES, api.CLAIMS)
_numbers = count(1)


class Kubelets(Protocol):
    """What a test asks of the kubelets."""

    async def exit(self, namespace: str, name: str, exit_code: int = 0) -> None:
        """End the program of a running pod; whether it is restarted is the pod's restartPolicy's matter."""
        ...

    async def evict(self, namespace: str, name: str) -> None:
        """End a pod as a kubelet does whose node runs out of memory."""
        ...


class World:
    """See the module.

    Args:
        plane: with the definitions of the operators' jobs.
        client: of its API server; the world opens and closes it.
        kinds: of the operators' jobs.
    """

    kubelet: Kubelets

    def __init__(self, plane: ControlPlane, client: Client, kinds: Sequence[Resource]) -> None:
        self.plane = plane
        self.client = client
        self.kinds = kinds
        self.namespace = f"test-{next(_numbers)}"
        self._namespaces = ["default"]

    async def __aenter__(self) -> Self:
        await self.client.__aenter__()
        try:
            await self._sweep()
            await self._begin()
            await self.add_namespace(self.namespace)
        except BaseException as error:
            await self.__aexit__(type(error), error, None)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._end()
        finally:
            await self._sweep()
            await self.client.__aexit__(kind, error, trace)

    async def lose_node(self, node: str) -> None:
        """Let a node's kubelet die: nothing happens to its pods any more, not even when they are deleted."""
        raise NotImplementedError

    async def restore_node(self, node: str) -> None:
        """Let a node's kubelet come back, and see to its pods."""
        raise NotImplementedError

    async def add_nodes(self, *nodes: Object) -> None:
        """Add nodes (see `a_node`) that are ready at once."""
        async with asyncio.TaskGroup() as tasks:
            for node in nodes:
                tasks.create_task(self._add_node(node))

    async def add_node(self, name: str, gpus: int = 8, pool: str = "v100") -> None:
        """Add one ordinary node."""
        await self.add_nodes(a_node(name, gpus, pool))

    async def cordon(self, node: str, is_cordoned: bool = True) -> None:
        """Let nothing new come to a node, or let it come again."""
        await self.client.patch(api.NODES, node, {"spec": {"unschedulable": is_cordoned or None}})

    async def give_to_pool(self, node: str, pool: str) -> None:
        """Give a node to another pool: voda's workers leave it, and nobody evicts them."""
        await self.client.patch(api.NODES, node, {"metadata": {"labels": {"vodascheduler/accelerator": pool}}})

    async def set_ready(self, node: str, is_ready: bool) -> None:
        """Have a node's kubelet say that it is ready, or have it said that it is not."""
        await self.client.patch(api.NODES, node, {"status": {"conditions": [ready(is_ready)]}}, "status")

    async def remove_node(self, node: str) -> None:
        """Delete a node whose machine is there no more: nothing happens to its pods until somebody collects them."""
        await self.lose_node(node)
        await self.client.delete(api.NODES, node)

    async def bind(self, pod: str, node: str, namespace: str = "") -> None:
        """Bind a pod as a scheduler does."""
        metadata = {"name": pod, "namespace": namespace or self.namespace}
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
        await self.client.request("POST", api.PODS.path(metadata["namespace"], pod, "binding"), body=body)

    async def request_eviction(self, pod: str) -> None:
        """Evict a pod as `kubectl drain` does, which is content if it has gone by itself."""
        metadata = {"name": pod, "namespace": self.namespace}
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
        try:
            await self.client.request("POST", api.PODS.path(self.namespace, pod, "eviction"), body=body)
        except Refused as refused:
            if refused.status != 404:
                raise

    async def let_go(self, pod: str, node: str) -> None:
        """Lift the gates of a pod for one node, as voda does."""
        spec = {"schedulingGates": None, "nodeSelector": {"kubernetes.io/hostname": node}}
        await self.client.patch(api.PODS, (self.namespace, pod), {"spec": spec})

    async def add_namespace(self, name: str) -> None:
        """Add a namespace, which is emptied when the world ends."""
        self._namespaces.append(name)
        if await self.client.find(api.NAMESPACES, name) is None:
            await self.client.create(api.NAMESPACES, {"metadata": {"name": name}})

    async def submit(self, job: Object) -> Object:
        """Create a job as its user does by kubectl."""
        return await self.client.create(self._resource(job["kind"]), job)

    async def job(self, name: str, kind: str = "MPIJob") -> Object:
        """Return a job's object."""
        return await self.client.get(self._resource(kind), name, self.namespace)

    async def has_condition(self, name: str, condition: str, kind: str = "MPIJob") -> bool:
        """Say whether a condition of a job is True."""
        return has_condition((await self.job(name, kind)).get("status", {}), condition)

    async def condition(self, name: str, condition: str, kind: str = "MPIJob") -> Object | None:
        """Return a condition of a job, whatever its status."""
        return find_condition((await self.job(name, kind)).get("status", {}), condition)

    async def pods_of(self, name: str) -> list[Object]:
        """Return the pods of a job, launcher included, in the order of their names."""
        pods = await self.client.list(api.PODS, self.namespace, f"{JOB_NAME}={name}")
        return sorted(pods, key=lambda pod: str(pod["metadata"]["name"]))

    async def workers_of(self, name: str) -> list[Object]:
        """Return the pods of a job but the launcher's, in the order of their names."""
        return [pod for pod in await self.pods_of(name) if not is_launcher(pod)]

    async def running_workers(self, name: str) -> list[str]:
        """Return the names of workers that run and are to stay."""
        pods = await self.workers_of(name)
        return [pod["metadata"]["name"] for pod in pods if phase_of(pod) == "Running" and not is_leaving(pod)]

    async def launcher_of(self, name: str) -> Object | None:
        """Return the launcher's pod that runs; None while none does."""
        pods = [pod for pod in await self.pods_of(name) if is_launcher(pod) and not is_leaving(pod)]
        return next((pod for pod in pods if phase_of(pod) == "Running"), None)

    async def end_launcher(self, name: str, exit_code: int = 0) -> None:
        """Wait for a job's launcher to run, and end its program."""
        await self.until_it_is(lambda: self._launches(name))
        launcher = await self.launcher_of(name)
        assert launcher is not None
        await self.kubelet.exit(self.namespace, launcher["metadata"]["name"], exit_code)

    async def until(self, holds: Callable[[], object], *, within_s: float = DEADLINE_S, what: str = "") -> None:
        """Wait until something holds; fail at once if kubelets or operators broke."""

        async def holding() -> object:
            return holds()

        await self.until_it_is(holding, within_s=within_s, what=what or place_of(holds))

    async def until_it_is(
        self, holds: Callable[[], Awaitable[object]], *, within_s: float = DEADLINE_S, what: str = ""
    ) -> None:
        """Wait until something that has to be asked for holds; fail at once if kubelets or operators broke.

        Where it does not hold in time, the failure says `what` was awaited.
        """
        pause_s = pauses(_PAUSE_S)
        try:
            async with asyncio.timeout(within_s):
                while not await _unless_away(holds):
                    await self._check()
                    await asyncio.sleep(next(pause_s))
        except TimeoutError:
            what = what or place_of(holds)
            raise AssertionError(
                f"waited {within_s:g} s in vain until {what}; there is\n{await self.picture()}"
            ) from None

    async def until_running(self, name: str, workers: int, *, within_s: float = DEADLINE_S) -> None:
        """Wait until exactly that many workers of a job run and no pod of it is leaving."""

        async def are_running() -> bool:
            pods = await self.workers_of(name)
            return len(pods) == workers == len(await self.running_workers(name))

        await self.until_it_is(are_running, within_s=within_s)

    async def until_condition(self, name: str, condition: str, kind: str = "MPIJob") -> None:
        """Wait until a condition of a job is True."""
        await self.until_it_is(lambda: self.has_condition(name, condition, kind))

    async def until_restarting(self, name: str) -> None:
        """Wait until the operator has said of an MPIJob v1 that a worker of it failed.

        training-operator goes through launcher and workers in random order, and of Running and Restarting what it says
        last stays: it is made to look again until the workers come last.
        """

        async def is_restarting() -> bool:
            if await self.has_condition(name, "Restarting"):
                return True
            look = {"metadata": {"annotations": {"tests.voda.dev/look": str(next(_numbers))}}}
            await self.client.patch(self._resource("MPIJob"), (self.namespace, name), look)
            return False

        await self.until_it_is(is_restarting)

    async def until_gone(self, name: str) -> None:
        """Wait until no pod of a job is there."""

        async def is_gone() -> bool:
            return not await self.pods_of(name)

        await self.until_it_is(is_gone)

    async def picture(self) -> str:
        """Return what is there of nodes, jobs and pods, for whoever has to find out why a test failed."""
        lines = [self._parts()]
        lines += [f"node {node['metadata']['name']}: {node['spec']}" for node in await self.client.list(api.NODES)]
        for kind in self.kinds:
            for job in await self.client.list(kind):
                told = [f"{each['type']}={each['status']}" for each in job.get("status", {}).get("conditions", ())]
                lines.append(
                    f"{kind.kind} {'/'.join(api.key_of(job))}: {' '.join(told)} {job['spec'].get('runPolicy')}"
                )
        for job in await self.client.list(api.JOBS):
            lines.append(f"Job {'/'.join(api.key_of(job))}: {job['spec'].get('parallelism')} {job.get('status')}")
        for pod in await self.client.list(api.PODS):
            leaving = " leaving" if is_leaving(pod) else ""
            node, why = pod["spec"].get("nodeName"), pod["status"].get("reason", "")
            lines.append(f"pod {'/'.join(api.key_of(pod))}: {phase_of(pod)}{leaving} {why} on {node}")
        return "\n".join(lines)

    def _parts(self) -> str:
        """Return how the parts of the control plane are."""
        return self.plane.picture()

    async def _launches(self, name: str) -> bool:
        return await self.launcher_of(name) is not None

    async def _begin(self) -> None:
        """Start what plays kubelets and operators."""

    async def _end(self) -> None:
        """End it."""

    async def _check(self) -> None:
        """Fail if it has broken."""

    async def _add_node(self, node: Object) -> None:
        await self.client.create(api.NODES, node)
        # The server taints whatever is new as not ready; its node controller would take that away in a while.
        await self.client.patch(api.NODES, node["metadata"]["name"], {"spec": {"taints": node["spec"]["taints"]}})

    async def _sweep(self) -> None:
        # A test without a world may have left jobs in a namespace of its own.
        left = [api.key_of(job) for kind in self.kinds for job in await self.client.list(kind)]
        namespaces = sorted({*self._namespaces, *(namespace for namespace, _ in left)})
        for resource in (*self.kinds, api.JOBS, api.PODS, api.CONFIG_MAPS, api.SECRETS, api.LEASES, *_CLAIMS):
            for namespace in namespaces:
                await self.client.delete_all(resource, namespace)
        of_newer = () if IS_OLD else (api.TAINT_RULES,)
        for resource in (api.NODES, api.SLICES, api.DEVICE_CLASSES, *of_newer):
            await self.client.request("DELETE", resource.path())

    def _resource(self, kind: str) -> Resource:
        return next(resource for resource in self.kinds if resource.kind == kind)


async def _unless_away(holds: Callable[[], Awaitable[object]]) -> object:
    """Ask whether something holds; it does not as long as the API server is away or busy."""
    try:
        return await holds()
    except aiohttp.ClientError:
        return False
    except Refused as refused:
        if refused.status != 429 and refused.status < 500:
            raise
        return False


def is_launcher(pod: Object) -> bool:
    """Say whether a pod is a launcher's, of either MPIJob version."""
    return "launcher" in (labelled(pod, JOB_ROLE), labelled(pod, REPLICA_TYPE))


def is_leaving(pod: Object) -> bool:
    """Say whether a pod's deletion was asked for."""
    return "deletionTimestamp" in pod["metadata"]
