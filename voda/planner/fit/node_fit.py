"""How many workers of a job each node takes, by its labels and taints and by what other pods leave of its resources.

1. Jobs whose workers ask the same of a node are one class; what its filters say is asked once of nodes that are alike.
2. A node that takes none of them, or fewer than its GPUs would serve, refuses the job (`Job.refusals`, `Job.fits`).
3. Resources that workers of different jobs could use up together are counted (`ClusterState.scarce`), no others.

Rules: pure; what was reported of a node counts as well, and the less of both. Workers at work may stay, unless a taint
NoExecute drives them out: then they count as not at work, and are planned elsewhere.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from voda.domain.job import Job
from voda.domain.node import PODS, Node, PodNeeds, demand_of
from voda.domain.reasons.nodes import LacksResource, NodeRefusal
from voda.domain.state import ClusterState
from voda.planner.fit.filters import NodeFilters, labels_named, names_node

_NO_NEEDS: Final = PodNeeds()
_UNBOUND: Final = 1 << 62
"""More than a node has of anything."""
_MOST_WITHOUT_GPUS: Final = 16
"""Workers of a job without GPUs on a node; more are never planned there."""

Ints = NDArray[np.int64]


class NodeLimits(Struct, frozen=True, kw_only=True):
    """The nodes that do not take as many workers of a job as they have GPUs for."""

    refusals: Mapping[str, NodeRefusal]
    fits: Mapping[str, int]
    """Of them, those that take a number."""


def with_fit(view: ClusterState) -> ClusterState:
    """Return the view in which nodes refuse the jobs whose workers they cannot take, or as many of them as GPUs."""
    jobs = [job for job in view.jobs.values() if not job.is_canceling]
    is_bound = any(node.taints or node.room is not None for node in view.nodes.values())
    if not (is_bound or any(job.spec.needs is not None for job in jobs)):
        return view
    classes: dict[tuple[bytes, int], list[Job]] = defaultdict(list)
    for job in jobs:
        spec = job.spec
        classes[(spec.needs or _NO_NEEDS).key, spec.gpus_per_replica].append(job)
    needs = {key: alike[0].spec.needs or _NO_NEEDS for key, alike in classes.items()}
    nodes = list(view.nodes.values())
    filters = _Filters(nodes, needs.values())
    rooms = _Rooms(nodes, [job for (_, gpus), alike in classes.items() if not gpus for job in alike])
    changed: dict[str, Job] = {}
    for (encoded, gpus), alike in classes.items():
        asked = needs[encoded, gpus]
        closed, expelling = filters.closed(asked), filters.expelling(asked)
        found, demand = NodeLimits(refusals=closed.refusals, fits={}), demand_of(asked)
        if rooms.may_bound(demand, gpus):
            room = rooms.room(demand, gpus, closed.at)
            found = rooms.limits(room, closed.refusals)
            # A job that can never start leaves everything as it is.
            if gpus and room.total >= min(0 if job.workers else job.spec.min_replicas for job in alike):
                rooms.count(room, gpus)
        if found.refusals or expelling:
            changed.update(_limited(alike, found, expelling))
    return replace(view, jobs={**view.jobs, **changed} if changed else view.jobs, scarce=rooms.scarce(jobs))


def _limited(jobs: Iterable[Job], found: NodeLimits, expelling: frozenset[str]) -> Iterable[tuple[str, Job]]:
    """Yield the jobs of a class as its nodes limit them."""
    # A node that is cordoned refuses all jobs alike: these are one and the same mapping.
    merged: dict[int, NodeLimits] = {}
    for job in jobs:
        fit = found
        if not (job.refusals or expelling):
            yield job.spec.job_id, replace(job, refusals=fit.refusals, fits=fit.fits)
            continue
        if job.refusals:
            key = id(job.refusals)
            known = None if job.fits else merged.get(key)
            fit = merged[key] = known or _least(found, job)
        if expelling and not expelling.isdisjoint(job.workers.values()):
            workers = {index: node for index, node in job.workers.items() if node not in expelling}
            yield job.spec.job_id, replace(job, refusals=fit.refusals, fits=fit.fits, workers=workers)
        else:
            yield job.spec.job_id, replace(job, refusals=fit.refusals, fits=fit.fits)


def _least(found: NodeLimits, job: Job) -> NodeLimits:
    """Return what a job's nodes take by what was found and by what was reported."""
    fits = {name: most for name, most in found.fits.items() if name not in job.refusals}
    for name, most in job.fits.items():
        if name not in found.refusals:
            fits[name] = most
        elif name in found.fits:
            fits[name] = min(most, found.fits[name])
    return NodeLimits(refusals={**found.refusals, **job.refusals}, fits=fits)


