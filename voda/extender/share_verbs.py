"""What the extender answers for pods that ask for GPUs or shares of them: filter, prioritize, preempt, status.

Pure: all follows from the accounts of the nodes. Rule: a pod that has its GPUs already, since an earlier try to bind
it came so far, fits on their node and prefers it.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from voda.changed_keys import ChangedKeys
from voda.domain.gpus import MILLI_PER_DEVICE, ContainerGpus, GpuRequest
from voda.domain.shares import SharingNode
from voda.extender.wire import (
    ExtenderFilterResult,
    ExtenderPreemptionArgs,
    ExtenderPreemptionResult,
    HostPriority,
    MetaPod,
    MetaVictims,
    read_pod,
)
from voda.sharing.rating import HIGHEST, GpuChooser, NodeChoice, PodRequest

_MILLI_PER_CORE: Final = 10
"""`gpu-core` counts hundredths of a GPU."""


class ExtenderPod(Struct, frozen=True, kw_only=True):
    """A pod that asks for GPUs or shares."""

    uid: str
    key: str
    """`namespace/name`."""
    requests: Mapping[str, GpuRequest]
    """By container, in the pod's order; those that ask for none are left out."""
    has_gpus_on: str = ""
    """Node whose account has it already; empty: none."""

    @property
    def request(self) -> PodRequest:
        """Return what raters read."""
        return PodRequest(containers=tuple(self.requests.values()))

    def text(self) -> str:
        """Return what it asks for, such as `main (gpu-core 50, gpu-memory 4096)`."""
        return ", ".join(f"{name} ({_in_words(each)})" for name, each in self.requests.items())


class GpuState(Struct, frozen=True, rename="pascal"):
    """What /scheduler/status says of a GPU, under the names of elastic-gpu-scheduler."""

    core_available: int
    memory_available: int
    core_total: int
    memory_total: int


class ShareVerbs:
    """Answers from the accounts of nodes.

    Args:
        chooser: rates the nodes.
        accounts: of all nodes.
        closed: nodes that take no pod now, and why.
        changes: of the accounts; None: what changed is found by comparison.
        most: so many nodes are the answer to filter at most, the best ones; 0 = all.
    """

    def __init__(
        self,
        chooser: GpuChooser,
        accounts: Mapping[str, SharingNode],
        closed: Mapping[str, str],
        changes: ChangedKeys | None = None,
        *,
        most: int = 0,
    ) -> None:
        self._chooser = chooser
        self._most = most
        self._accounts = accounts
        self._closed = closed
        self._changes = changes

    def filter(self, pod: ExtenderPod, names: Sequence[str]) -> ExtenderFilterResult:
        """Return the best nodes where the pod's GPUs are free, and why they are not on each of those without."""
        wanted, unfit = self._choice(pod, names, self._most)
        failed, final = dict[str, str](), dict[str, str]()
        for refusal, nodes in self._chooser.refusals(unfit, pod.request, pod.text()) if unfit else ():
            (final if refusal.is_final else failed).update(dict.fromkeys(nodes, refusal.reason))
        asked = set(names) if self._closed else ()
        closed = {name: why for name, why in self._closed.items() if name in asked and name not in wanted}
        return ExtenderFilterResult(
            node_names=tuple(wanted),
            failed_nodes=failed | closed,
            failed_and_unresolvable_nodes=final,
        )

    def has_room(self, pod: ExtenderPod) -> bool:
        """Say whether the pod's GPUs are free on some node."""
        return bool(self._choice(pod, tuple(self._accounts)).wanted)

    def prioritize(self, pod: ExtenderPod, names: Sequence[str]) -> Sequence[HostPriority]:
        """Return how much each node is preferred; those without room the least."""
        wanted = self._choice(pod, names).wanted
        return [HostPriority(name, wanted.get(name, 0)) for name in names]

    def preempt(self, pod: ExtenderPod, arguments: ExtenderPreemptionArgs) -> ExtenderPreemptionResult:
        """Return the nodes, with kube-scheduler's victims, where the pod's GPUs are free once these have left."""
        self._chooser.follow(self._accounts, pod.request, self._changes)
        victims = _victims(arguments)
        return ExtenderPreemptionResult(
            {name: each for name, each in victims.items() if self._fits_without(pod, name, each)}
        )

    def gpus(self, pod: ExtenderPod, node: str) -> Mapping[str, ContainerGpus] | str:
        """Return the GPUs of each container on a node, or why it gets none there."""
        if node in self._closed:
            return self._closed[node]
        self._chooser.follow(self._accounts, pod.request, self._changes)
        found = self._chooser.gpus(node, pod.request, pod.uid)
        if found is None:
            ((refusal, _),) = self._chooser.refusals([node], pod.request, pod.text())
            return refusal.reason
        return {
            name: ContainerGpus(gpus=gpus, request=request)
            for (name, request), gpus in zip(pod.requests.items(), found, strict=True)
        }

    def _choice(self, pod: ExtenderPod, names: Sequence[str], most: int = 0) -> NodeChoice:
        self._chooser.follow(self._accounts, pod.request, self._changes)
        open_ = tuple(name for name in names if name not in self._closed) if self._closed else tuple(names)
        found = self._chooser.choice(open_, pod.request, pod.uid, most=most)
        if not pod.has_gpus_on or pod.has_gpus_on not in names:
            return found
        wanted = {name: min(each, HIGHEST - 1) for name, each in found.wanted.items()}
        return NodeChoice(
            {**wanted, pod.has_gpus_on: HIGHEST}, [name for name in found.unfit if name != pod.has_gpus_on]
        )

    def _fits_without(self, pod: ExtenderPod, node: str, victims: MetaVictims) -> bool:
        account, leaving = self._accounts.get(node), {each.uid for each in victims.pods}
        if account is None or node in self._closed:
            return False
        staying = {uid: each for uid, each in account.pods.items() if uid not in leaving}
        free = SharingNode(devices=account.devices, pods=staying).free()
        return self._chooser.fits_with(node, free, pod.request)


