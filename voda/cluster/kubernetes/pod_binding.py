"""Binds pods: gives one its node, and with it the annotations that name its GPUs.

Rule: every write names the version of the pod that it was decided on, so that of two who bind one pod the later one to
write is refused (Conflict), and what it has decided is void.
"""

from collections.abc import Mapping
from typing import Any, Final

from voda.cluster.kubernetes.objects import Pod, pod_path
from voda.cluster.kubernetes.state.shared_gpus import ASSUMED, GPUS_OF
from voda.domain.errors import NotFound
from voda.kubernetes_client.api import Api
from voda.kubernetes_client.metadata import PartialObject

WITHDRAWN: Final = "voda.dev/cards-withdrawn"
"""Annotation of a pod that had GPUs and was not bound: a number that makes any earlier try to bind it fail."""

FREED: Final = "voda.dev/cards-freed"
"""Annotation of a pod that waits: a number that changes when GPUs for it are free, so that it is looked at again."""


async def bind_pod(api: Api, namespace: str, name: str, node: str, metadata: Mapping[str, Any]) -> None:
    """Give a pod its node; `metadata` has what must hold of it, and annotations to add.

    Raises:
        Conflict: it does not hold, or the pod is bound, or is leaving.
        Absent: the pod is gone.
    """
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    await api.create(f"{pod_path(namespace, name)}/binding", body, PartialObject)


async def patch_pod(api: Api, pod: Pod, body: Mapping[str, Any], *, subresource: str = "") -> Pod:
    """Change a pod, or a subresource of it such as status, and return the pod as it is then.

    Raises:
        Conflict: the pod has changed since.
        NotFound: it is gone.
    """
    meta = pod.metadata
    known = {"uid": meta.uid, "resourceVersion": meta.resource_version, **body.get("metadata", {})}
    path = f"{pod.path}/{subresource}" if subresource else pod.path
    changed = await api.patch(path, {**body, "metadata": known}, Pod)
    if changed is None:
        raise NotFound(f"pod {meta.key} is gone")
    return changed


class PodBinding:
    def __init__(self, api: Api) -> None:
        self._api = api

    async def get(self, namespace: str, name: str) -> Pod | None:
        """Return a pod as it is now."""
        return await self._api.get(pod_path(namespace, name), Pod)

    async def name_gpus(self, pod: Pod, annotations: Mapping[str, str]) -> Pod:
        """Write the annotations that name the GPUs of a pod, in place of all such ones; raises as `patch_pod`."""
        return await self._patch(pod, {WITHDRAWN: None, **annotations}, "true")

    async def withdraw(self, pod: Pod, number: str) -> Pod:
        """Take the annotations away, so that whoever was about to bind the pod is refused; raises as `patch_pod`.

        `number` was never used before: a patch that changes nothing would leave the pod's version as it is.
        """
        return await self._patch(pod, {WITHDRAWN: number, ASSUMED: None}, None)

    async def touch(self, pod: Pod, number: str) -> None:
        """Change a pod that waits, so that kube-scheduler looks at it again; raises as `patch_pod`."""
        metadata = {"uid": pod.metadata.uid, "annotations": {FREED: number}}
        if await self._api.patch(pod.path, {"metadata": metadata}, Pod) is None:
            raise NotFound(f"pod {pod.metadata.key} is gone")

    async def bind(self, pod: Pod, node: str, annotations: Mapping[str, str]) -> None:
        """Give a pod its node, and name its GPUs in the same write; raises as `bind_pod`.

        An old API server may leave the label out.
        """
        if any(key not in annotations for key in pod.metadata.annotations if key.startswith((GPUS_OF, WITHDRAWN))):
            # A binding adds annotations and takes none away.
            pod = await self.name_gpus(pod, annotations)
        meta = pod.metadata
        known = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        copies = {"annotations": annotations, "labels": {ASSUMED: annotations[ASSUMED]}}
        await bind_pod(self._api, meta.namespace, meta.name, node, {**known, **copies})

    async def _patch(self, pod: Pod, annotations: Mapping[str, str | None], label: str | None) -> Pod:
        former = {key: None for key in pod.metadata.annotations if key.startswith(GPUS_OF)}
        metadata = {"annotations": {**former, **annotations}, "labels": {ASSUMED: label}}
        return await patch_pod(self._api, pod, {"metadata": metadata})
