"""The pods with HiveD's annotations, as the mirror shows them; binds one to its node.

Rule: a pod is bound and annotated by one call, which the API server refuses for a pod of another uid.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from voda.cluster.kubernetes.objects import Pod, pod_path
from voda.cluster.kubernetes.pod_binding import bind_pod
from voda.cluster.kubernetes.state.inventory import Inventory
from voda.domain.errors import NotFound, WrongState
from voda.hived.bind_info import BIND_INFO
from voda.hived.pod_request import SCHEDULING_SPEC, HivedPod, PodMetadata
from voda.kubernetes_client.api import Api
from voda.kubernetes_client.errors import Absent, Conflict

_WOKEN: Final = "voda.dev/woken-at"


class AnnotatedPods:
    """An adapter of the ScheduledPods port; voda needs the right to create pods/binding."""

    def __init__(self, api: Api, inventory: Inventory) -> None:
        self._api = api
        self._inventory = inventory

    def uid(self, key: str) -> str:
        pod = self._inventory.pods_by_key.get(key)
        return pod.metadata.uid if pod is not None and not pod.is_over else ""

    def bound(self) -> Iterable[tuple[HivedPod, str]]:
        for pod in list(self._inventory.pods_by_key.values()):
            if pod.spec.node_name and not pod.is_over and BIND_INFO in pod.metadata.annotations:
                yield _annotated(pod), pod.spec.node_name

    def pending(self) -> Iterable[HivedPod]:
        pods = [pod for pod in self._inventory.pods_by_key.values() if SCHEDULING_SPEC in pod.metadata.annotations]
        waiting = [pod for pod in pods if pod.is_active and not (pod.spec.node_name or pod.gates)]
        return [_annotated(pod) for pod in sorted(waiting, key=lambda pod: pod.metadata.creation_timestamp)]

    async def wake(self, key: str, uid: str, now: float) -> None:
        if self.uid(key) == uid:
            await self._api.patch(_path(key), {"metadata": {"uid": uid, "annotations": {_WOKEN: f"{now:.3f}"}}}, Pod)

    async def bind(self, key: str, uid: str, node: str, annotations: Mapping[str, str]) -> None:
        namespace, _, name = key.partition("/")
        try:
            await bind_pod(self._api, namespace, name, node, {"uid": uid, "annotations": dict(annotations)})
        except Absent as error:
            raise NotFound(f"pod {key} ({uid}) is gone") from error
        except Conflict:
            await self._explain(key, uid, node)

    async def _explain(self, key: str, uid: str, node: str) -> None:
        """Return where a pod that cannot be bound is bound to the node already; raise why not."""
        there = await self._api.get(_path(key), Pod)
        if there is None or there.metadata.uid != uid or there.is_leaving:
            raise NotFound(f"pod {key} ({uid}) is gone, or about to go")
        if there.spec.node_name != node:
            raise WrongState(f"pod {key} is bound to node {there.spec.node_name or 'none'}, not to {node}")


def _path(key: str) -> str:
    namespace, _, name = key.partition("/")
    return pod_path(namespace, name)


def _annotated(pod: Pod) -> HivedPod:
    meta = pod.metadata
    return HivedPod(PodMetadata(meta.name, meta.namespace, meta.uid, meta.annotations))
