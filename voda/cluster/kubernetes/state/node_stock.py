"""The nodes of the cluster, what pods take of each, and what is left of it for plans.

Rules: no I/O; a change costs O(pods of its node); a node that is gone leaves nothing behind, because where machines
come and go none has the name of another.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from voda.cluster.kubernetes.resources.objects import NodeObject, Pod
from voda.cluster.kubernetes.resources.pod_requests import NodeLoad, pod_requests
from voda.cluster.kubernetes.state.nodes import PoolRule, as_node, is_ready, pool_of
from voda.domain.errors import InvalidInput
from voda.domain.node import Node

_log = logging.getLogger(__name__)

_NO_PODS: Final[Mapping[str, Pod]] = {}


class NodeStock:
    """Nodes by name.

    Args:
        rule: which nodes form which pools.
        is_worker_in: says whether a pod is a worker of a job of that pool; all others use a node up for plans.
    """

    def __init__(self, rule: PoolRule, is_worker_in: Callable[[Pod, str], bool]) -> None:
        self.rule = rule
        self.nodes: dict[str, NodeObject] = {}
        self.loads: defaultdict[str, NodeLoad] = defaultdict(NodeLoad)
        """node -> what all pods on it take."""
        self.dirty: set[str] = set()
        """Nodes of which plans may see something else than before."""
        self._is_worker_in = is_worker_in
        self._labels: defaultdict[str, set[str]] = defaultdict(set)
        """pool -> the values of the pool label that its nodes have had."""
        self._pods: defaultdict[str, dict[str, Pod]] = defaultdict(dict)
        self._cached: dict[str, Node | None] = {}
        self._foreign: dict[str, frozenset[str]] = {}
        """node -> keys of the pods that `_cached` counts as others'."""

    def put(self, name: str, now: NodeObject | None) -> None:
        """Store a node as it is now; None: it is gone."""
        if now is None:
            self.nodes.pop(name, None)
            self._forget(name)
        else:
            self.nodes[name] = now
            self._warn_of_merged_labels(now)
        self._touch(name)

    def pods_on(self, name: str) -> Mapping[str, Pod]:
        """Return the pods on a node, or about to be, by key."""
        return self._pods.get(name, _NO_PODS)

    def add_pod(self, key: str, pod: Pod) -> None:
        """Count a pod on its node."""
        # Room that kube-scheduler made by preemption is not free, though no pod has it yet: a worker that was sent away
        # for it would take it back.
        if not (name := pod.takes_from):
            return
        self._pods[name][key] = pod
        try:
            self.loads[name].add(key, pod)
        except InvalidInput as error:
            # Another scheduler's business: nothing here may stop for it.
            _log.warning("not counted node=%s reason=%s", name, error)
        pool = self.pool_of(name)
        if pool is None or not self._is_worker_in(pod, pool):
            self._touch(name)

    def drop_pod(self, key: str, pod: Pod) -> None:
        """Count a pod no more, as it was added."""
        name = pod.takes_from
        if self._pods.get(name, {}).pop(key, None) is not None:
            self.loads[name].remove(key)
            if key in self._foreign.get(name, ()):
                self._touch(name)
            self._forget(name)

    def pool_of(self, name: str) -> str | None:
        """Return the pool of a node; None: it is gone, or no pool's."""
        found = self.nodes.get(name)
        return pool_of(found, self.rule) if found is not None else None

    def node(self, name: str) -> Node | None:
        """Return a node as plans see it; None: it is gone, or no pool's."""
        if name not in self.nodes:
            return None
        if name not in self._cached:
            self._cached[name] = self._node(self.nodes[name])
        return self._cached[name]

    def pool_nodes(self, pool: str) -> Mapping[str, Node]:
        """Return the nodes of a pool, by name."""
        found = ((name, self.node(name)) for name in self.nodes)
        return {name: node for name, node in found if node is not None and node.pool == pool}

    def pools(self) -> frozenset[str]:
        """Return the pools that nodes form."""
        return frozenset(node.pool for name in self.nodes if (node := self.node(name)) is not None)

    def unready(self, pods: Iterable[Pod]) -> Mapping[str, bool]:
        """Return the nodes of pods that do not answer; True: there is no such node any more."""
        found = {name: self.nodes.get(name) for name in {pod.spec.node_name for pod in pods} if name}
        return {name: node is None for name, node in found.items() if node is None or not is_ready(node)}

    def _node(self, found: NodeObject) -> Node | None:
        name = found.metadata.name
        if (pool := pool_of(found, self.rule)) is None:
            return None
        foreign = {key: pod for key, pod in self.pods_on(name).items() if not self._is_worker_in(pod, pool)}
        self._foreign[name] = frozenset(foreign)
        taken = sum(taken_milli(pod, self.rule.resource) for pod in foreign.values())
        return as_node(found, self.rule, foreign_milli=taken)

    def _forget(self, name: str) -> None:
        if name not in self.nodes and not self._pods.get(name):
            self._pods.pop(name, None)
            self._foreign.pop(name, None)
            self.loads.pop(name, None)

    def _warn_of_merged_labels(self, node: NodeObject) -> None:
        """Say once that nodes with another value of the pool label are in the same pool: `1.5` and `1-5`."""
        value, pool = node.metadata.labels.get(self.rule.label), pool_of(node, self.rule)
        if not value or pool is None or value in (labels := self._labels[pool]):
            return
        labels.add(value)
        if len(labels) > 1:
            names = ", ".join(sorted(labels))
            _log.warning("pool=%s is one pool of nodes with %s: %s; dots become dashes", pool, self.rule.label, names)

    def _touch(self, name: str) -> None:
        self.dirty.add(name)
        self._cached.pop(name, None)


def taken_milli(pod: Pod, resource: str) -> int:
    """Return the thousandths of a resource that a pod takes; 0 where its requests cannot be read."""
    try:
        return pod_requests(pod).get(resource, 0)
    except InvalidInput:
        return 0
