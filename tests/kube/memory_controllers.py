"""What the real control plane does beside its API server, in memory: the garbage collector, the Job controller, the
scheduler, the collector of pods of lost nodes, and the kubelets that refuse what is too much.

Rule: each looks at what there is now, a moment after something changed, and does what is still to be done.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from random import Random
from typing import Final

from tests.kube.client import (
    CLAIMS,
    JOBS,
    NODES,
    PODS,
    Client,
    Key,
    Object,
    Refused,
    Resource,
    controller_of,
    key_of,
    now_text,
)
from tests.kube.memory_claims import Claims
from tests.kube.memory_server import MemoryServer
from tests.kube.objects import GPU

_LOOK_S: Final = 0.05
_IDLE_S: Final = 0.25
_ORPHANED_S: Final = 40.0
_BACKOFF_LIMIT: Final = 6


class Controllers:
    """See the module.

    Args:
        server: whose objects they look at.
        client: by which they act.
        chance: draws the names of pods.
    """

    def __init__(self, server: MemoryServer, client: Client, chance: Random) -> None:
        self._server = server
        self._client = client
        self._chance = chance
        self._claims = Claims(server, client)
        self._orphaned: dict[Key, float] = {}

    async def run(self) -> None:
        """Control for ever."""
        while True:
            has_done = await self._look()
            await asyncio.sleep(_LOOK_S if has_done else _IDLE_S)

    async def _look(self) -> bool:
        """Do what is to be done, and say whether there was anything."""
        works = [
            *(self._client.delete(*each) for each in self._unowned()),
            *(self._client.delete(CLAIMS, *reversed(key_of(each))) for each in self._claims.left_over()),
            *(self._claims.make(pod) for pod in self._claims.pods_without()),
            *(self._schedule(pod) for pod in self._unscheduled()),
            *(self._client.delete(PODS, key[1], key[0], grace_s=0) for key in self._lost()),
            *(self._control(job) for job in self._objects(JOBS)),
        ]
        done = False
        try:
            for work in works:
                # What changed meanwhile is looked at again.
                with suppress(Refused):
                    done |= await work is not False
        finally:
            # The world may end in between.
            for work in works:
                work.close()
        return done

    def _unowned(self) -> Iterator[tuple[Resource, str, str]]:
        uids = {each["metadata"]["uid"] for there in self._server.objects.values() for each in there.values()}
        for resource, there in list(self._server.objects.items()):
            for thing in list(there.values()):
                metadata = thing["metadata"]
                owners = metadata.get("ownerReferences", ())
                if owners and "deletionTimestamp" not in metadata and not any(each["uid"] in uids for each in owners):
                    yield resource, metadata["name"], metadata.get("namespace", "")

    def _unscheduled(self) -> Iterator[Object]:
        for pod in self._objects(PODS):
            spec = pod["spec"]
            is_its = spec["schedulerName"] == "default-scheduler" and not spec.get("schedulingGates")
            if is_its and not spec.get("nodeName") and not _is_leaving(pod) and not _is_over(pod):
                yield pod

    async def _schedule(self, pod: Object) -> bool:
        """Bind a pod to the first node that takes it, or say in its status why none does."""
        refusals = {node["metadata"]["name"]: self._refusal(pod, node) for node in self._objects(NODES)}
        if names := sorted(name for name, why in refusals.items() if not why):
            target = {"apiVersion": "v1", "kind": "Node", "name": names[0]}
            metadata = {key: pod["metadata"][key] for key in ("name", "namespace", "uid")}
            await self._claims.allocate(pod, names[0])
            await self._client.create(PODS, {"metadata": metadata, "target": target}, "binding")
            return True
        counts = sorted(f"{count} {why}" for why, count in Counter(refusals.values()).items())
        message = f"0/{len(refusals)} nodes are available: {', '.join(counts)}."
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        if condition in pod["status"].get("conditions", ()):
            return False
        body = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": {"conditions": [condition]}}
        await self._client.patch(PODS, key_of(pod), body, "status")
        return True

    def _refusal(self, pod: Object, node: Object) -> str:
        """Return why a node does not take a pod, in the words of kube-scheduler; empty where it does."""
        if node["spec"].get("unschedulable"):
            return "node(s) were unschedulable"
        if node["status"]["conditions"][0]["status"] != "True":
            return "node(s) had untolerated taint {node.kubernetes.io/not-ready: }"
        if not (pod["spec"].get("nodeSelector") or {}).items() <= node["metadata"].get("labels", {}).items():
            return "node(s) didn't match Pod's node affinity/selector"
        free = int(node["status"]["allocatable"].get(GPU, "0")) - held_gpus(self._server, node["metadata"]["name"])
        if gpus_of(pod) > free:
            return f"Insufficient {GPU}"
        return self._claims.refusal(pod, node["metadata"]["name"])

    def _lost(self) -> list[Key]:
        now, nodes = asyncio.get_running_loop().time(), self._server.objects[NODES]
        lost = [key_of(pod) for pod in self._objects(PODS) if ("", pod["spec"].get("nodeName") or "") not in nodes]
        lost = [key for key in lost if self._server.objects[PODS][key]["spec"].get("nodeName")]
        self._orphaned = {key: self._orphaned.get(key, now) for key in lost}
        return [key for key, since in self._orphaned.items() if now - since >= _ORPHANED_S]

    async def _control(self, job: Object) -> bool:
        """Give a batch/v1 Job the one pod it wants, and say how it ended."""
        uid, status = job["metadata"]["uid"], job.get("status", {})
        if status.get("conditions"):
            return False
        pods = [pod for pod in self._objects(PODS) if controller_of(pod).get("uid") == uid]
        active = [pod for pod in pods if pod["status"]["phase"] in ("Pending", "Running") and not _is_leaving(pod)]
        failed = sum(pod["status"]["phase"] == "Failed" for pod in pods)
        if any(pod["status"]["phase"] == "Succeeded" for pod in pods):
            return await self._end(job, "Complete", "", failed)
        if failed > job["spec"].get("backoffLimit", _BACKOFF_LIMIT):
            return await self._end(job, "Failed", "BackoffLimitExceeded", failed)
        if job["spec"].get("suspend"):
            for pod in active:
                await self._client.delete(PODS, pod["metadata"]["name"], pod["metadata"]["namespace"])
            return bool(active)
        if active:
            return False
        await self._make_pod(job)
        return True

    async def _end(self, job: Object, kind: str, reason: str, failed: int) -> bool:
        condition = {"type": kind, "status": "True", "reason": reason}
        status = {"conditions": [condition], "failed": failed, "completionTime": now_text()}
        await self._client.patch(JOBS, key_of(job), {"status": status}, "status")
        return True

    async def _make_pod(self, job: Object) -> None:
        template, metadata = job["spec"]["template"], job["metadata"]
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": metadata["name"], "uid": metadata["uid"]}
        own = {**template.get("metadata", {}), "namespace": metadata["namespace"]}
        own |= {"name": f"{metadata['name']}-{self._chance.randrange(16**5):05x}"}
        own |= {"ownerReferences": [{**owner, "controller": True}]}
        await self._client.create(PODS, {"metadata": own, "spec": template["spec"]})

    def _objects(self, resource: Resource) -> list[Object]:
        return list(self._server.objects[resource].values())


def gpus_of(pod: Object) -> int:
    """Return the GPUs that a pod asks for."""
    return sum(int(each["resources"]["requests"].get(GPU, "0")) for each in pod["spec"]["containers"])


def held_gpus(server: MemoryServer, node: str) -> int:
    """Return the GPUs of a node that pods hold: bound to it, and not over."""
    pods = server.objects[PODS].values()
    return sum(gpus_of(pod) for pod in pods if pod["spec"].get("nodeName") == node and not _is_over(pod))


def _is_over(pod: Object) -> bool:
    return pod["status"]["phase"] in ("Succeeded", "Failed")


def _is_leaving(pod: Object) -> bool:
    return "deletionTimestamp" in pod["metadata"]
