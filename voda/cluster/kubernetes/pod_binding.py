"""Binds pods: reads one, names its cards in its annotations, and gives it its node.

Rule: every write names the version of the pod that it was decided on, so that of two who bind one pod the later one to
write is refused (Conflict), and what it has decided is void.
"""

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from voda.cluster.kubernetes.objects import Pod
from voda.cluster.kubernetes.state.shared_gpus import ASSUMED, CARDS_OF
from voda.domain.errors import NotFound
from voda.kubernetes_client.api import Api
from voda.kubernetes_client.metadata import NamedObject

WITHDRAWN: Final = "voda.dev/cards-withdrawn"
"""Annotation of a pod that had cards and was not bound: a number that makes any earlier try to bind it fail."""

FREED: Final = "voda.dev/cards-freed"
"""Annotation of a pod that waits: a number that changes when cards for it are free, so that it is looked at again."""


class PodBinding:
    """The calls to the API server."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def get(self, namespace: str, name: str) -> Pod | None:
        """Return a pod as it is now."""
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}"
        return await self._api.get(path, Pod)

    async def name_cards(self, pod: Pod, annotations: Mapping[str, str]) -> Pod:
        """Write the annotations that name the cards of a pod, in place of all such ones that it has.

        Raises:
            Conflict: the pod has changed since.
            NotFound: it is gone.
        """
        return await self._patch(pod, {WITHDRAWN: None, **annotations}, "true")

    async def withdraw(self, pod: Pod, number: str) -> Pod:
        """Take the annotations away, so that whoever was about to bind the pod is refused; raises as `name_cards`.

        `number` was never used before: a patch that changes nothing would leave the pod's version as it is.
        """
        return await self._patch(pod, {WITHDRAWN: number, ASSUMED: None}, None)

    async def touch(self, pod: Pod, number: str) -> None:
        """Change a pod that waits, so that kube-scheduler looks at it again; raises as `name_cards`."""
        metadata = {"uid": pod.metadata.uid, "annotations": {FREED: number}}
        if await self._api.patch(pod.path, {"metadata": metadata}, Pod) is None:
            raise NotFound(f"pod {pod.metadata.key} is gone")

    async def bind(self, pod: Pod, node: str) -> None:
        """Give a pod its node.

        Raises:
            Conflict: the pod has changed since, is bound, or is leaving.
            Absent: it is gone.
        """
        meta = pod.metadata
        known = {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid}
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {**known, "resourceVersion": meta.resource_version},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        await self._api.create(f"{pod.path}/binding", body, NamedObject)

    async def _patch(self, pod: Pod, annotations: Mapping[str, str | None], label: str | None) -> Pod:
        meta = pod.metadata
        former = {key: None for key in meta.annotations if key.startswith(CARDS_OF)}
        metadata = {
            "uid": meta.uid,
            "resourceVersion": meta.resource_version,
            "annotations": {**former, **annotations},
            "labels": {ASSUMED: label},
        }
        changed = await self._api.patch(pod.path, {"metadata": metadata}, Pod)
        if changed is None:
            raise NotFound(f"pod {meta.key} is gone")
        return changed
