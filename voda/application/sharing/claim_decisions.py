"""What follows from claims and the accounts of nodes: facts that put accounts right, and cards for pods. Pure.

1. What claims were given is what their pods have: an account that says something else is corrected.
2. Shares of pods that ended, are gone, or were given other cards are released.
3. Pods that wait get node and cards by the rater, the oldest first, each in the accounts that the ones before it leave.

Rule: the API server gives no card twice; where a share that is only meant is in the way of one that was given, it goes.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal

from msgspec import Struct

from voda.cluster.kubernetes.device_objects import ResourceClaim
from voda.cluster.kubernetes.objects import Pod
from voda.domain.gpus import CardShare, GpuRequest, Gpus
from voda.domain.shares import PodShares, SharingNode
from voda.events.types import ShareAssigned, ShareReleased
from voda.sharing.card_chooser import CardChooser
from voda.sharing.pod import PodRequest

_CLOSED: Final = "closed"
_ALL: Final = GpuRequest(devices=Gpus(1))
Standing = Literal["nothing", "elsewhere", "lost"]
"""What the claims of a pod have that have nothing of a node: nothing at all, cards of another node, or cards that no
driver publishes any more."""
UNALLOCATED_S: Final = 60.0
"""For so long a pod on a node may have shares of which its claims know nothing: watches are behind one another."""


class GivenShares(Struct, frozen=True, kw_only=True):
    """What the claims of a pod, or a claim of its own, have of a node."""

    key: str
    """`namespace/name` of the pod, or of the claim."""
    containers: Mapping[str, CardShare]


class Claimant(Struct, frozen=True, kw_only=True):
    """A pod that waits for cards."""

    pod: Pod
    claims: Mapping[str, ResourceClaim]
    """By their name within the pod."""
    requests: Mapping[str, GpuRequest]
    """By `share_key`."""
    avoided: Collection[str] = ()
    """Nodes that kube-scheduler refused it on."""
    too_small: Collection[str] = ()
    """Nodes of which no card has as much as it asks for."""

    @property
    def uid(self) -> str:
        return self.pod.metadata.uid

    @property
    def key(self) -> str:
        return self.pod.metadata.key

    @property
    def request(self) -> PodRequest:
        """Return what raters read."""
        return PodRequest(containers=tuple(self.requests.values()))

    def text(self) -> str:
        """Return what it asks for, such as `gpu (250 milli, 4096 MiB)`."""
        return ", ".join(f"{name} ({_in_words(each)})" for name, each in self.requests.items())


class ChosenCards(Struct, frozen=True, kw_only=True):
    """Node and cards of a pod."""

    claimant: Claimant
    node: str
    containers: Mapping[str, CardShare]


class OpenNode(Struct, frozen=True, kw_only=True):
    """A node whose cards can be chosen."""

    account: SharingNode
    labels: Mapping[str, str]
    closed_cards: Collection[int] = ()
    """Indices of cards that nobody can be given now."""


def node_corrections(
    node: str,
    account: SharingNode,
    given: Mapping[str, GivenShares],
    stale: Mapping[str, str],
) -> Sequence[ShareReleased | ShareAssigned]:
    """Return the facts by which an account comes to say what claims were given.

    Args:
        node: its name.
        account: what the log has.
        given: uid of a pod or claim -> what it has of the node, by the API server.
        stale: uids of the account that have nothing there any more -> why.
    """
    trial, facts = account.copy(), list[ShareReleased | ShareAssigned]()

    def release(uid: str, reason: str) -> None:
        facts.append(ShareReleased(node=node, pod_uid=uid, pod=trial.pods.pop(uid).pod, reason=reason))

    for uid, reason in stale.items():
        release(uid, reason)
    wrong = [uid for uid, each in given.items() if not _is_recorded(trial, uid, each)]
    for uid in [uid for uid in wrong if uid in trial.pods]:
        release(uid, "its claims were given other cards, or another part of them")
    for uid in wrong:
        shares = given[uid].containers
        if trial.refusal(shares):
            cards = {card for each in shares.values() for card in each.cards}
            for other in [other for other in trial.pods if other not in given and _uses(trial.pods[other], cards)]:
                release(other, f"kube-scheduler has given its card to {given[uid].key}")
        if not trial.refusal(shares):
            facts.append(ShareAssigned(node=node, pod_uid=uid, pod=given[uid].key, containers=shares))
            trial.pods[uid] = PodShares(pod=given[uid].key, containers=shares, assigned_at=0.0)
    return facts


def stale_claimants(
    account: SharingNode,
    given: Collection[str],
    pods: Mapping[str, Pod],
    standing: Callable[[str], Standing],
    now: float,
) -> Iterator[tuple[str, str, bool]]:
    """Yield uid, reason, and whether that is certain without the API server, of shares that no claim has any more.

    Args:
        account: of one node.
        given: uids that have something of the node.
        pods: those that voda places, by uid.
        standing: says what the claims of the others have.
        now: seconds since the epoch.
    """
    for uid, shares in account.pods.items():
        if uid in given:
            continue
        pod, has = pods.get(uid), standing(uid)
        if has == "elsewhere":
            yield uid, "its claims were given cards of another node", True
        elif pod is None:
            yield uid, "the pod has ended or is gone", False
        elif pod.is_over:
            yield uid, "the pod has ended", True
        elif has == "nothing" and pod.spec.node_name and now - shares.assigned_at > UNALLOCATED_S:
            yield uid, "its claims have no cards", True


class CardAllotment:
    """Chooses cards for one pod after the other, each from what those before it leave."""

    def __init__(self, chooser: CardChooser, nodes: Mapping[str, OpenNode], first_version: int) -> None:
        self.version = first_version
        """Never twice the same, so that the chooser reads every account that has changed."""
        self._chooser = chooser
        self._nodes = nodes
        self._accounts = {name: self._account(each) for name, each in nodes.items()}
        self._refused: dict[tuple[str, frozenset[tuple[str, str]], frozenset[str], frozenset[str]], str] = {}
        """Many pods ask for the same, in the same words: these are what they are told."""

    def choose(self, claimant: Claimant) -> ChosenCards | str:
        """Return node and cards of a pod, or why there are none, one sentence."""
        pod = claimant.pod
        selected, avoided = frozenset(pod.spec.node_selector.items()), frozenset(claimant.avoided)
        asked = (claimant.text(), selected, avoided, frozenset(claimant.too_small))
        if reason := self._refused.get(asked):
            return reason
        left_out = avoided | asked[3]
        names = [name for name, node in self._nodes.items() if _matches(pod, node) and name not in left_out]
        self._chooser.follow(self._accounts, claimant.request)
        wanted = self._chooser.preferences(names, claimant.request, claimant.uid)
        if not wanted:
            self._refused[asked] = self._refusal(claimant, names)
            return self._refused[asked]
        node = max(wanted, key=lambda name: wanted[name])
        found = self._chooser.cards(node, claimant.request, claimant.uid)
        assert found is not None
        containers = {
            name: CardShare(cards=cards, request=request)
            for (name, request), cards in zip(claimant.requests.items(), found, strict=True)
        }
        self._give(node, claimant, containers)
        return ChosenCards(claimant=claimant, node=node, containers=containers)

    def _account(self, node: OpenNode) -> SharingNode:
        account = node.account.copy()
        for card in node.closed_cards:
            closed = {_CLOSED: CardShare(cards=(card,), request=_ALL)}
            account.pods[f"{_CLOSED} {card}"] = PodShares(pod=_CLOSED, containers=closed, assigned_at=0.0)
            account.version = self.version = self.version - 1
        return account

    def _give(self, node: str, claimant: Claimant, containers: Mapping[str, CardShare]) -> None:
        account = self._accounts[node]
        account.pods[claimant.uid] = PodShares(pod=claimant.key, containers=containers, assigned_at=0.0)
        account.version = self.version = self.version - 1

    def _refusal(self, claimant: Claimant, names: Sequence[str]) -> str:
        refused = self._chooser.refusals(names, claimant.request, claimant.text())
        reasons = Counter(each.reason for each in refused.values())
        if small := sum(name in claimant.too_small for name in self._nodes):
            reasons[f"the node's cards are too few or too small for {claimant.text()}"] += small
        if others := len(self._nodes) - len(names) - small:
            reasons["the pod does not select the node, or kube-scheduler refused it there"] = others
        told = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common())
        return f"0/{len(self._nodes)} nodes with cards to claim have room: {told or 'none is ready'}"


def _is_recorded(account: SharingNode, uid: str, given: GivenShares) -> bool:
    found = account.pods.get(uid)
    return found is not None and found.containers == given.containers


def _uses(shares: PodShares, cards: Iterable[int]) -> bool:
    return any(card in cards for share in shares.containers.values() for card in share.cards)


def _matches(pod: Pod, node: OpenNode) -> bool:
    return all(node.labels.get(key) == value for key, value in pod.spec.node_selector.items())


def _in_words(request: GpuRequest) -> str:
    if request.devices:
        return "a whole card"
    parts = [f"{request.milli} milli"] * bool(request.milli) + [f"{request.memory_mib} MiB"] * bool(request.memory_mib)
    return ", ".join(parts)
