"""Shared GPUs in tests: nodes with GPUs, pods that ask for shares, a kube-scheduler by hand, what must never be."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml

from tests.kube.assets import ROOT
from tests.kube.client import NODES, PODS, Client, Object
from tests.kube.memory_server import Change, MemoryServer
from tests.kube.objects import a_node
from voda.extender.wire import ExtenderArgs, ExtenderFilterResult
from voda.operator.extender import Extender
from voda.operator.sharing.share_extender import ShareExtender

CORE, MEMORY = "elasticgpu.io/gpu-core", "elasticgpu.io/gpu-memory"
GPUS_OF = "elasticgpu.io/container-"
ASSUMED = "elasticgpu.io/assumed"
SCHEDULER = "by-hand"


def a_gpu_node(name: str, gpus: int = 2, *, memory_mib: int = 16_000, pool: str = "v100", **changes: Any) -> Object:
    """Return a node with GPUs to share, and no other GPUs."""
    amounts = {CORE: str(100 * gpus), MEMORY: str(memory_mib * gpus)}
    return a_node(name, 0, pool, amounts=amounts, **changes)


def a_sharing_pod(
    name: str, namespace: str, core: int = 50, memory: int = 0, *, scheduler: str = SCHEDULER, **changes: Any
) -> Object:
    """Return a pod of one container that asks for a share.

    Args:
        name: of the pod.
        namespace: of the pod.
        core: hundredths of a GPU.
        memory: MiB.
        scheduler: who places it.
        changes: `containers` name -> amounts instead of the one, `spec` fields, `annotations`, `labels`.
    """
    amounts = {key: str(value) for key, value in ((CORE, core), (MEMORY, memory)) if value}
    containers = [
        {"name": each, "image": "work", "resources": {"requests": {**asked}, "limits": {**asked}}}
        for each, asked in changes.get("containers", {"main": amounts}).items()
    ]
    metadata = {key: changes[key] for key in ("labels", "annotations") if key in changes}
    spec = {"schedulerName": scheduler, "restartPolicy": "Never", "containers": containers, **changes.get("spec", {})}
    return {"metadata": {"name": name, "namespace": namespace, **metadata}, "spec": spec}


def gpus_of(pod: Mapping[str, Any]) -> Mapping[str, str]:
    """Return container -> the GPUs that the pod's annotations name."""
    notes = pod["metadata"].get("annotations", {})
    return {key.removeprefix(GPUS_OF): value for key, value in notes.items() if key.startswith(GPUS_OF)}


class HandScheduler:
    """One kube-scheduler that asks an extender: filter, priorities, bind."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def filter(self, extender: Extender[ShareExtender], pod: Object) -> ExtenderFilterResult:
        """Return what the extender says of all nodes."""
        names = [node["metadata"]["name"] for node in await self._client.list(NODES)]
        return await extender.filter(msgspec.json.encode({"Pod": pod, "Nodes": None, "NodeNames": names}))

    async def place(self, extender: Extender[ShareExtender], pod: Object, *, node: str = "") -> str:
        """Place a pod on the best node, or on the one that is named, and return why it was not bound."""
        found = await self.filter(extender, pod)
        if found.error or not found.node_names:
            return found.error or "; ".join(
                {*found.failed_nodes.values(), *found.failed_and_unresolvable_nodes.values()}
            )
        arguments = {"Pod": pod, "NodeNames": found.node_names}
        scores = await extender.answer(msgspec.json.encode(arguments), ExtenderArgs, extender.decider.prioritize)
        best = node or max(scores, key=lambda each: each.score).host
        return await self.bind(extender, pod, best)

    async def bind(self, extender: Extender[ShareExtender], pod: Object, node: str) -> str:
        """Bind a pod, and return why it was not."""
        meta = pod["metadata"]
        named = {"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"], "Node": node}
        return (await extender.bind(msgspec.json.encode(named))).error


def uses_of_gpus(pods: Iterable[Object], node: str) -> tuple[Counter[str], Counter[str]]:
    """Return GPU -> core and GPU -> memory that the pods on a node have, by their annotations and requests."""
    core, memory = Counter[str](), Counter[str]()
    for pod in pods:
        if pod["spec"].get("nodeName") != node or pod["status"].get("phase") in ("Succeeded", "Failed"):
            continue
        asked = {each["name"]: each["resources"]["requests"] for each in pod["spec"]["containers"]}
        for container, gpus in gpus_of(pod).items():
            for gpu in gpus.split(","):
                core[gpu] += min(100, int(asked[container].get(CORE, 0)))
                memory[gpu] += int(asked[container].get(MEMORY, 0))
    return core, memory


class GpuBreaches:
    """Takes note of GPUs of which bound pods use more than they have, at every change."""

    def __init__(self, server: MemoryServer) -> None:
        self.found: list[str] = []
        self._server = server

    def see(self, change: Change) -> None:
        """Look at a change."""
        if change.resource == PODS and change.type == "MODIFIED" and change.object["spec"].get("nodeName"):
            self.look(change.object["spec"]["nodeName"])

    def look(self, node: str) -> None:
        """Look at a node."""
        core, memory = uses_of_gpus(self._server.objects[PODS].values(), node)
        offered = self._server.objects[NODES]["", node]["status"]["allocatable"]
        most = int(offered[MEMORY]) // max(1, int(offered[CORE]) // 100)
        if any(each > 100 for each in core.values()) or any(each > most for each in memory.values()):
            self.found.append(f"node {node} gives too much: {core} {memory}")


def scheduler_configuration(url: str, kubeconfig: Path) -> str:
    """Return the settings of a kube-scheduler whose extender answers at a URL, as the documentation shows them.

    Without a URL it has no extender, and all else is the same.
    """
    text = (ROOT / "docs" / "migrating-from-elastic-gpu-scheduler.md").read_text("utf-8")
    [shown] = re.findall(r"^```yaml\n(apiVersion: kubescheduler.*?)^```", text, re.DOTALL | re.MULTILINE)
    config = yaml.safe_load(shown)
    config["extenders"] = [{**each, "urlPrefix": url} for each in config["extenders"] if url]
    config["clientConnection"] = {"kubeconfig": str(kubeconfig), "qps": 1000, "burst": 2000}
    config["leaderElection"] = {"leaderElect": False}
    return yaml.safe_dump(config)
