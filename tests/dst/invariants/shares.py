"""Shared GPUs: the log's account, folded here without any of voda's projections, against the pods as they are.

Rules: no GPU gives pods that are bound more than 1,000 milli or its memory; a pod is bound to the GPUs that the log
gives it at that instant; in the end, the log has the pods that are at work on GPUs, and no others.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from tests.dst.invariants.broken import Broken
from tests.kube.client import Key, Object
from tests.kube.sharing import ASSUMED, gpus_of, uses_of_gpus
from voda.domain.gpus import ContainerGpus, GpuDevice
from voda.events.envelope import Event
from voda.events.types import NodeChanged, NodeJoined, NodeLeft, ShareAssigned, ShareReleased

_GPU = 1_000


class Shares:
    """Reads the log as it grows."""

    def __init__(self) -> None:
        self.held: dict[str, tuple[str, Mapping[str, ContainerGpus]]] = {}
        """uid -> node, and what its containers have there."""
        self._devices: dict[str, Sequence[GpuDevice]] = {}

    def see(self, event: Event) -> None:
        """Take in the next event; one that gives what is not there gives nothing."""
        match event.data:
            case NodeJoined(node=node) | NodeChanged(node=node):
                self._devices[node.name] = node.devices
            case NodeLeft(name=name):
                self._devices[name] = ()
            case ShareAssigned(pod_uid=uid, node=name, containers=containers):
                if uid not in self.held and containers and self._has_room(name, containers):
                    self.held[uid] = name, containers
            case ShareReleased(pod_uid=uid, node=name) if self.held.get(uid, ("",))[0] == name:
                del self.held[uid]

    def _has_room(self, name: str, containers: Mapping[str, ContainerGpus]) -> bool:
        devices, milli, memory = self._devices.get(name, ()), Counter[int](), Counter[int]()
        there = [share for node, shares in self.held.values() if node == name for share in shares.values()]
        for share in there:
            self._take(share, devices, milli, memory)
        touched = {gpu for share in there for gpu in share.gpus}
        for share in containers.values():
            if any(gpu >= len(devices) or milli[gpu] >= _GPU for gpu in share.gpus):
                return False
            if share.request.devices and touched & set(share.gpus):
                return False
            touched.update(share.gpus)
            self._take(share, devices, milli, memory)
            if any(milli[gpu] > _GPU or memory[gpu] > devices[gpu].memory_mib for gpu in share.gpus):
                return False
        return True

    @staticmethod
    def _take(share: ContainerGpus, devices: Sequence[GpuDevice], milli: Counter[int], memory: Counter[int]) -> None:
        for gpu in share.gpus:
            milli[gpu] += share.request.milli_each
            whole = devices[gpu].memory_mib if gpu < len(devices) else 0
            memory[gpu] += whole if share.request.devices else share.request.memory_mib

    # ---- against the pods

    def refuse_bound(self, pod: Object) -> None:
        """Refuse that a pod was bound just now with GPUs that the log does not give it.

        Raises:
            Broken: the log gives it others, or none.
        """
        meta, node = pod["metadata"], pod["spec"]["nodeName"]
        has, shares = self.held.get(meta["uid"], ("", {}))
        given = {name: ",".join(map(str, share.gpus)) for name, share in shares.items()}
        if (has, given) != (node, gpus_of(pod)):
            what = f"pod {meta['name']} is bound to node {node} with GPUs {dict(gpus_of(pod))}"
            raise Broken("shares", f"{what}; the log gives it {given} of node {has or 'none'}")

    def leaks(self, pods: Mapping[Key, Object]) -> Iterator[str]:
        """Yield where log and pods differ once all has been calm for long."""
        at_work = {
            pod["metadata"]["uid"]: pod["spec"]["nodeName"]
            for pod in pods.values()
            if pod["spec"].get("nodeName") and pod["status"].get("phase") not in ("Succeeded", "Failed")
        }
        for uid, (node, _) in self.held.items():
            if at_work.get(uid) != node:
                on = at_work.get(uid, "none")
                yield f"shares leak: the log has a share of node {node} for pod {uid}, which is on {on}"
        for pod in pods.values():
            meta = pod["metadata"]
            if meta["uid"] in at_work and meta.get("annotations", {}).get(ASSUMED) and meta["uid"] not in self.held:
                yield f"shares: pod {meta['name']} uses GPUs {dict(gpus_of(pod))}, and the log has none for it"


def refuse_overfull(pods: Mapping[Key, Object], node: str, memory_mib: int) -> None:
    """Refuse that the GPUs of a node give more than they have to the pods that are bound there.

    Raises:
        Broken: one does.
    """
    core, memory = uses_of_gpus(pods.values(), node)
    for gpu in core:
        if core[gpu] > 100 or memory[gpu] > memory_mib:
            what = f"GPU {gpu} of node {node} gives {10 * core[gpu]} milli and {memory[gpu]} MiB"
            raise Broken("gpus", f"{what}, it has {_GPU} and {memory_mib}")