class _Closed(Struct, frozen=True, kw_only=True):
    """The nodes that take no pod of a class, by their labels and taints."""

    refusals: Mapping[str, NodeRefusal]
    at: NDArray[np.bool_]
    """Whether a node is one of them; shape (nodes,)."""


class _Filters:
    """What labels and taints say, by class of jobs and class of nodes."""

    def __init__(self, nodes: Sequence[Node], needs: Iterable[PodNeeds]) -> None:
        needs = list(needs)
        keys, is_by_name = sorted(labels_named(needs, nodes)), any(map(names_node, needs))
        alike: dict[tuple[object, ...], list[int]] = defaultdict(list)
        for at, node in enumerate(nodes):
            labels = node.labels
            alike[(node.name if is_by_name else "", node.taints, *[labels.get(key) for key in keys])].append(at)
        self._names = [[nodes[at].name for at in same] for same in alike.values()]
        self._class_of = np.empty(len(nodes), dtype=np.int64)
        for number, same in enumerate(alike.values()):
            self._class_of[same] = number
        self._filters = NodeFilters([nodes[same[0]] for same in alike.values()], needs)
        self._found: dict[bytes, _Closed] = {}

    def closed(self, needs: PodNeeds) -> _Closed:
        """Return the nodes that take no pod with these needs."""
        if (found := self._found.get(needs.filter_key)) is None:
            refusals, is_closed = dict[str, NodeRefusal](), np.zeros(len(self._names), dtype=np.bool_)
            for number, why in self._filters.refused(needs).items():
                refusals.update(dict.fromkeys(self._names[number], why))
                is_closed[number] = True
            found = self._found[needs.filter_key] = _Closed(refusals=refusals, at=is_closed[self._class_of])
        return found

    def expelling(self, needs: PodNeeds) -> frozenset[str]:
        """Return the nodes on which such a pod may not even stay."""
        return frozenset(name for number in self._filters.expelled(needs) for name in self._names[number])


class _ClassRoom(Struct, frozen=True, kw_only=True):
    """How many workers of a class each node takes."""

    demand: Mapping[str, int]
    most: Ints
    """Workers; shape (nodes,)."""
    by: Ints
    """Place of the resource that bounds them, of `resources`; -1 = it is the GPUs, or nothing."""
    resources: Sequence[str]
    beside_others: bool

    @property
    def total(self) -> int:
        return int(self.most.sum())


