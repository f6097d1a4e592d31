"""Node and GPUs for pods that claim parts of GPUs, by the rater, one pod after the other. Pure.

Rule: each pod is placed in the accounts that the ones before it leave; nodes where it can never run are left out.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from voda.cluster.kubernetes.device_objects import ResourceClaim
from voda.cluster.kubernetes.objects import Pod
from voda.domain.gpus import ContainerGpus, GpuRequest, Gpus
from voda.domain.shares import PodShares, SharingNode
from voda.sharing.rating import GpuChooser, PodRequest

_CLOSED: Final = "closed"
_KEPT: Final = "kept"
_ALL: Final = GpuRequest(devices=Gpus(1))


class Claimant(Struct, frozen=True, kw_only=True):
    """A pod that waits for GPUs."""

    pod: Pod
    claims: Mapping[str, ResourceClaim]
    """By their name within the pod."""
    requests: Mapping[str, GpuRequest]
    """By `share_key`."""
    avoided: Collection[str] = ()
    """Nodes that kube-scheduler refused it on."""
    too_small: Collection[str] = ()
    """Nodes of which no GPU has as much as it asks for."""
    amounts: Mapping[str, int] = {}
    """What it requests of CPU and memory, in thousandths."""

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


class ChosenGpus(Struct, frozen=True, kw_only=True):
    """Node and GPUs of a pod."""

    claimant: Claimant
    node: str
    containers: Mapping[str, ContainerGpus]
    assigned_at: float = 0.0
    """When the log had them first; 0: it has them not yet."""
    renewals: int = 0
    """How often the pod's claims are to have been made anew at least."""


class NoRoom(NamedTuple):
    """That a pod finds no room."""

    claimant: Claimant
    nodes: Sequence[str]
    """Where it could be, were there room."""
    reason: str
    """One sentence."""


class OpenNode(Struct, frozen=True, kw_only=True):
    """A node whose GPUs can be chosen."""

    account: SharingNode
    labels: Mapping[str, str]
    closed_gpus: Mapping[int, str] = {}
    """Indices of GPUs that nobody can be given now -> why, the end of a sentence."""
    amounts: Mapping[str, int] = {}
    """What it has of CPU and memory for all pods together, in thousandths; what is not known is left out."""


class ClosedAccounts:
    """Accounts in which closed GPUs are in use; made anew only where something changed, for choosers read each that is
    another one.
    """

    def __init__(self) -> None:
        self._version = -1
        """The last that was given; choosers take -1 for no account."""
        self._made: dict[str, tuple[tuple[int, Collection[int]], SharingNode]] = {}
        """Node -> what its account was made of, and it."""

    def accounts(self, nodes: Mapping[str, OpenNode]) -> dict[str, SharingNode]:
        """Return the accounts of all open nodes, which are not to be changed."""
        self._made = {name: self._of(name, node) for name, node in nodes.items()}
        return {name: account for name, (_, account) in self._made.items()}

    def _of(self, name: str, node: OpenNode) -> tuple[tuple[int, Collection[int]], SharingNode]:
        closed = frozenset(node.closed_gpus)
        made_of = node.account.version, closed
        known = self._made.get(name)
        if known is None or known[0] != made_of or known[1].devices != node.account.devices:
            return made_of, self._account(node.account, closed)
        return known

    def next_version(self) -> int:
        """Return a version that no account has."""
        self._version -= 1
        return self._version

    def _account(self, account: SharingNode, closed: Collection[int]) -> SharingNode:
        made = account.copy()
        for gpu in closed:
            whole = {_CLOSED: ContainerGpus(gpus=(gpu,), request=_ALL)}
            made.pods[f"{_CLOSED} {gpu}"] = PodShares(pod=_CLOSED, containers=whole, assigned_at=0.0)
        if closed:
            made.version = self.next_version()
        return made


