"""Claims of devices in memory: who makes them for pods, and which devices kube-scheduler gives them.

Rule: a claim has one request, of a count of devices, and any device of the node's slices will do.
"""

from collections.abc import Sequence

from tests.kube.client import CLAIM_TEMPLATES, CLAIMS, PODS, SLICES, Client, Object, controller_of, key_of
from tests.kube.memory_server import MemoryServer


class Claims:
    """See the module.

    Args:
        server: whose objects they look at.
        client: by which they act.
    """

    def __init__(self, server: MemoryServer, client: Client) -> None:
        self._server = server
        self._client = client

    def pods_without(self) -> Sequence[Object]:
        """Return the pods for which claims are still to be made, and whose templates are there."""
        return [pod for pod in self._server.objects[PODS].values() if self._missing(pod)]

    def left_over(self) -> Sequence[Object]:
        """Return the claims of pods that have ended."""
        pods = self._server.objects[PODS].values()
        over = {pod["metadata"]["uid"] for pod in pods if pod["status"]["phase"] in ("Succeeded", "Failed")}
        return [each for each in self._server.objects[CLAIMS].values() if controller_of(each).get("uid") in over]

    async def make(self, pod: Object) -> bool:
        """Make the claims of a pod, which go with it."""
        meta, made = pod["metadata"], list(pod["status"].get("resourceClaimStatuses", ()))
        for claim, template in self._missing(pod):
            name = f"{meta['name']}-{claim}-{meta['uid']}"
            owner = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"], "controller": True}
            notes = {"resource.kubernetes.io/pod-claim-name": claim}
            metadata = {"name": name, "namespace": meta["namespace"], "ownerReferences": [owner], "annotations": notes}
            await self._client.create(CLAIMS, {"metadata": metadata, "spec": template["spec"]["spec"]})
            made.append({"name": claim, "resourceClaimName": name})
        body = {"metadata": {"uid": meta["uid"]}, "status": {"resourceClaimStatuses": made}}
        await self._client.patch(PODS, key_of(pod), body, "status")
        return True

    def refusal(self, pod: Object, node: str) -> str:
        """Return why a node's devices are not enough for a pod's claims; empty: they are."""
        if self._missing(pod):
            return "waiting for the claims of the pod"
        needed = sum(map(_count, self._pending(pod)))
        return "cannot allocate all claims" if needed > len(self._free(node)) else ""

    async def allocate(self, pod: Object, node: str) -> None:
        """Give a pod's claims devices of a node."""
        for claim in self._pending(pod):
            taken = self._free(node)[: _count(claim)]
            results = [{"driver": driver, "pool": pool, "device": device} for driver, pool, device in taken]
            meta = pod["metadata"]
            reserved = [{"resource": "pods", "name": meta["name"], "uid": meta["uid"]}]
            status = {"allocation": {"devices": {"results": results}}, "reservedFor": reserved}
            await self._client.patch(CLAIMS, key_of(claim), {"status": status}, "status")

    def _missing(self, pod: Object) -> list[tuple[str, Object]]:
        made = {each["name"] for each in pod["status"].get("resourceClaimStatuses", ())}
        templates, namespace = self._server.objects[CLAIM_TEMPLATES], pod["metadata"]["namespace"]
        found = (
            (each["name"], templates.get((namespace, each["resourceClaimTemplateName"])))
            for each in pod["spec"].get("resourceClaims", ())
            if each["name"] not in made
        )
        return [(name, template) for name, template in found if template is not None]

    def _pending(self, pod: Object) -> list[Object]:
        names = {each["resourceClaimName"] for each in pod["status"].get("resourceClaimStatuses", ())}
        claims = self._server.objects[CLAIMS].values()
        ours = (each for each in claims if key_of(each)[0] == pod["metadata"]["namespace"])
        return [each for each in ours if each["metadata"]["name"] in names and "status" not in each]

    def _free(self, node: str) -> list[tuple[str, str, str]]:
        taken = {
            (each["driver"], each["pool"], each["device"])
            for claim in self._server.objects[CLAIMS].values()
            for each in claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", ())
        }
        specs = [each["spec"] for each in self._server.objects[SLICES].values() if each["spec"]["nodeName"] == node]
        there = [(spec["driver"], spec["pool"]["name"], device["name"]) for spec in specs for device in spec["devices"]]
        return [device for device in there if device not in taken]


def _count(claim: Object) -> int:
    [request] = claim["spec"]["devices"]["requests"]
    return int(request["exactly"].get("count", 1))
