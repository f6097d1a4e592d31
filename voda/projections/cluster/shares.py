"""Which pods have which GPUs of nodes, the account of shared GPUs.

Rule: a fact that gives more of a GPU than is left of it, or a second account to a pod, changes nothing, so no GPU
ever gives more than 1,000 milli or its memory, whatever was recorded.
"""

from collections.abc import Collection, Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from voda.changed_keys import ChangedKeys
from voda.domain.gpus import Gpus
from voda.domain.groups import copied
from voda.domain.node import Node
from voda.domain.shares import PendingRequest, PodShares, SharingNode
from voda.events import types as facts
from voda.events.envelope import Event
from voda.projections.base import Projection

_NO_PODS: Final[Mapping[str, PodShares]] = {}


class ShareAccounts(Projection):
    """The accounts of all nodes."""

    def __init__(self) -> None:
        self._nodes: dict[str, SharingNode] = {}
        self._node_of: dict[str, str] = {}
        """uid of a pod -> its node."""
        self._requested_of: dict[str, str] = {}
        """uid of a pod that waits -> the node whose GPUs it has requested."""
        self.changes = ChangedKeys()
        """The nodes of which something changed. Not part of the state."""

    @property
    def nodes(self) -> Mapping[str, SharingNode]:
        """By name, those with GPUs to share or with pods that have some; read-only, changing with the log."""
        return self._nodes

    def node_of(self, pod_uid: str) -> str:
        """Return the node whose GPUs a pod has; empty: none."""
        return self._node_of.get(pod_uid, "")

    def pods(self, node: str) -> Mapping[str, PodShares]:
        """Return what pods have of a node, by uid."""
        found = self._nodes.get(node)
        return found.pods if found else _NO_PODS

    def of(self, pod_uid: str) -> PodShares | None:
        """Return what a pod has."""
        return self.pods(self.node_of(pod_uid)).get(pod_uid)

    def requests(self) -> Mapping[str, str]:
        """Return uid of a pod that waits for GPUs which jobs can spare -> their node; read-only."""
        return self._requested_of

    def accounts(self, nodes: Collection[str]) -> dict[str, SharingNode]:
        """Return the accounts of these nodes as they are now."""
        return {name: account.copy() for name, account in self._nodes.items() if name in nodes}

    def without_shared_gpus(self, nodes: Mapping[str, Node]) -> dict[str, Node]:
        """Return the nodes as policies for whole GPUs see them: a GPU of which somebody has a share is others'."""
        whole = copied(nodes)
        # Most nodes have no account: nobody asks for a part of their GPUs.
        for name in self._nodes.keys() & whole.keys():
            whole[name] = self._whole(whole[name])
        return whole

    def dump(self) -> bytes:
        """Return the state as MessagePack."""
        return msgspec.msgpack.encode(self._nodes)

    def load(self, state: bytes) -> None:
        before = self._nodes
        self._nodes = msgspec.msgpack.decode(state, type=dict[str, SharingNode])
        self._node_of = {uid: name for name, node in self._nodes.items() for uid in node.pods}
        self._requested_of = {uid: name for name, node in self._nodes.items() for uid in node.requests}
        self._changed(*before, *self._nodes)

    def rebase(self) -> None:
        """Make this state the beginning of another log, in which all streams are empty."""
        for node in self._nodes.values():
            node.version = 0
        self._changed(*self._nodes)

    def _changed(self, *names: str) -> None:
        for name in names:
            self.changes.add(name)

    def _written(self, name: str, version: int) -> SharingNode:
        node = self._nodes.setdefault(name, SharingNode())
        node.version = version
        self._changed(name)
        return node

    def _end_request(self, pod_uid: str) -> None:
        if node := self._requested_of.pop(pod_uid, ""):
            del self._nodes[node].requests[pod_uid]
            self._changed(node)
            self._tidy(node)

    def _whole(self, node: Node) -> Node:
        found = self._nodes.get(node.name)
        used = found.used_gpus() if found and node.gpus else 0
        return replace(node, foreign_gpus=Gpus(min(node.gpus, node.foreign_gpus + used))) if used else node

    def _tidy(self, name: str) -> None:
        """Forget the account of a node that is gone, once nobody has any of it; whoever appends reads its version."""
        node = self._nodes.get(name)
        if node is not None and not (node.devices or node.pods or node.requests):
            del self._nodes[name]


@ShareAccounts.folds
def _node_changed(accounts: ShareAccounts, fact: facts.NodeJoined | facts.NodeChanged, event: Event) -> None:
    node = fact.node
    if node.devices or node.name in accounts._nodes:
        accounts._nodes.setdefault(node.name, SharingNode()).devices = node.devices
        accounts._changed(node.name)
        accounts._tidy(node.name)


@ShareAccounts.folds
def _node_left(accounts: ShareAccounts, fact: facts.NodeLeft, event: Event) -> None:
    if (node := accounts._nodes.get(fact.name)) is not None:
        node.devices = ()
        accounts._changed(fact.name)
        accounts._tidy(fact.name)


@ShareAccounts.folds
def _assigned(accounts: ShareAccounts, fact: facts.ShareAssigned, event: Event) -> None:
    node = accounts._written(fact.node, event.version)
    if not accounts.node_of(fact.pod_uid) and fact.containers and not node.refusal(fact.containers):
        shares = PodShares(pod=fact.pod, containers=fact.containers, assigned_at=event.recorded_at)
        node.pods[fact.pod_uid] = shares
        accounts._node_of[fact.pod_uid] = fact.node
        accounts._end_request(fact.pod_uid)
    accounts._tidy(fact.node)


@ShareAccounts.folds
def _released(accounts: ShareAccounts, fact: facts.ShareReleased, event: Event) -> None:
    node = accounts._written(fact.node, event.version)
    if node.pods.pop(fact.pod_uid, None) is not None:
        del accounts._node_of[fact.pod_uid]
    accounts._tidy(fact.node)


@ShareAccounts.folds
def _requested(accounts: ShareAccounts, fact: facts.ShareRequested, event: Event) -> None:
    node = accounts._written(fact.node, event.version)
    if fact.containers and not (accounts.node_of(fact.pod_uid) or fact.pod_uid in accounts._requested_of):
        node.requests[fact.pod_uid] = PendingRequest(
            pod=fact.pod, containers=fact.containers, requested_at=event.recorded_at
        )
        accounts._requested_of[fact.pod_uid] = fact.node
    accounts._tidy(fact.node)


@ShareAccounts.folds
def _withdrawn(accounts: ShareAccounts, fact: facts.ShareRequestWithdrawn, event: Event) -> None:
    node = accounts._written(fact.node, event.version)
    if fact.pod_uid in node.requests:
        accounts._end_request(fact.pod_uid)
    accounts._tidy(fact.node)
