"""Where the account of a node and the cluster differ, and the facts that put it right. Pure.

1. Shares of pods that ended, are gone, or are on another node are released; so are shares of pods that were not bound.
2. Of GPUs that have been gone for long, what pods had is released, and the rest is assigned anew.
3. Pods on the node that the account does not have are adopted, with the GPUs that their annotations name, else with
   those that the rater chooses.

Rule: nothing is adopted that would give more of a GPU than it has: such a pod keeps its node closed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Literal

from msgspec import Struct

from voda.cluster.kubernetes.objects import Pod
from voda.cluster.kubernetes.state.shared_gpus import (
    ASSUMED,
    GPUS_OF,
    ShareResources,
    annotated_gpus,
    gpu_annotations,
    share_on,
    share_requests,
)
from voda.cluster.kubernetes.state.sharing_pods import GpuPods
from voda.domain.errors import InvalidInput
from voda.domain.gpus import ContainerGpus
from voda.domain.shares import PodShares, SharingNode
from voda.events.types import ShareAssigned, ShareReleased
from voda.extender.share_verbs import ExtenderPod
from voda.projections.shares import ShareAccounts

UNBOUND_S: Final = 60.0
"""For so long a pod that is not bound keeps its share: kube-scheduler may be about to try again."""
GONE_S: Final = 300.0
"""For so long GPUs may be away: a kubelet that starts again offers none for a moment."""
_CLAIMED: Final = "the node's GPUs are claimed (dynamic resource allocation)"

Choose = Callable[[SharingNode, ExtenderPod], Mapping[str, ContainerGpus] | str]
"""Returns the GPUs of a pod by the rater, on a node with that account, or why there are none."""


class StaleShare(Struct, frozen=True):
    """A share that its pod should not have."""

    pod_uid: str
    pod: str
    reason: str
    certainty: Literal["certain", "if gone", "if unbound"] = "certain"
    """Whether the mirror is enough, or the API server has to be asked first."""


class NodeToCorrect(Struct, frozen=True, kw_only=True):
    """A node whose account may be wrong."""

    name: str
    account: SharingNode
    names: ShareResources
    choose: Choose
    drops_lost: bool = False
    """Whether the GPUs that it lacks have been gone for long."""


class NodeFacts(Struct, frozen=True):
    """The facts that put the account of a node right, in order."""

    facts: Sequence[ShareReleased | ShareAssigned]
    refused: Mapping[str, str]
    """Pods that cannot be adopted, by uid, and why not."""


def stale_shares(node: str, account: SharingNode, pods: Mapping[str, Pod], now: float) -> Iterator[StaleShare]:
    """Yield the shares of a node that are to be released; `pods` are all of the mirror that ask for GPUs, by uid."""
    for uid, shares in account.pods.items():
        pod = pods.get(uid)
        if pod is None:
            yield StaleShare(uid, shares.pod, "the pod is gone", "if gone")
        elif pod.is_over:
            yield StaleShare(uid, shares.pod, "the pod has ended")
        elif pod.spec.node_name not in ("", node):
            yield StaleShare(uid, shares.pod, f"the pod was bound to node {pod.spec.node_name}")
        elif not pod.spec.node_name and now - shares.assigned_at > UNBOUND_S:
            yield StaleShare(uid, shares.pod, f"the pod was not bound within {UNBOUND_S:g} s", "if unbound")


def has_lost_gpus(account: SharingNode) -> bool:
    """Say whether pods have shares of GPUs that the node does not have."""
    return any(_is_lost(each, account) for each in account.pods.values())


def unrecorded(account: SharingNode, pods: Mapping[str, Pod], names: ShareResources) -> Sequence[Pod]:
    """Return those of the pods on a node that use GPUs of it without being in its account."""
    lacking = [pod for uid, pod in pods.items() if uid not in account.pods]
    return [pod for pod in lacking if _uses_some(pod, account, names)]


class ClosedNodes:
    """Follows which nodes have pods whose GPUs the log does not know: who knows what is left there."""

    def __init__(self, pods: GpuPods) -> None:
        self._pods = pods
        self._found: dict[str, str] = {}
        self._lacking: set[str] = set()
        self._accounts: ShareAccounts | None = None
        self._seen = (0, 0)
        """How many changes of the accounts and of the pods."""

    def now(self, accounts: ShareAccounts) -> Mapping[str, str]:
        """Return the nodes that take no pod, and why not; nodes of which nothing changed are not looked at."""
        if accounts is not self._accounts:
            self._accounts, self._seen = accounts, (0, 0)
        changed = {*accounts.changes.since(self._seen[0]), *self._pods.changes.since(self._seen[1])}
        self._seen = accounts.changes.count, self._pods.changes.count
        for node in changed:
            self._found.pop(node, None)
            self._lacking.discard(node)
            account = accounts.nodes.get(node)
            if account and account.is_claimed:
                self._found[node] = _CLAIMED
            elif account and (lacking := unrecorded(account, self._pods.on(node), self._pods.names)):
                self._found[node] = f"GPUs that pod {lacking[0].metadata.key} uses there are not recorded yet"
                self._lacking.add(node)
        return dict(self._found)

    @property
    def may_open(self) -> bool:
        """Whether the log may have what some node lacks, if it is read further; a node that is claimed stays closed."""
        return bool(self._lacking)


def node_facts(node: NodeToCorrect, *, stale: Sequence[StaleShare], lacking: Sequence[Pod]) -> NodeFacts:
    """Return what is to be recorded of a node: shares that are stale, GPUs that are gone, pods that lack theirs."""
    trial = SharingNode(devices=node.account.devices, pods=dict(node.account.pods))
    facts: list[ShareReleased | ShareAssigned] = []
    for each in stale:
        if trial.pods.pop(each.pod_uid, None) is not None:
            facts.append(ShareReleased(node=node.name, pod_uid=each.pod_uid, pod=each.pod, reason=each.reason))
    for uid, shares in list(trial.pods.items()) if node.drops_lost else ():
        if _is_lost(shares, trial):
            facts += _without_lost(node.name, uid, shares, trial)
    refused = {}
    # Whoever names GPUs uses these; what is left is chosen for the others.
    for pod in sorted(lacking, key=lambda each: ASSUMED not in each.metadata.annotations):
        uid, key, found = pod.metadata.uid, pod.metadata.key, _gpus(pod, trial, node)
        if isinstance(found, str):
            refused[uid] = found
        else:
            facts.append(ShareAssigned(node=node.name, pod_uid=uid, pod=key, containers=found))
            trial.pods[uid] = PodShares(pod=key, containers=found, assigned_at=0.0)
    return NodeFacts(facts, refused)


def lost_annotations(account: SharingNode, pods: Mapping[str, Pod]) -> Iterator[tuple[Pod, Mapping[str, str]]]:
    """Yield the pods on a node whose annotations or label differ from the account, and the right annotations."""
    for uid, pod in pods.items():
        if (shares := account.pods.get(uid)) is None or pod.is_leaving:
            continue
        wanted, there = gpu_annotations(shares.containers), pod.metadata.annotations
        is_labelled = pod.metadata.labels.get(ASSUMED) == wanted[ASSUMED]
        has_others = any(key.startswith(GPUS_OF) and key not in wanted for key in there)
        if is_labelled and not has_others and all(there.get(key) == value for key, value in wanted.items()):
            continue
        requests = {name: share.request for name, share in shares.containers.items()}
        named = annotated_gpus(pod, requests, len(account.devices))
        if named != shares.containers or there.get(ASSUMED) != wanted[ASSUMED] or has_others or not is_labelled:
            yield pod, wanted


def _is_lost(shares: PodShares, account: SharingNode) -> bool:
    return any(max(share.gpus) >= len(account.devices) for share in shares.containers.values())


def _without_lost(
    node: str, uid: str, shares: PodShares, trial: SharingNode
) -> Iterator[ShareReleased | ShareAssigned]:
    count = len(trial.devices)
    lost = sorted({gpu for share in shares.containers.values() for gpu in share.gpus if gpu >= count})
    reason = f"GPU {', '.join(map(str, lost))} of the node is gone"
    yield ShareReleased(node=node, pod_uid=uid, pod=shares.pod, reason=reason)
    left = {name: share_on(share, count) for name, share in shares.containers.items()}
    kept = {name: share for name, share in left.items() if share is not None}
    del trial.pods[uid]
    if kept:
        trial.pods[uid] = PodShares(pod=shares.pod, containers=kept, assigned_at=shares.assigned_at)
        yield ShareAssigned(node=node, pod_uid=uid, pod=shares.pod, containers=kept)


def _uses_some(pod: Pod, account: SharingNode, names: ShareResources) -> bool:
    """Say whether a pod uses GPUs that the node has, as far as its annotations tell."""
    try:
        requests = share_requests(pod, names)
    except InvalidInput:
        return True
    return bool(requests) and annotated_gpus(pod, requests, len(account.devices)) != {}


def _gpus(pod: Pod, trial: SharingNode, node: NodeToCorrect) -> Mapping[str, ContainerGpus] | str:
    try:
        requests = share_requests(pod, node.names)
    except InvalidInput as error:
        return str(error)
    named = annotated_gpus(pod, requests, len(trial.devices))
    if named is None:
        return node.choose(trial, ExtenderPod(uid=pod.metadata.uid, key=pod.metadata.key, requests=requests))
    return trial.refusal(named) or named