class _Rooms:
    """What others leave of the resources of nodes, jobs without GPUs among them for those with some."""

    def __init__(self, nodes: Sequence[Node], without_gpus: Sequence[Job]) -> None:
        self._nodes = nodes
        self._is_known = any(node.room is not None for node in nodes)
        self._gpus = np.array([node.usable_gpus for node in nodes], dtype=np.int64)
        self._left: dict[tuple[str, bool], Ints] = {}
        self._most_gpus = int(self._gpus.max(initial=0))
        self._least_left: dict[tuple[str, bool], int] = {}
        self._most_asked: dict[str, NDArray[np.float64]] = {}
        """Resource -> the most that workers on all GPUs of a node could ask for; shape (nodes,)."""
        self._used: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        for job in without_gpus if self._is_known else ():
            for resource, asked in demand_of(job.spec.needs).items():
                for node in job.workers.values():
                    self._used[resource][node] += asked

    def may_bound(self, demand: Mapping[str, int], gpus: int) -> bool:
        """Return whether workers on all GPUs of a node could ask for more than some node has; most have enough."""
        if not self._is_known:
            return False
        slots = self._most_gpus / gpus if gpus else _MOST_WITHOUT_GPUS
        return any(
            asked * slots > self._least(resource, beside_others=bool(gpus))
            for resource, asked in demand.items()
            if asked > 0
        )

    def room(self, demand: Mapping[str, int], gpus: int, closed: NDArray[np.bool_]) -> _ClassRoom:
        """Return how many workers of a demand each node takes that is not closed."""
        resources = [resource for resource, asked in demand.items() if asked > 0]
        count = len(self._nodes)
        slots = self._gpus // gpus if gpus else np.full(count, _MOST_WITHOUT_GPUS, dtype=np.int64)
        most, by = slots.copy(), np.full(count, -1, dtype=np.int64)
        for place, resource in enumerate(resources):
            fitting = np.maximum(self._of(resource, beside_others=bool(gpus)), 0) // demand[resource]
            by[fitting < most] = place
            most = np.minimum(fitting, most)
        most[closed], by[closed] = 0, -1
        return _ClassRoom(demand=demand, most=most, by=by, resources=resources, beside_others=bool(gpus))

    def limits(self, room: _ClassRoom, closed: Mapping[str, NodeRefusal]) -> NodeLimits:
        """Return the nodes that take fewer workers than they have GPUs for -> why, and how many."""
        limited = np.flatnonzero(room.by >= 0).tolist()
        if not limited:
            return NodeLimits(refusals=closed, fits={})
        refusals, fits, records = dict(closed), dict[str, int](), dict[tuple[int, int], LacksResource]()
        for at in limited:
            place, most, name = int(room.by[at]), int(room.most[at]), self._nodes[at].name
            left = int(self._of(room.resources[place], beside_others=room.beside_others)[at])
            if (record := records.get((place, left))) is None:
                record = records[place, left] = self._record(room.resources[place], room.demand, left)
            refusals[name] = record
            if most:
                fits[name] = most
        return NodeLimits(refusals=refusals, fits=fits)

    def count(self, room: _ClassRoom, gpus: int) -> None:
        """Note what the workers of a class could ask for of the nodes that take them."""
        for resource in room.resources:
            most = np.where(room.most > 0, self._gpus * (room.demand[resource] / gpus), 0.0)
            known = self._most_asked.get(resource)
            self._most_asked[resource] = most if known is None else np.maximum(known, most)

    def scarce(self, jobs: Sequence[Job]) -> Mapping[str, Mapping[str, int]]:
        """Return node -> resource -> what is left, where workers on its GPUs could ask for more than that.

        It is never less than what the workers at work there have: these stay.
        """
        found: dict[str, dict[str, int]] = defaultdict(dict)
        for resource, most in sorted(self._most_asked.items()):
            left = self._of(resource, beside_others=True)
            for at in np.flatnonzero(most > left).tolist():
                found[self._nodes[at].name][resource] = int(left[at])
        held: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        for job in jobs if found else ():
            if job.workers and job.spec.gpus_per_replica:
                demand = demand_of(job.spec.needs)
                for name in job.workers.values():
                    for resource in found.get(name, ()):
                        held[name][resource] += demand.get(resource, 0)
        return {
            name: {resource: max(left, held[name][resource]) for resource, left in amounts.items()}
            for name, amounts in found.items()
        }

    def _of(self, resource: str, *, beside_others: bool) -> Ints:
        """Return what is left of a resource by node; `beside_others`: beside jobs without GPUs."""
        if (known := self._left.get((resource, beside_others))) is None:
            missing = _UNBOUND if resource == PODS else 0
            used = self._used.get(resource, {}) if beside_others else {}
            amounts = [
                _UNBOUND if node.room is None else min(node.room.get(resource, missing), _UNBOUND)
                for node in self._nodes
            ]
            if used:
                amounts = [amount - used.get(node.name, 0) for amount, node in zip(amounts, self._nodes, strict=True)]
            known = np.array([max(-_UNBOUND, amount) for amount in amounts], dtype=np.int64)
            self._left[resource, beside_others] = known
        return known

    def _least(self, resource: str, *, beside_others: bool) -> int:
        """Return what is left of a resource on the node that has the least of it."""
        key = resource, beside_others
        if key not in self._least_left:
            self._least_left[key] = int(self._of(resource, beside_others=beside_others).min(initial=_UNBOUND))
        return self._least_left[key]

    def _record(self, resource: str, demand: Mapping[str, int], left: int) -> LacksResource:
        known = [at for at, node in enumerate(self._nodes) if node.room is not None]
        most = int(self._of(resource, beside_others=False)[known].max())
        return LacksResource(resource=resource, asked=demand[resource], left=max(0, left), most=max(0, most))
