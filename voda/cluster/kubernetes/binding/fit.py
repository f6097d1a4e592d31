"""Whether a node can take a worker: what kube-scheduler would check before it binds, for voda binds by itself.

Rules: pure; resources, taints, cordons, nodeSelector, required node affinity and scheduling gates are checked as the
scheduler does. Not checked: affinity between pods, topology spread (where workers go, voda's placer decides), host
ports and the zones of volumes.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Protocol

from msgspec import Struct

from voda.cluster.kubernetes import well_known
from voda.cluster.kubernetes.binding.node_filters import UNSCHEDULABLE, intolerable, unattracted, unselected
from voda.cluster.kubernetes.objects import NodeObject, Pod
from voda.cluster.kubernetes.quantities import NodeLoad, format_amount, pod_requests
from voda.domain.errors import InvalidInput

_LONGEST = 300


class Refusal(Struct, frozen=True, kw_only=True):
    """Why a node cannot take a worker."""

    pod: str
    """Its key, `namespace/name`."""
    node: str
    reason: str
    """One sentence."""
    resource: str = ""
    """What there is too little of; empty where that is not the reason."""


class Stock(Protocol):
    """The nodes there are, and what is taken of them."""

    @property
    def nodes(self) -> Mapping[str, NodeObject]:
        """Name -> node."""
        ...

    @property
    def loads(self) -> Mapping[str, NodeLoad]:
        """Name -> what pods take; none for a node without pods."""
        ...


def unfit(pod: Pod, node: NodeObject, free: Mapping[str, int]) -> str:
    """Return why a node with so much free (NodeLoad.free) cannot take a worker, one sentence; empty if it can."""
    refusal = _refusal(pod, node, free)
    return refusal.reason if refusal is not None else ""


def fits_together(placed: Iterable[tuple[Pod, str]], stock: Stock) -> Refusal | None:
    """Return the first refusal of workers that are to be bound together; None if all of them fit.

    Those on one node share what is free there.
    """
    free: dict[str, dict[str, int]] = {}
    before: defaultdict[str, int] = defaultdict(int)
    for pod, name in placed:
        node = stock.nodes.get(name)
        if node is None:
            return _refused(pod, name, f"node {name} is not there any more")
        try:
            left = free.get(name) or free.setdefault(name, (stock.loads.get(name) or NodeLoad()).free(node))
        except InvalidInput as error:
            return _refused(pod, name, str(error))
        if (refusal := _refusal(pod, node, left, beside=before[name])) is not None:
            return refusal
        for resource, amount in pod_requests(pod).items():
            left[resource] = left.get(resource, 0) - amount
        before[name] += 1
    return None


def _refusal(pod: Pod, node: NodeObject, free: Mapping[str, int], *, beside: int = 0) -> Refusal | None:
    if reason := _closed(pod, node):
        return _refused(pod, node.metadata.name, reason)
    try:
        return _short(pod, node, free, beside)
    except InvalidInput as error:
        return _refused(pod, node.metadata.name, str(error))


def _closed(pod: Pod, node: NodeObject) -> str:
    """Return why the node is none for this worker, however much of it is free."""
    name, worker = node.metadata.name, pod.metadata.name
    if others := [gate for gate in pod.gates if gate != well_known.GATE]:
        gates = ", ".join(others)
        return f"worker {worker} is not to be placed yet: scheduling gates {gates} are closed"
    if (taint := intolerable(pod, node)) == UNSCHEDULABLE:
        return f"node {name} is cordoned"
    if taint is not None:
        value = f"={taint.value}" if taint.value else ""
        return f"node {name} has the taint {taint.key}{value}:{taint.effect}, which worker {worker} does not tolerate"
    if missing := unselected(pod, node):
        return f"node {name} lacks the label {missing}, which worker {worker} selects its node by"
    if missing := unattracted(pod, node):
        return f"node {name} does not meet the node affinity of worker {worker}, which requires {missing}"
    return ""


def _short(pod: Pod, node: NodeObject, free: Mapping[str, int], beside: int) -> Refusal | None:
    name, worker = node.metadata.name, pod.metadata.name
    # GPUs last: that others took them, the planner knows already.
    for resource, amount in sorted(pod_requests(pod).items(), key=lambda each: "/" in each[0]):
        left = free.get(resource, 0)
        if amount > left and amount > 0:
            others = f" beside {beside} other{'' if beside == 1 else 's'} of its job" if beside else ""
            has = f"{format_amount(max(0, left), resource)} free{others}"
            reason = f"node {name} has {has}, worker {worker} needs {format_amount(amount, resource)}"
            return _refused(pod, name, reason, resource)
    return None


def _refused(pod: Pod, node: str, reason: str, resource: str = "") -> Refusal:
    short = reason if len(reason) <= _LONGEST else f"{reason[: _LONGEST - 3]}..."
    return Refusal(pod=pod.metadata.key, node=node, reason=short, resource=resource)
