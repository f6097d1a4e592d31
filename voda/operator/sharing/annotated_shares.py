"""What pods that ask for GPUs by extended resources have of a node: annotations name it.

1. Shares of pods that ended, are gone, or are on another node are stale; so are shares of pods that were not bound.
2. Of GPUs that have been gone for long, what pods had is gone too.
3. Pods on the node that the account does not have use the GPUs that their annotations name, else nobody knows which.

Rule: a pod that cannot be recorded keeps its node closed.
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

from voda.application.journal import Journal
from voda.cluster.kubernetes.objects import Pod
from voda.cluster.kubernetes.pod_binding import PodBinding
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
from voda.domain.reasons.pods import BoundElsewhere, GpusGone, NotBoundInTime, PodEnded, PodGone
from voda.domain.shares import PodShares, SharingNode
from voda.extender.share_verbs import ExtenderPod
from voda.operator.sharing.share_corrections import GivenShares, SeenShares, StaleShare
from voda.projections.cluster.shares import ShareAccounts

UNBOUND_S: Final = 60.0
"""For so long a pod that is not bound keeps its share: kube-scheduler may be about to try again."""
GONE_S: Final = 300.0
"""For so long GPUs may be away: a kubelet that starts again offers none for a moment."""
_CLAIMED: Final = "the node's GPUs are claimed (dynamic resource allocation)"


@dataclass(kw_only=True)
class AnnotatedShares:
    """What `ShareReconciler` is told of the extender's nodes."""

    journal: Journal
    binding: PodBinding
    pods: GpuPods
    _lost_since: dict[str, float] = field(default_factory=dict, init=False)
    """Node -> when it was first seen without GPUs of which pods have shares."""

    actor: ClassVar[str] = "shares"

    def follows(self, node: str, account: SharingNode) -> bool:
        """Say whether the node is the extender's."""
        return not account.is_claimed

    def seen(self, node: str, account: SharingNode) -> SeenShares:
        """Return what pods have of the node by the mirror."""
        now = self.journal.clock.now()
        return seen_shares(node, account, self.pods, now, drops_lost=self._are_gone(node, account, now))

    async def is_stale(self, share: StaleShare) -> bool:
        """Ask the API server; of a pod without a node, whoever was about to bind it is refused."""
        namespace, _, name = share.pod.partition("/")
        pod = await self.binding.get(namespace, name)
        if pod is None or pod.metadata.uid != share.pod_uid:
            return True
        if share.certainty == "if gone" or pod.spec.node_name:
            return False
        await self.binding.withdraw(pod, self.journal.clock.new_id())
        return True

    def forget_gone(self, nodes: Container[str]) -> None:
        """Forget what is remembered of nodes but these."""
        self._lost_since = {node: since for node, since in self._lost_since.items() if node in nodes}

    def _are_gone(self, node: str, account: SharingNode, now: float) -> bool:
        if not any(_lost_gpus(each, len(account.devices)) for each in account.pods.values()):
            self._lost_since.pop(node, None)
            return False
        return now - self._lost_since.setdefault(node, now) >= GONE_S


def seen_shares(node: str, account: SharingNode, pods: GpuPods, now: float, *, drops_lost: bool) -> SeenShares:
    """Return what pods have of a node; `drops_lost`: the GPUs that it lacks have been gone for long."""
    count = len(account.devices)
    stale = {each.pod_uid: each for each in stale_shares(node, account, pods.by_uid, now)}
    given = dict[str, GivenShares]()
    for uid, shares in account.pods.items() if drops_lost else ():
        if lost := _lost_gpus(shares, count):
            reason = GpusGone(gpus=tuple(lost))
            if kept := _kept(shares, count):
                given[uid] = GivenShares(key=shares.pod, containers=kept, instead=reason)
            else:
                stale[uid] = StaleShare(uid, shares.pod, reason)
    unnamed, refused = list[ExtenderPod](), dict[str, str]()
    for pod in unrecorded(account, pods.on(node), pods.names) if account.devices else ():
        uid, key = pod.metadata.uid, pod.metadata.key
        try:
            requests = share_requests(pod, pods.names)
        except InvalidInput as error:
            refused[uid] = str(error)
            continue
        if (named := annotated_gpus(pod, requests, count)) is not None:
            given[uid] = GivenShares(key=key, containers=named)
        else:
            unnamed.append(ExtenderPod(uid=uid, key=key, requests=requests))
    return SeenShares(stale=list(stale.values()), given=given, unnamed=unnamed, refused=refused)


def stale_shares(node: str, account: SharingNode, pods: Mapping[str, Pod], now: float) -> Iterator[StaleShare]:
    """Yield the shares of a node that are to be released; `pods` are all of the mirror that ask for GPUs, by uid."""
    for uid, shares in account.pods.items():
        pod = pods.get(uid)
        if pod is None:
            yield StaleShare(uid, shares.pod, PodGone(), "if gone")
        elif pod.is_over:
            yield StaleShare(uid, shares.pod, PodEnded())
        elif pod.spec.node_name not in ("", node):
            yield StaleShare(uid, shares.pod, BoundElsewhere(node=pod.spec.node_name))
        elif not pod.spec.node_name and now - shares.assigned_at > UNBOUND_S:
            yield StaleShare(uid, shares.pod, NotBoundInTime(within_s=UNBOUND_S), "if unbound")


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
        of_nodes = accounts.changes.since(self._seen[0]) if accounts is self._accounts else None
        of_pods = self._pods.changes.since(self._seen[1])
        self._accounts, self._seen = accounts, (accounts.changes.count, self._pods.changes.count)
        is_new = of_nodes is None or of_pods is None
        for node in {*self._found, *accounts.nodes} if is_new else {*(of_nodes or ()), *(of_pods or ())}:
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


def _lost_gpus(shares: PodShares, count: int) -> Sequence[int]:
    return sorted({gpu for share in shares.containers.values() for gpu in share.gpus if gpu >= count})


def _kept(shares: PodShares, count: int) -> Mapping[str, ContainerGpus]:
    left = {name: share_on(share, count) for name, share in shares.containers.items()}
    return {name: share for name, share in left.items() if share is not None}


def _uses_some(pod: Pod, account: SharingNode, names: ShareResources) -> bool:
    """Say whether a pod uses GPUs that the node has, as far as its annotations tell."""
    try:
        requests = share_requests(pod, names)
    except InvalidInput:
        return True
    return bool(requests) and annotated_gpus(pod, requests, len(account.devices)) != {}