def gpu_states(accounts: Mapping[str, SharingNode]) -> Mapping[str, Sequence[GpuState]]:
    """Return node -> its GPUs, of nodes that have any."""
    return {
        name: [
            GpuState(
                core_available=left.milli // _MILLI_PER_CORE,
                memory_available=left.memory_mib,
                core_total=MILLI_PER_DEVICE // _MILLI_PER_CORE,
                memory_total=device.memory_mib,
            )
            for left, device in zip(account.free(), account.devices, strict=True)
        ]
        for name, account in accounts.items()
        if account.devices
    }


class _Metadata(Struct, frozen=True):
    uid: str = ""


class _SentVictim(Struct, frozen=True):
    uid: str = msgspec.field(name="UID", default="")
    metadata: _Metadata = _Metadata()


class _SentVictims(Struct, frozen=True, rename="pascal"):
    pods: tuple[_SentVictim, ...] | None = None
    disruptions: int = msgspec.field(name="NumPDBViolations", default=0)


def _victims(arguments: ExtenderPreemptionArgs) -> Mapping[str, MetaVictims]:
    """Return the victims of each node: an extender that keeps nodes is sent their uids, any other one whole pods."""
    sent = arguments.nodenametometavictims or arguments.nodenametovictims or {}
    read = {name: read_pod(each, _SentVictims) for name, each in sent.items()}
    return {
        name: MetaVictims([MetaPod(pod.uid or pod.metadata.uid) for pod in each.pods or ()], each.disruptions)
        for name, each in read.items()
    }


def _in_words(request: GpuRequest) -> str:
    if request.devices:
        return f"{request.devices} whole GPU{'s' if request.devices > 1 else ''}"
    asked = {"gpu-core": request.milli // _MILLI_PER_CORE, "gpu-memory": request.memory_mib}
    return ", ".join(f"{name} {amount}" for name, amount in asked.items() if amount)
