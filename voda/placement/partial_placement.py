"""A placement of some of the jobs: what can stay of the one in force, and the steps by which `steady` completes it.

Of what is in force, shrunk jobs lose their highest indices, lost nodes all their workers. Rules: every step leaves a
placement that fits its nodes; of a job that a node refuses only workers at work there stay on it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import compress, repeat
from operator import ne
from typing import Final

from voda.domain.gpus import NO_GPUS, Gpus
from voda.domain.groups import PlannedRoom, copied
from voda.domain.job import Job
from voda.domain.state import ClusterState
from voda.placement.free_room import FreeRoom
from voda.placement.order import anchor, by_size, per_node, shape
from voda.placement.scarce import ScarceResources

_NONE: Final[Mapping[str, Set[int]]] = {}


class PartialPlacement:
    """The jobs that have their places, those that lack workers, and the GPUs that are free."""

    def __init__(
        self,
        view: ClusterState,
        replicas: Mapping[str, int],
        gone: Mapping[str, Set[int]] = _NONE,
        *,
        keeps_spans: bool = False,
    ) -> None:
        """Begin with the placement in force; `gone` are workers to be placed anew, by job and index.

        With `keeps_spans`, a job that spans already is not brought together.
        """
        carried = carry_over(view, replicas, gone)
        self.placed = carried.whole
        self._view = view
        self._replicas = replicas
        self._room = FreeRoom(carried.free, carried.scarce)
        self._short = carried.short
        self._may_span = {} if keeps_spans else dict.fromkeys(carried.spanning, True)
        """Spanning job -> whether it did so before: then coming together must pay."""
        self._roomless: set[tuple[object, ...]] = set()
        """Classes of jobs that no node has had scarce resources for since any were given back."""

    def serve_short(self) -> bool:
        """Give every job that lacks workers what fits, largest first; return whether anything changed."""
        changed = False
        for job_id in by_size(self._view, self._short, self._replicas):
            changed |= self._place_on_one(job_id) or self._place_on_many(job_id)
        return changed

    def consolidate(self) -> bool:
        """Bring spanning jobs together, largest first; return whether anything changed."""
        # At least one worker has to move, which no full cluster has room for.
        if not self._may_span or not self._room.gpus.most():
            return False
        changed = False
        for job_id in by_size(self._view, self._may_span, self._replicas):
            changed |= self._bring_together(job_id)
        return changed

    def _place_on_one(self, job_id: str) -> bool:
        """Place the job whole: where it is, else on the node that fits best."""
        workers, gpus = self._replicas[job_id], self._gpus(job_id)
        own = per_node(self._short[job_id].values())
        job = self._view.jobs[job_id]
        if len(own) > 1 or (self._roomless and shape(job) in self._roomless):
            return False
        home = next(iter(own), None)
        is_full = home is not None and not self._room.takes(job, home, own[home], workers)
        if home in self._view.closed_nodes or (is_full and self._are_kept(job, own)):
            return False
        if home is None or is_full or self._room.gpus[home] < (workers - own[home]) * gpus:
            if home is not None and self._anchor_node(job_id, self._short[job_id].get(0)):
                return False
            home = self._room.best_fit(job, workers, own)
        if home is None:
            return False
        self._move(job, own, {home: workers})
        self.placed[job_id] = (home,) * workers
        del self._short[job_id]
        return True

    def _place_on_many(self, job_id: str) -> bool:
        """Place what is missing: on the job's own nodes, then on as few others as will do."""
        staying, job = self._short[job_id], self._view.jobs[job_id]
        own = per_node(staying.values())
        added = self._nodes_for(job, own, self._replicas[job_id] - len(staying))
        size = len(staying) + len(added)
        unknown = job.refusals.keys() - job.fits.keys()
        if refused := [index for index in staying if index >= size and staying[index] in unknown]:
            # They would come back under another index, and be refused.
            self._move(job, per_node([*added, *(staying.pop(index) for index in refused)]), {})
            self._place_on_many(job_id)
            return True
        nodes = _filled(staying, added)
        if going := nodes[job.spec.size_within(size) :]:
            self._move(job, per_node(going), {})
            nodes = nodes[: size - len(going)]
        if not nodes:
            self.placed.pop(job_id, None)
            self._short[job_id] = {}
            return bool(staying)
        self.placed[job_id] = nodes
        self._short[job_id] = dict(enumerate(nodes))
        if len(nodes) == self._replicas[job_id]:
            del self._short[job_id]
        if len(own) <= 1 and len(set(nodes)) > 1:
            self._may_span[job_id] = False
        return len(nodes) != len(staying)

    def _nodes_for(self, job: Job, own: Mapping[str, int], missing: int) -> list[str]:
        """Take GPUs for the missing workers, or for as many of them as fit."""
        nodes: list[str] = []
        gpus = job.spec.gpus_per_replica
        if self._roomless and shape(job) in self._roomless:
            return nodes
        for node in sorted(own, key=lambda node: (-own[node], node)):
            most, more = missing - len(nodes), self._room.more(job, node, own[node])
            fitting = max(0, min(most if more is None else min(most, more), self._room.gpus[node] // gpus))
            self._room.take(job, {node: fitting})
            nodes += [node] * fitting
        for node, workers in self._room.spread(job, missing - len(nodes), own, avoid=own).items():
            nodes += [node] * workers
        if self._room.scarce.left and missing > 0 and not nodes and not self._room.has_room(job):
            self._roomless.add(shape(job))
        return nodes

    def _bring_together(self, job_id: str) -> bool:
        nodes, gpus = self.placed.get(job_id, ()), self._gpus(job_id)
        if self._room.gpus.most() < gpus:
            return False
        own = per_node(nodes)
        if len(own) <= 1:
            del self._may_span[job_id]
            return False
        if own.keys() & self._view.closed_nodes.keys() or self._are_kept(self._view.jobs[job_id], own):
            return False
        home = self._home(job_id, own, nodes)
        if home is None or (self._may_span[job_id] and not self._pays(job_id, len(nodes), home in own)):
            return False
        self._move(self._view.jobs[job_id], own, {home: len(nodes)})
        self.placed[job_id] = (home,) * len(nodes)
        if job_id in self._short:
            self._short[job_id] = dict(enumerate(self.placed[job_id]))
        del self._may_span[job_id]
        return True

    @staticmethod
    def _are_kept(job: Job, own: Mapping[str, int]) -> bool:
        """Say whether workers are at work on a node that takes so many: elsewhere there may be room for fewer."""
        return any(node in job.fits and node in own for node in job.workers.values())

    def _home(self, job_id: str, own: Mapping[str, int], nodes: Sequence[str]) -> str | None:
        """Return the node with room for all, the one with most of them already if there is a choice."""
        workers, gpus = len(nodes), self._gpus(job_id)
        job, room = self._view.jobs[job_id], self._room
        roomy = [
            node
            for node, there in own.items()
            if room.gpus[node] >= (workers - there) * gpus and room.takes(job, node, there, workers)
        ]
        if (anchor_node := self._anchor_node(job_id, nodes[0])) is not None:
            return anchor_node if anchor_node in roomy else None
        home = min(roomy, key=lambda node: (-own[node], node), default=None)
        return home or room.best_fit(job, workers, own)

    def _anchor_node(self, job_id: str, first: str | None) -> str | None:
        """Return the node of worker 0 in this placement if it is not to leave it."""
        return first if first is not None and anchor(self._view, job_id) == first else None

    def _pays(self, job_id: str, workers: int, some_stay: bool) -> bool:
        """Whether the seconds saved by not spanning exceed those lost by the move."""
        estimate = self._view.estimates.get(job_id)
        if estimate is None:
            return True
        left_s = estimate.time_left_s(workers)
        saved_s = estimate.span_penalty * left_s if estimate.span_penalty > 0 else 0.0
        if not self._view.jobs[job_id].workers:
            # Planned, but not started yet: nothing is lost.
            return saved_s > 0
        # A job that moves whole starts its launcher anew as well.
        return saved_s > estimate.resize_cost_s * (1 if some_stay else 2)

    def _move(self, job: Job, old: Mapping[str, int], new: Mapping[str, int]) -> None:
        if old:
            self._roomless.clear()
        for placed, sign in ((old, -1), (new, 1)):
            self._room.take(job, {node: sign * workers for node, workers in placed.items()})

    def _gpus(self, job_id: str) -> Gpus:
        return self._view.jobs[job_id].spec.gpus_per_replica


def _filled(staying: Mapping[int, str], added: list[str]) -> tuple[str, ...]:
    """Return the nodes by index: holes are filled first, by the highest indices where nothing else is left."""
    size = len(staying) + len(added)
    spare = iter([*added, *(node for index, node in staying.items() if index >= size)])
    return tuple(staying[index] if index in staying else next(spare) for index in range(size))


@dataclass(slots=True)
class CarryOver:
    """The workers that stay, and what they leave free."""

    free: dict[str, Gpus]
    """node -> GPUs free once all others are gone; nodes that left may be named, with 0."""
    scarce: ScarceResources
    whole: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Jobs that have all their replicas -> node by worker index."""
    short: dict[str, dict[int, str]] = field(default_factory=dict)
    """Jobs that lack workers -> worker index -> node; starting ones have none at all."""
    spanning: list[str] = field(default_factory=list)
    """Jobs of either kind whose workers are on several nodes."""

    def take_off(self, job: Job, indices: Iterable[int]) -> None:
        """Take workers of a job off their nodes."""
        going = [*indices]
        job_id = job.spec.job_id
        if going and job_id in self.whole:
            self.short[job_id] = dict(enumerate(self.whole.pop(job_id)))
        for index in going:
            self.free[self.short[job_id].pop(index)] += job.spec.gpus_per_replica


def carry_over(view: ClusterState, replicas: Mapping[str, int], gone: Mapping[str, Set[int]] = _NONE) -> CarryOver:
    """Return what stays of `view.plan.placement` under a new allocation, without the workers that are gone.

    Costs O(live workers); where the room of the plan is known, what differs from it.
    """
    in_force, jobs = view.plan.placement, view.jobs
    if (room := view.planned_room) is None:
        free = {name: node.usable_gpus for name, node in view.nodes.items()}
        carried, others = CarryOver(free, ScarceResources(view.scarce)), [*replicas]
    else:
        carried = CarryOver(
            copied(room.free), ScarceResources(view.scarce), copied(in_force), spanning=[*room.spanning]
        )
        sizes = map(len, map(in_force.get, replicas, repeat(())))
        others = [*compress(replicas, map(ne, replicas.values(), sizes))]
        _leave_out(carried, room, {*(in_force.keys() - replicas.keys()), *others})
    free = carried.free
    for job_id in others:
        if (count := replicas[job_id]) <= 0:
            continue
        nodes = in_force.get(job_id, ())
        if len(nodes) < count:
            carried.short[job_id] = dict(enumerate(nodes))
        else:
            nodes = carried.whole[job_id] = nodes[:count]
        gpus = jobs[job_id].spec.gpus_per_replica
        # Nearly all are together on one node.
        if nodes and nodes.count(first := nodes[0]) == len(nodes):
            free[first] = free.get(first, NO_GPUS) - gpus * len(nodes)
            continue
        for node in nodes:
            free[node] = free.get(node, NO_GPUS) - gpus
        if nodes:
            carried.spanning.append(job_id)
    refused = [
        job_id
        for job_id, job in view.special_jobs.items()
        if job.refusals and replicas.get(job_id) and not job.refusals.keys().isdisjoint(in_force.get(job_id, ()))
    ]
    for job_id, indices in gone.items():
        carried.take_off(view.jobs[job_id], indices)
    for job_id in refused:
        _leave_refusing_nodes(carried, view, job_id)
    if min(free.values(), default=0) < 0:
        _clear_overfull(carried, view)
    if carried.scarce.left:
        _leave_overdrawn_nodes(carried, view)
    return carried


def _leave_out(carried: CarryOver, room: PlannedRoom, job_ids: Set[str]) -> None:
    """Let planned jobs have nothing."""
    for job_id in job_ids & carried.whole.keys():
        nodes, job = carried.whole.pop(job_id), room.jobs.get(job_id)
        gpus = NO_GPUS if job is None or job.is_canceling else job.spec.gpus_per_replica
        for node in nodes if gpus else ():
            carried.free[node] += gpus
    carried.spanning = [job_id for job_id in carried.spanning if job_id not in job_ids]


def _leave_refusing_nodes(carried: CarryOver, view: ClusterState, job_id: str) -> None:
    """Give up the places on nodes that refuse the job, but for workers at work there, and as many as fit."""
    job = view.jobs[job_id]
    places = carried.short[job_id] if job_id in carried.short else dict(enumerate(carried.whole[job_id]))
    kept: Counter[str] = Counter()
    going: list[int] = []
    # Those at work come first; others fill the gaps below them.
    for index, node in sorted(places.items(), key=lambda place: (job.workers.get(place[0]) != place[1], place[0])):
        kept[node] += 1
        if job.workers.get(index) != node and job.is_refused_by(node, kept[node]):
            kept[node] -= 1
            going.append(index)
    carried.take_off(job, going)


def _leave_overdrawn_nodes(carried: CarryOver, view: ClusterState) -> None:
    """Count scarce resources, and take workers off the nodes that have less than is placed on them.

    Those that have yet to start go first, then those of the smallest jobs.
    """
    there: list[tuple[bool, int, str, int, str]] = []
    places = {job_id: dict(enumerate(nodes)) for job_id, nodes in carried.whole.items()} | carried.short
    sizes = {job_id: len(at) for job_id, at in places.items()}
    for rank, job_id in enumerate(by_size(view, places, sizes)):
        job = view.jobs[job_id]
        carried.scarce.take_all(job, per_node(places[job_id].values()))
        there += [
            (job.workers.get(index) != node, rank, job_id, index, node)
            for index, node in places[job_id].items()
            if node in carried.scarce.left
        ]
    if not any(map(carried.scarce.is_overdrawn, carried.scarce.left)):
        return
    for _, _, job_id, index, node in sorted(there, reverse=True):
        if carried.scarce.lacks_for(view.jobs[job_id], node):
            carried.take_off(view.jobs[job_id], (index,))
            carried.scarce.take(view.jobs[job_id], node, -1)


def _clear_overfull(carried: CarryOver, view: ClusterState) -> None:
    """Take workers off the nodes that have less than is placed on them."""
    overfull = sorted(node for node, gpus in carried.free.items() if gpus < 0)
    holders = _holders(carried, overfull)
    for node in overfull:
        anchored = {job_id for job_id in holders[node] if anchor(view, job_id) == node}
        for job_id, is_anchor in _smallest_first(view, holders[node], anchored):
            gpus = view.jobs[job_id].spec.gpus_per_replica
            _take_off(carried, node, job_id, gpus, is_spared=job_id in anchored and not is_anchor)


def _smallest_first(
    view: ClusterState, holders: Mapping[str, int], anchored: Iterable[str]
) -> Sequence[tuple[str, bool]]:
    """Return the jobs in the order in which they give way, and whether with their anchor.

    Small workers first, because they fit elsewhere; anchors last among those of a size; then the job with the fewest on
    the node; then the latest submission.
    """

    def rank(candidate: tuple[str, bool]) -> tuple[Gpus, bool, int, float, str]:
        job_id, is_anchor = candidate
        job = view.jobs[job_id]
        return job.spec.gpus_per_replica, is_anchor, holders[job_id], -job.submitted_at, job_id

    return sorted([*((job_id, False) for job_id in holders), *((job_id, True) for job_id in anchored)], key=rank)


def _holders(carried: CarryOver, nodes: Iterable[str]) -> Mapping[str, Mapping[str, int]]:
    """Return node -> job -> its workers there, for the given nodes."""
    holders: dict[str, dict[str, int]] = {node: {} for node in nodes}
    for job_id, workers in [
        *carried.whole.items(),
        *((job_id, tuple(at.values())) for job_id, at in carried.short.items()),
    ]:
        for node in workers:
            if node in holders:
                holders[node][job_id] = holders[node].get(job_id, 0) + 1
    return holders


def _take_off(carried: CarryOver, node: str, job_id: str, gpus: Gpus, *, is_spared: bool) -> None:
    """Take the job's workers off the overfull node, highest index first, until it is not overfull.

    `gpus` is per worker; `is_spared`: worker 0 stays.
    """
    if carried.free[node] >= 0:
        return
    if job_id in carried.whole:
        carried.short[job_id] = dict(enumerate(carried.whole.pop(job_id)))
    workers = carried.short[job_id]
    for index in sorted(workers, reverse=True):
        if workers[index] == node and carried.free[node] < 0 and not (is_spared and index == 0):
            del workers[index]
            carried.free[node] += gpus
