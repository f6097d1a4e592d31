"""Decides as kube-scheduler's extender about pods that ask for GPUs or shares.

Rule: every replica answers, by its own fold of the log and its own mirror; what it appends, it appends at the versions
that it has read.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from voda.application.journal import Journal
from voda.cluster.kubernetes.objects import Pod
from voda.cluster.kubernetes.pod_binding import PodBinding
from voda.cluster.kubernetes.state.shared_gpus import share_requests
from voda.cluster.kubernetes.state.sharing_pods import GpuPods
from voda.domain.errors import ClusterUnavailable, InvalidInput
from voda.extender.share_verbs import ExtenderPod, ShareVerbs, gpu_states
from voda.extender.wire import (
    ExtenderArgs,
    ExtenderBindingArgs,
    ExtenderFilterResult,
    ExtenderPreemptionArgs,
    ExtenderPreemptionResult,
    HostPriority,
)
from voda.kubernetes_client.decoding import Unreadable, read
from voda.operator.sharing.annotated_shares import ClosedNodes
from voda.operator.sharing.share_binder import ShareBinder
from voda.projections.cluster.shares import ShareAccounts
from voda.sharing.rating import GpuChooser


@dataclass(kw_only=True)
class ShareExtender:
    """The verbs of one replica."""

    journal: Journal
    binding: PodBinding
    pods: GpuPods
    """Of this replica's mirror."""
    chooser: GpuChooser
    is_synced: Callable[[], bool]
    """Whether the mirror has read the cluster."""
    most_nodes: int = 0
    """So many nodes are the answer to filter at most, the best ones; 0 = all."""
    _asked_at: int = field(default=-1, init=False)
    """Changes of the pods up to which the log has been read to its end."""

    def __post_init__(self) -> None:
        self._closed = ClosedNodes(self.pods)
        self._binder = ShareBinder(self.journal, self.binding, self.pods, self._placement)

    async def filter(self, arguments: ExtenderArgs) -> ExtenderFilterResult:
        """Return the nodes where the pod's GPUs are free; raises VodaError, as all verbs do."""
        return (await self._placement()).filter(self._pod(arguments.pod), arguments.names)

    async def prioritize(self, arguments: ExtenderArgs) -> Sequence[HostPriority]:
        """Return how much each node is preferred, 0 to 10."""
        return (await self._placement()).prioritize(self._pod(arguments.pod), arguments.names)

    async def preempt(self, arguments: ExtenderPreemptionArgs) -> ExtenderPreemptionResult:
        """Return the nodes, with their victims, where the pod's GPUs are free once these have left."""
        return (await self._placement()).preempt(self._pod(arguments.pod), arguments)

    async def bind(self, arguments: ExtenderBindingArgs) -> None:
        """Give a pod its GPUs, and bind it."""
        await self._binder.bind(arguments)

    def status(self) -> Mapping[str, str]:
        """Return resource -> JSON of node -> its GPUs, as elastic-gpu-scheduler has it."""
        states = msgspec.json.encode(gpu_states(self._accounts.nodes)).decode()
        return {self.pods.names.core[0]: states}

    @property
    def _accounts(self) -> ShareAccounts:
        return self.journal.view.cluster.shares

    def _pod(self, text: msgspec.Raw) -> ExtenderPod:
        try:
            pod = read(text, Pod)
        except Unreadable as error:
            raise InvalidInput(f"Pod cannot be read: {error}") from error
        if not (uid := pod.metadata.uid):
            raise InvalidInput(f"pod {pod.metadata.key or '?'} has no uid")
        if pod.spec.node_name:
            raise InvalidInput(f"pod {pod.metadata.key} names node {pod.spec.node_name} itself: it is not to be placed")
        if not (requests := share_requests(pod, self.pods.names)):
            names = ", ".join((*self.pods.names.core, *self.pods.names.memory))
            raise InvalidInput(f"pod {pod.metadata.key} asks for no GPUs: expected some of {names}")
        return ExtenderPod(uid=uid, key=pod.metadata.key, requests=requests, has_gpus_on=self._accounts.node_of(uid))

    async def _placement(self) -> ShareVerbs:
        if not self.is_synced():
            raise ClusterUnavailable("this replica is still reading the cluster: try again in a moment")
        changes, closed = self.pods.changes.count, self._closed.now(self._accounts)
        if self._closed.may_open and changes != self._asked_at:
            # The mirror may be ahead of the fold: another replica may have bound a pod just now.
            await self.journal.catch_up()
            self._asked_at, closed = changes, self._closed.now(self._accounts)
        accounts = self._accounts
        return ShareVerbs(self.chooser, accounts.nodes, closed, accounts.changes, most=self.most_nodes)
