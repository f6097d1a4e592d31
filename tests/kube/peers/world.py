"""A world whose operators are the real ones, and whose kubelets kwok plays.

Rule: what a test did to nodes is undone with them; kwok is never left standing still.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from tests.kube import client as api
from tests.kube.client import Client, Object, now_text
from tests.kube.objects import MANAGED
from tests.kube.operators.base import phase_of
from tests.kube.peers.cluster import PeeredCluster
from tests.kube.peers.stages import EXIT_CODE, KUBELET
from tests.kube.world import World
from tests.waiting import pauses

LEASES_OF_NODES = "kube-node-lease"
_LEASE_S = 3.0
_STALLED_S = 45.0
_PAUSE_S = 0.02


class KwokKubelets:
    """See World.kubelet."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def exit(self, namespace: str, name: str, exit_code: int = 0) -> None:
        """See Kubelets; returns once kwok has written it."""
        pod = await self._client.get(api.PODS, name, namespace)
        assert phase_of(pod) == "Running", f"pod {namespace}/{name} does not run: {pod['status']}"
        uid = pod["metadata"]["uid"]
        told = {"metadata": {"uid": uid, "annotations": {EXIT_CODE: str(exit_code)}}}
        await self._client.patch(api.PODS, (namespace, name), told)

        async def is_written() -> bool:
            now = await self._client.find(api.PODS, name, namespace)
            is_gone = now is None or now["metadata"]["uid"] != uid or "deletionTimestamp" in now["metadata"]
            return is_gone or (now is not None and _ends(now) != _ends(pod))

        await _wait(is_written)

    async def evict(self, namespace: str, name: str) -> None:
        """See Kubelets."""
        pod = await self._client.get(api.PODS, name, namespace)
        disrupted = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
        status = {
            "phase": "Failed",
            "reason": "Evicted",
            "message": "The node was low on resource: memory.",
            "conditions": [*pod["status"].get("conditions", ()), disrupted],
        }
        await self._client.patch(api.PODS, (namespace, name), {"status": status}, "status")


class PeeredWorld(World):
    """See the module.

    Args:
        cluster: whose control plane and peers.
    """

    def __init__(self, cluster: PeeredCluster) -> None:
        super().__init__(cluster.plane, Client(cluster.plane), cluster.kinds)
        self.cluster = cluster
        self.kubelet = KwokKubelets(self.client)

    async def set_ready(self, node: str, is_ready: bool) -> None:
        """See World: kwok says that it is ready; that it is not, the test says, and kwok lets it be."""
        annotation = {"metadata": {"annotations": {KUBELET: None if is_ready else "silent"}}}
        await self.client.patch(api.NODES, node, annotation)
        if not is_ready:
            now = now_text()
            times = {"lastHeartbeatTime": now, "lastTransitionTime": now}
            condition = {"type": "Ready", "status": "False", "reason": "KubeletNotReady", **times}
            status = {"status": {"conditions": [condition]}}
            await self.client.patch(api.NODES, node, status, "status", api.STRATEGIC)

    async def submit(self, job: Object) -> Object:
        """See World: suspended, as users are told to, unless the job says what it is or is none of voda's.

        Of one that is not, mpi-operator makes pods while voda suspends it: its own writes then fail, and after each
        event of a pod it waits for twice as long.
        """
        policy = job["spec"].setdefault("runPolicy", {})
        if MANAGED in job["metadata"].get("labels", {}):
            policy.setdefault("suspend", True)
        return await super().submit(job)

    async def lose_node(self, node: str) -> None:
        """See World."""
        await self.client.patch(api.NODES, node, {"metadata": {"labels": {KUBELET: "lost"}}})

    async def restore_node(self, node: str) -> None:
        """See World."""
        await self.client.patch(api.NODES, node, {"metadata": {"labels": {KUBELET: None}}})

    async def _check(self) -> None:
        # After a conflict mpi-operator may stand still for minutes; whoever waits for it starts it anew.
        if self.cluster.mpi_operator.quiet_s() > _STALLED_S:
            self.cluster.mpi_operator.crash()
        if any(peer.is_over() for peer in self.cluster.peers):
            await asyncio.to_thread(self.cluster.tend)
        self.plane.restart_ended()

    async def _add_node(self, node: Object) -> None:
        """Add a node, and return when its kubelet has taken it up.

        kwok holds a lease by the node's name: if it has not yet seen that the lease of an earlier node of that name is
        gone, it does not make another, and the node has to come again.
        """
        name = node["metadata"]["name"]
        while True:
            await self.client.delete(api.LEASES, name, LEASES_OF_NODES)
            await super()._add_node(node)
            try:
                async with asyncio.timeout(_LEASE_S):
                    return await _wait(partial(self._is_leased, name))
            except TimeoutError:
                await self.client.delete(api.NODES, name)

    async def _is_leased(self, node: str) -> bool:
        return await self.client.find(api.LEASES, node, LEASES_OF_NODES) is not None

    async def _sweep(self) -> None:
        await self.until_it_is(self._is_swept)

    async def _is_swept(self) -> bool:
        """Delete what is there, and say whether there was nothing: operators make anew what is deleted too early."""
        left = [api.key_of(job) for kind in self.kinds for job in await self.client.list(kind)]
        pods = await self.client.list(api.PODS)
        await super()._sweep()
        await self.client.delete_all(api.LEASES, LEASES_OF_NODES)
        return not left and not pods and not await self.client.list(api.LEASES, LEASES_OF_NODES)


def _ends(pod: Object) -> tuple[str, int]:
    return phase_of(pod), sum(each["restartCount"] for each in pod["status"].get("containerStatuses", ()))


async def _wait(holds: Callable[[], Awaitable[bool]]) -> None:
    pause_s = pauses(_PAUSE_S)
    while not await holds():  # noqa: ASYNC110 - it has to be asked for
        await asyncio.sleep(next(pause_s))
