"""Binds a pod that asks for GPUs: its share into the log, then its node and its annotations in one write.

1. Look at the pod: it is the one that kube-scheduler means, and nobody has bound it.
2. Append `share.assigned` at the version of the node's account that the GPUs were chosen by.
3. Bind the pod, with the annotations that name its GPUs, at the version of the pod that was looked at.

Rules: the mirror's pod is good enough for the first try, since a later version of it refuses the write. Whoever dies
between two steps leaves a share of a pod without a node; the next try uses it, or withdraws it. A share is taken from
an unbound pod only once no earlier try can bind the pod any more: its version was changed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final
from weakref import WeakValueDictionary

from voda.application.journal import Journal
from voda.cluster.kubernetes.objects import Pod
from voda.cluster.kubernetes.pod_binding import PodBinding
from voda.cluster.kubernetes.state.shared_gpus import gpu_annotations, share_requests
from voda.cluster.kubernetes.state.sharing_pods import GpuPods
from voda.domain.errors import ActionRefused, ChangedMeanwhile, NotFound, VersionConflict, WrongState
from voda.domain.gpus import ContainerGpus
from voda.domain.reasons.pods import BoundAgain, ChosenElsewhere
from voda.domain.shares import SharingNode
from voda.events.types import ShareAssigned, ShareReleased
from voda.extender.share_verbs import ExtenderPod, ShareVerbs
from voda.extender.wire import ExtenderBindingArgs
from voda.operator.sharing.share_reconciler import record_shares, version_of
from voda.projections.cluster.shares import ShareAccounts

ACTOR: Final = "extender"
_MOST_TRIES: Final = 20
"""Of one call: each fails because somebody else went on."""


class ShareBinder:
    """Binds pods; `placement` answers from the accounts as they are now."""

    def __init__(
        self,
        journal: Journal,
        pods: PodBinding,
        mirror: GpuPods,
        placement: Callable[[], Awaitable[ShareVerbs]],
    ) -> None:
        self._journal = journal
        self._pods = pods
        self._mirror = mirror
        self._placement = placement
        self._turns = WeakValueDictionary[str, asyncio.Lock]()

    async def bind(self, arguments: ExtenderBindingArgs) -> None:
        """Bind a pod to the node that kube-scheduler chose.

        Raises:
            VodaError: it is not bound, and why.
        """
        is_mirror_good = True
        for _ in range(_MOST_TRIES):
            try:
                await self._try(arguments, await self._pod(arguments, is_mirror_good=is_mirror_good))
            except (ChangedMeanwhile, VersionConflict) as error:
                is_mirror_good = is_mirror_good and isinstance(error, VersionConflict)
                await self._journal.catch_up()
            else:
                return
        raise ActionRefused(
            f"pod {_key(arguments)} is not bound to {arguments.node}: one of them changed {_MOST_TRIES} times meanwhile"
        )

    async def _pod(self, arguments: ExtenderBindingArgs, *, is_mirror_good: bool) -> Pod:
        mirrored = self._mirror.by_uid.get(arguments.poduid)
        if is_mirror_good and mirrored is not None and mirrored.metadata.key == _key(arguments):
            return _checked(mirrored, arguments)
        return _checked(await self._pods.get(arguments.podnamespace, arguments.podname), arguments)

    async def _try(self, arguments: ExtenderBindingArgs, pod: Pod) -> None:
        if pod.spec.node_name:
            return
        node, uid, former = arguments.node, pod.metadata.uid, self._accounts.node_of(pod.metadata.uid)
        requests = share_requests(pod, self._mirror.names)
        if not requests:
            raise WrongState(f"pod {pod.metadata.key} asks for no GPUs: leave it to kube-scheduler to bind it")
        if former not in ("", node):
            pod = await self._pods.withdraw(pod, self._journal.clock.new_id())
            await self._release(pod, former, ChosenElsewhere(node=node))
        asking = ExtenderPod(uid=uid, key=pod.metadata.key, requests=requests)
        async with self._turn(node):
            shares = await self._assign(asking, node)
        await self._pods.bind(pod, node, gpu_annotations(shares))

    def _turn(self, node: str) -> asyncio.Lock:
        """Return the lock of a node's account within this process; it lasts for an append, and for no call elsewhere.

        kube-scheduler binds several pods at once, and most raters fill one node after the other: without it all but one
        of these appends would be refused, and decided again.
        """
        return self._turns.setdefault(node, asyncio.Lock())

    async def _assign(self, pod: ExtenderPod, node: str) -> Mapping[str, ContainerGpus]:
        """Have the pod's share of a node in the log, and return it."""
        placement = await self._placement()
        account = self._accounts.nodes.get(node, SharingNode())
        had = account.pods.get(pod.uid)
        shares = placement.gpus(pod, node) if had is None else had.containers
        if isinstance(shares, str):
            raise WrongState(f"pod {pod.key} cannot be bound to node {node}: {shares}")
        assigned = ShareAssigned(node=node, pod_uid=pod.uid, pod=pod.key, containers=shares)
        facts: list[ShareAssigned | ShareReleased] = [assigned]
        if had is not None:
            # Recorded anew: whoever is about to take it away, since the pod was not bound for long, is refused.
            facts.insert(0, ShareReleased(node=node, pod_uid=pod.uid, pod=pod.key, reason=BoundAgain()))
        await record_shares(self._journal, *facts, actor=ACTOR, version=account.version)
        given = self._accounts.pods(node).get(pod.uid)
        if given is None or given.containers != shares:
            raise ChangedMeanwhile(f"the share of pod {pod.key} on node {node} is void: GPUs or pod changed meanwhile")
        return shares

    async def _release(self, pod: Pod, node: str, reason: ChosenElsewhere) -> None:
        meta, version = pod.metadata, version_of(self._accounts, node)
        fact = ShareReleased(node=node, pod_uid=meta.uid, pod=meta.key, reason=reason)
        await record_shares(self._journal, fact, actor=ACTOR, version=version)

    @property
    def _accounts(self) -> ShareAccounts:
        return self._journal.view.cluster.shares


def _checked(pod: Pod | None, arguments: ExtenderBindingArgs) -> Pod:
    """Return the pod that is to be bound, or has that node already; raises where it is another, over or elsewhere."""
    key = _key(arguments)
    if pod is None:
        raise NotFound(f"pod {key} is gone")
    if pod.metadata.uid != arguments.poduid:
        raise WrongState(f"pod {key} is another one by now: its uid is {pod.metadata.uid}, not {arguments.poduid}")
    if pod.is_leaving or pod.is_over:
        raise WrongState(f"pod {key} {'is being deleted' if pod.is_leaving else 'has ended'}: it is not bound any more")
    if pod.spec.node_name not in ("", arguments.node):
        raise WrongState(f"pod {key} is on node {pod.spec.node_name}, and cannot be bound to {arguments.node}")
    return pod


def _key(arguments: ExtenderBindingArgs) -> str:
    return f"{arguments.podnamespace}/{arguments.podname}"
