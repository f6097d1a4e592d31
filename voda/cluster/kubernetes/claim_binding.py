"""Gives the claims of a pod their GPUs: claims that select these take the place of those made after a template.

1. Make a claim like each of the pod's, whose requests select the GPUs that were chosen: a claim cannot be changed.
2. Name these in the status of the pod, and the node, where kube-scheduler then looks first (unless it may not preempt).
3. Lift the gate.

The claims whose place was taken are deleted once the pod has its node. Of a pod without a gate they are deleted before
the second step, for kube-scheduler may be about to allocate them: then it is refused, or the deletion is.

Rule: names follow from pod, claim and GPUs, and every write names the version that it was decided on, so that whoever
dies between two of these steps, or does them twice, leaves nothing that the next round does not put right.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from voda.cluster.kubernetes import well_known
from voda.cluster.kubernetes.device_objects import ResourceClaim
from voda.cluster.kubernetes.objects import Pod, pod_path
from voda.cluster.kubernetes.pod_binding import patch_pod
from voda.cluster.kubernetes.state.chosen_claims import ChosenClaim, pinned_claim
from voda.domain.errors import ActionRefused
from voda.kubernetes_client.api import Api
from voda.kubernetes_client.errors import Conflict
from voda.kubernetes_client.metadata import PartialObject
from voda.kubernetes_client.paths import api_path


class ClaimBinding:
    def __init__(self, api: Api) -> None:
        self._api = api

    async def pod(self, namespace: str, name: str) -> Pod | None:
        """Return a pod as it is now."""
        return await self._api.get(pod_path(namespace, name), Pod)

    async def pin(self, pod: Pod, chosen: Mapping[str, ChosenClaim], node: str) -> Pod:
        """Let the claims of a pod select the GPUs that were chosen, and return the pod as it is then.

        Claims that do already are left as they are.

        Raises:
            ActionRefused: the API server refuses a claim, or somebody else has made one of its name.
            Conflict: the pod, or one of its claims, has changed since.
            NotFound: the pod is gone.
        """
        other = {name: each for name, each in chosen.items() if not each.is_chosen(pod)}
        is_gated = well_known.SHARE_GATE in pod.gates
        for each in other.values():
            await self._make(pod, each)
            if not is_gated and each.claim.metadata.name != each.name(pod):
                await self.delete(each.claim)
        if other:
            pod = await self._name(pod, {name: each.name(pod) for name, each in other.items()}, node)
        if is_gated or other:
            pod = await self._lift(pod, ",".join(f"{name}={gpu}" for name, each in chosen.items() for gpu in each.gpus))
        return pod

    async def keep_no_room(self, pod: Pod) -> None:
        """Take the name of the node away where kube-scheduler was to keep room for a pod; raises as `pin`."""
        await patch_pod(self._api, pod, {"status": {"nominatedNodeName": None}}, subresource="status")

    async def unname(self, pod: Pod) -> Pod:
        """Let a pod name no GPUs, and return it as it is then; raises as `pin`.

        kube-controller-manager makes claims anew that somebody deleted, but it may miss that they are gone: then it
        looks at the pod the next time that this changes.
        """
        return await patch_pod(self._api, pod, {"metadata": {"annotations": {well_known.GPUS: None}}})

    async def delete(self, claim: ResourceClaim) -> None:
        """Delete a claim that has no devices; Conflict: it has changed since."""
        meta = claim.metadata
        await self._api.delete(_claims(meta.namespace, meta.name), uid=meta.uid, version=meta.resource_version)

    async def _make(self, pod: Pod, chosen: ChosenClaim) -> None:
        meta, name = chosen.claim.metadata, chosen.name(pod)
        if chosen.claim.text:
            like: Mapping[str, Any] | None = msgspec.json.decode(chosen.claim.text)
        else:
            like = await self._api.get(_claims(meta.namespace, meta.name), dict[str, Any])
        if like is None:
            raise Conflict(f"claim {meta.key} of pod {pod.metadata.key} is gone")
        try:
            body = pinned_claim(like, name, chosen.selectors, ",".join(chosen.gpus))
            await self._api.create(_claims(meta.namespace), body, PartialObject)
        except Conflict:
            made = await self._api.get(_claims(meta.namespace, name), ResourceClaim)
            if made is None or not _is_like(made, pod, chosen):
                raise ActionRefused(
                    f"claim {meta.namespace}/{name} is there, and is not that of pod {pod.metadata.key}"
                ) from None
            # An earlier try made it.

    async def _name(self, pod: Pod, claims: Mapping[str, str], node: str) -> Pod:
        statuses = [
            {"name": each.name, "resourceClaimName": claims.get(each.name, each.resource_claim_name)}
            for each in pod.status.resource_claim_statuses
            if each.name in claims or each.resource_claim_name
        ]
        # kube-scheduler keeps room on that node from pods of no higher priority, and takes the name away where the pod
        # does not fit; but not if it may not preempt.
        nominated = None if pod.spec.preemption_policy == "Never" else node
        status = {"resourceClaimStatuses": statuses, "nominatedNodeName": nominated}
        return await patch_pod(self._api, pod, {"status": status}, subresource="status")

    async def _lift(self, pod: Pod, gpus: str) -> Pod:
        gates = [gate for gate in pod.spec.scheduling_gates if gate.get("name") != well_known.SHARE_GATE]
        spec = {"spec": {"schedulingGates": gates}} if len(gates) < len(pod.spec.scheduling_gates) else {}
        return await patch_pod(self._api, pod, {"metadata": {"annotations": {well_known.GPUS: gpus}}, **spec})


def _is_like(made: ResourceClaim, pod: Pod, chosen: ChosenClaim) -> bool:
    """Return whether a claim is the one that voda made for a pod: anybody may make one of its name."""
    gpus = made.metadata.annotations.get(well_known.GPUS)
    return (made.owner, made.pod_claim, gpus) == (pod.metadata.uid, chosen.claim.pod_claim, ",".join(chosen.gpus))


def _claims(namespace: str, name: str = "") -> str:
    return api_path("resource.k8s.io/v1", "resourceclaims", namespace, name)
