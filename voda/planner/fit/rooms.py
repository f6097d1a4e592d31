"""How many workers of a class nodes have room for, by what other pods leave of their resources."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from voda.domain.job import Job
from voda.domain.node import PODS, Node, demand_of
from voda.domain.reasons.nodes import LacksResource, NodeRefusal

UNBOUND: Final = 1 << 62
"""More than a node has of anything."""
_MOST_WITHOUT_GPUS: Final = 16
"""Workers of a job without GPUs on a node; more are never planned there."""

Ints = NDArray[np.int64]
Scarce = Mapping[str, Mapping[str, int]]
"""Node -> resource -> what is left of it."""


class NodeLimits(Struct, frozen=True, kw_only=True):
    """The nodes that do not take as many workers of a job as they have GPUs for."""

    refusals: Mapping[str, NodeRefusal]
    fits: Mapping[str, int]
    """Of them, those that take a number."""


class ClassRoom(Struct, frozen=True, kw_only=True):
    """How many workers of a class each node takes."""

    demand: Mapping[str, int]
    most: Ints
    """Workers; shape (nodes,)."""
    by: Ints
    """Place of the resource that bounds them, of `resources`; -1 = it is the GPUs, or nothing."""
    resources: Sequence[str]
    beside_others: bool
    total: int


class Rooms:
    """What others leave of the resources of nodes, jobs without GPUs among them for those with some."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = [*nodes]
        self._gpus = np.array([node.usable_gpus for node in nodes], dtype=np.int64)
        self._left: dict[tuple[str, bool], Ints] = {}
        self._used: dict[str, dict[str, int]] = {}
        """Resource -> node -> what jobs without GPUs use of it."""
        self._seen()

    def put(self, nodes: Mapping[int, Node]) -> None:
        """Take nodes, by place, instead of those of the same names."""
        for at, node in nodes.items():
            self._nodes[at] = node
            self._gpus[at] = node.usable_gpus
            for (resource, beside_others), left in self._left.items():
                left[at] = self._amount(node, resource, beside_others=beside_others)
        if nodes:
            self._seen()

    def use(self, without_gpus: Iterable[Job]) -> bool:
        """Count what workers without GPUs have; return whether that is other than before."""
        used: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        for job in without_gpus if self._known else ():
            for resource, asked in demand_of(job.spec.needs).items():
                for node in job.workers.values():
                    used[resource][node] += asked
        if used == self._used:
            return False
        self._used = used
        self._left = {key: left for key, left in self._left.items() if not key[1]}
        self._seen()
        return True

    def may_bound(self, demand: Mapping[str, int], gpus: int) -> bool:
        """Return whether workers on all GPUs of a node could ask for more than some node has; most have enough."""
        if not self._known:
            return False
        slots = self._most_gpus / gpus if gpus else _MOST_WITHOUT_GPUS
        return any(
            asked * slots > self._least(resource, beside_others=bool(gpus))
            for resource, asked in demand.items()
            if asked > 0
        )

    def room(self, demand: Mapping[str, int], gpus: int, closed: NDArray[np.bool_]) -> ClassRoom:
        """Return how many workers of a demand each node takes that is not closed."""
        # Sorted, as equal needs may name them in another order: the first that bounds them is the one that is told.
        resources = sorted(resource for resource, asked in demand.items() if asked > 0)
        count = len(self._nodes)
        most = self._gpus // gpus if gpus else np.full(count, _MOST_WITHOUT_GPUS, dtype=np.int64)
        by = np.full(count, -1, dtype=np.int64)
        for place, resource in enumerate(resources):
            fitting = np.maximum(self._of(resource, beside_others=bool(gpus)), 0) // demand[resource]
            by[fitting < most] = place
            most = np.minimum(fitting, most)
        most[closed], by[closed] = 0, -1
        return ClassRoom(
            demand=demand, most=most, by=by, resources=resources, beside_others=bool(gpus), total=int(most.sum())
        )

    def limits(self, room: ClassRoom, closed: Mapping[str, NodeRefusal]) -> NodeLimits:
        """Return the nodes that take fewer workers than they have GPUs for -> why, and how many."""
        limited = np.flatnonzero(room.by >= 0).tolist()
        if not limited:
            return NodeLimits(refusals=closed, fits={})
        refusals, fits, records = dict(closed), dict[str, int](), dict[tuple[int, int], LacksResource]()
        lefts = [self._of(resource, beside_others=room.beside_others).tolist() for resource in room.resources]
        by, counts = room.by.tolist(), room.most.tolist()
        for at in limited:
            place, most, name = by[at], counts[at], self._nodes[at].name
            left = lefts[place][at]
            if (record := records.get((place, left))) is None:
                record = records[place, left] = self._record(room.resources[place], room.demand, left)
            refusals[name] = record
            if most:
                fits[name] = most
        return NodeLimits(refusals=refusals, fits=fits)

    def scarce(self, counted: Iterable[tuple[ClassRoom, int]]) -> Scarce:
        """Return what is left where workers on a node's GPUs could ask for more, and it takes one of them.

        `counted` are the rooms of the classes of these workers, and the GPUs of each worker.
        """
        most_asked: dict[str, NDArray[np.float64]] = {}
        for room, gpus in counted:
            for resource in room.resources:
                most = np.where(room.most > 0, self._gpus * (room.demand[resource] / gpus), 0.0)
                known = most_asked.get(resource)
                most_asked[resource] = most if known is None else np.maximum(known, most)
        found: dict[str, dict[str, int]] = defaultdict(dict)
        for resource, most in sorted(most_asked.items()):
            left = self._of(resource, beside_others=True)
            for at in np.flatnonzero(most > left).tolist():
                found[self._nodes[at].name][resource] = int(left[at])
        return dict(found)

    def _seen(self) -> None:
        """Begin anew with what follows from all nodes."""
        self._known = [at for at, node in enumerate(self._nodes) if node.room is not None]
        self._most_gpus = int(self._gpus.max(initial=0))
        self._least_left: dict[tuple[str, bool], int] = {}
        self._most_left: dict[str, int] = {}

    def _of(self, resource: str, *, beside_others: bool) -> Ints:
        """Return what is left of a resource by node; `beside_others`: beside jobs without GPUs."""
        if (known := self._left.get((resource, beside_others))) is None:
            amounts = [self._amount(node, resource, beside_others=beside_others) for node in self._nodes]
            known = self._left[resource, beside_others] = np.array(amounts, dtype=np.int64)
        return known

    def _amount(self, node: Node, resource: str, *, beside_others: bool) -> int:
        missing = UNBOUND if resource == PODS else 0
        amount = UNBOUND if node.room is None else min(node.room.get(resource, missing), UNBOUND)
        if beside_others and (used := self._used.get(resource)):
            amount -= used.get(node.name, 0)
        return max(-UNBOUND, amount)

    def _least(self, resource: str, *, beside_others: bool) -> int:
        """Return what is left of a resource on the node that has the least of it."""
        key = resource, beside_others
        if key not in self._least_left:
            self._least_left[key] = int(self._of(resource, beside_others=beside_others).min(initial=UNBOUND))
        return self._least_left[key]

    def _record(self, resource: str, demand: Mapping[str, int], left: int) -> LacksResource:
        if (most := self._most_left.get(resource)) is None:
            most = self._most_left[resource] = int(self._of(resource, beside_others=False)[self._known].max())
        return LacksResource(resource=resource, asked=demand[resource], left=max(0, left), most=max(0, most))


def beside_held(scarce: Scarce, jobs: Iterable[Job]) -> Scarce:
    """Return what is left of scarce resources, never less than what workers at work there have: these stay."""
    if not scarce:
        return scarce
    held: dict[str, dict[str, int]] = {name: dict.fromkeys(left, 0) for name, left in scarce.items()}
    for job in jobs:
        if job.workers and job.spec.gpus_per_replica:
            demand = demand_of(job.spec.needs)
            for name in job.workers.values():
                if (here := held.get(name)) is not None:
                    for resource in here:
                        here[resource] += demand.get(resource, 0)
    return {
        name: {resource: max(left, held[name][resource]) for resource, left in amounts.items()}
        for name, amounts in scarce.items()
    }