class Allotment:
    """Chooses GPUs for one pod after the other, each from what those before it leave."""

    def __init__(
        self,
        chooser: GpuChooser,
        nodes: Mapping[str, OpenNode],
        closed: ClosedAccounts,
    ) -> None:
        """Begin with what nodes have left."""
        self._chooser = chooser
        self._made = closed
        self._nodes = nodes
        self._accounts = closed.accounts(nodes)
        self._too_cramped: dict[frozenset[tuple[str, int]], Collection[str]] = {}
        self._refusals: dict[_Asked, tuple[Sequence[str], str]] = {}
        """Many pods ask for the same, in the same words: the nodes where they could be, and what they are told."""

    def keep_requested(self, node: str, claimant: Claimant) -> None:
        """Keep whole GPUs of a node from younger pods, for one that has requested some, of which too few are free yet.

        They come free one after the other, and whoever needs one alone would always be faster.
        """
        if node not in self._accounts:
            return
        needed = sum(max(1, each.devices) for each in claimant.requests.values())
        if kept := _whole(self._accounts[node])[:needed]:
            whole = {f"{gpu}": ContainerGpus(gpus=(gpu,), request=_ALL) for gpu in kept}
            self._give(node, f"{_KEPT} {claimant.uid}", PodShares(pod=_KEPT, containers=whole, assigned_at=0.0))

    def choose(self, claimant: Claimant) -> ChosenGpus | NoRoom:
        """Return node and GPUs of a pod, or why there are none."""
        asked = _asked(claimant)
        if asked not in self._refusals:
            names = self._names(claimant)
            if (chosen := self._choose(names, claimant)) is not None:
                return chosen
            self._refusals[asked] = names, self._refusal(claimant, names)
        return NoRoom(claimant, *self._refusals[asked])

    def _names(self, claimant: Claimant) -> Sequence[str]:
        """Return the nodes where a pod could be, were there room."""
        left_out = {*claimant.avoided, *claimant.too_small, *self._cramped(claimant)}
        return [name for name, node in self._nodes.items() if name not in left_out and selects(claimant.pod, node)]

    def _choose(self, names: Sequence[str], claimant: Claimant) -> ChosenGpus | None:
        self._chooser.follow(self._accounts, claimant.request)
        if not (wanted := self._chooser.preferences(names, claimant.request, claimant.uid)):
            return None
        node = max(wanted, key=lambda name: wanted[name])
        found = self._chooser.gpus(node, claimant.request, claimant.uid)
        assert found is not None
        containers = {
            name: ContainerGpus(gpus=gpus, request=request)
            for (name, request), gpus in zip(claimant.requests.items(), found, strict=True)
        }
        self._give(node, claimant.uid, PodShares(pod=claimant.key, containers=containers, assigned_at=0.0))
        return ChosenGpus(claimant=claimant, node=node, containers=containers)

    def _give(self, node: str, uid: str, shares: PodShares) -> None:
        self._accounts[node] = account = self._accounts[node].copy()
        account.pods[uid] = shares
        account.version = self._made.next_version()

    def _cramped(self, claimant: Claimant) -> Collection[str]:
        """Return the nodes that have less than a pod requests, whatever is left of it; many pods request the same."""
        key = frozenset(claimant.amounts.items())
        if key not in self._too_cramped:
            self._too_cramped[key] = {
                name for name, node in self._nodes.items() if not _is_large_enough(claimant, node)
            }
        return self._too_cramped[key]

    def _refusal(self, claimant: Claimant, names: Sequence[str]) -> str:
        refused = self._chooser.refusals(names, claimant.request, claimant.text())
        reasons = Counter({each.reason: len(nodes) for each, nodes in refused})
        open_, text = set(names), claimant.text()
        reasons.update(_obstacle(claimant, text, name, self._nodes[name]) for name in self._nodes if name not in open_)
        told = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common())
        return f"0/{len(self._nodes)} nodes with GPUs to claim have room: {told or 'none is ready'}{self._closed()}"

    def _closed(self) -> str:
        """Return which GPUs nobody is given, as the end of a sentence."""
        reasons = Counter(reason for node in self._nodes.values() for reason in node.closed_gpus.values())
        told = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common())
        return f"; GPUs that voda leaves alone: {told}" if told else ""


_Asked = tuple[str, frozenset[tuple[str, str]], frozenset[str], frozenset[str], frozenset[tuple[str, int]]]
"""What decides the answer to a pod."""


def _asked(claimant: Claimant) -> _Asked:
    return (
        claimant.text(),
        frozenset(claimant.pod.spec.node_selector.items()),
        frozenset(claimant.avoided),
        frozenset(claimant.too_small),
        frozenset(claimant.amounts.items()),
    )


def _obstacle(claimant: Claimant, text: str, name: str, node: OpenNode) -> str:
    """Return why a pod cannot be on a node, whatever is left of its GPUs."""
    if name in claimant.too_small:
        return f"the node's GPUs are too few or too small for {text}"
    if name in claimant.avoided or not selects(claimant.pod, node):
        return "the pod does not select the node, or kube-scheduler refused it there"
    return "the node has less CPU or memory than the pod requests"


def _is_large_enough(claimant: Claimant, node: OpenNode) -> bool:
    return all(amount <= node.amounts.get(resource, amount) for resource, amount in claimant.amounts.items())


def _whole(account: SharingNode) -> Sequence[int]:
    return [gpu for gpu, left in enumerate(account.free()) if left.is_whole]


def selects(pod: Pod, node: OpenNode) -> bool:
    """Return whether a pod may be on a node by its `nodeSelector`."""
    return all(node.labels.get(key) == value for key, value in pod.spec.node_selector.items())


def _in_words(request: GpuRequest) -> str:
    if request.devices:
        return "a whole GPU" if request.devices == 1 else f"{request.devices} whole GPUs"
    parts = [f"{request.milli} milli"] * bool(request.milli) + [f"{request.memory_mib} MiB"] * bool(request.memory_mib)
    return ", ".join(parts)
