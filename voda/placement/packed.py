"""Packed: all jobs are packed anew into empty copies of the nodes, then the copies are mapped onto the nodes.

The way of Voda's placement manager (IC2E'23): few spans, many moves. A copy maps only to a node of its size, which
refuses none of its jobs, and the mapping keeps the most workers where they are (maximum-weight assignment, Hungarian
method); a worker that anchors its job counts as much as the whole job.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import chain
from typing import ClassVar

import numpy as np

from voda.domain.gpus import Gpus
from voda.domain.job import Job
from voda.domain.plan import Placement
from voda.domain.state import ClusterState
from voda.placement.free_room import FreeRoom
from voda.placement.order import anchor, largest_first, most_confined_first, per_node, refusing, shape
from voda.placement.scarce import ScarceResources

Packing = Mapping[str, Mapping[str, int]]
"""job id -> copy -> workers; a copy is called after the node it was made from."""


class Packed:
    """Best fit, largest request first, on empty nodes; then as few moves as that packing allows."""

    name: ClassVar[str] = "packed"
    title: ClassVar[str] = "packs all jobs anew, largest first, then keeps the most workers in place (Voda, IC2E'23)"

    def place(self, view: ClusterState, replicas: Mapping[str, int], now: float) -> Placement:
        free = {name: node.usable_gpus for name, node in view.nodes.items()}
        nodes = _Copies(view, replicas, FreeRoom(free, ScarceResources(view.scarce)))
        order = most_confined_first(view, largest_first(view, replicas))
        # Those that stay come before all that are packed anew.
        kept = {job_id: nodes.keep(job_id) if view.jobs[job_id].refusals else [] for job_id in order}
        packing = {job_id: copies for job_id in order if (copies := nodes.pack(job_id, kept[job_id]))}
        node_of = _mapped(view, packing, {node for stays in kept.values() for node in stays if node})
        return {
            job_id: _by_index(_before(view, job_id, kept), {node_of[copy]: n for copy, n in copies.items()})
            for job_id, copies in packing.items()
        }


@dataclass(slots=True)
class _Copies:
    """Empty copies of the nodes, as they fill."""

    view: ClusterState
    replicas: Mapping[str, int]
    room: FreeRoom
    roomless: set[tuple[object, ...]] = field(default_factory=set)
    """Classes of jobs that no copy has had scarce resources for since any were given back."""

    def take(self, job: Job, copies: Mapping[str, int]) -> None:
        """Use what workers ask for; negative numbers give it back."""
        if any(workers < 0 for workers in copies.values()):
            self.roomless.clear()
        self.room.take(job, copies)

    def keep(self, job_id: str) -> list[str]:
        """Use what workers hold that are at work on nodes which take no new one of their job; return these by index.

        Empty for others. They stay, and their nodes as copies are mapped onto themselves.
        """
        job = self.view.jobs[job_id]
        places = list(self.view.plan.placement.get(job_id, ())[: self.replicas[job_id]])
        for index, node in enumerate(places):
            stays = job.workers.get(index) == node and job.is_refused_by(node, 1)
            if stays and self.room.gpus[node] >= job.spec.gpus_per_replica:
                self.take(job, {node: 1})
            else:
                places[index] = ""
        return places

    def pack(self, job_id: str, stays: list[str]) -> Mapping[str, int]:
        """Return copy -> workers of a job, best fit; what fits no copy whole fills the emptiest one, and so on.

        `stays` are those that it keeps, by index; it loses those that would have another.
        """
        job = self.view.jobs[job_id]
        # Mapped onto itself, no copy is refused: so there is a mapping that none is.
        copies = dict(per_node(filter(None, stays)))
        missing = self.replicas[job_id] - sum(copies.values())
        added: Mapping[str, int] = {}
        alike = shape(job) if self.room.scarce.left else ()
        if alike and alike not in self.roomless and not self.room.has_room(job):
            self.roomless.add(alike)
        if alike not in self.roomless:
            added = self.room.spread(job, missing, copies)
        for copy, workers in added.items():
            copies[copy] = copies.get(copy, 0) + workers
        new = [copy for copy, workers in added.items() for _ in range(workers)]
        while size := sum(copies.values()):
            # Under another index it would have to start there anew.
            is_moved = any(stays[size:])
            if not is_moved and job.spec.size_within(size) == size:
                return copies
            if copy := stays.pop() if is_moved or not new else new.pop():
                self.take(job, {copy: -1})
                copies[copy] -= 1
        return {}


def _mapped(view: ClusterState, packing: Packing, kept: Set[str]) -> Mapping[str, str]:
    """Return copy -> node such that the most workers stay; copies of nodes that keep some are these nodes."""
    stays = _stays(view, packing)
    used = {copy for copies in packing.values() for copy in copies}
    alike: dict[tuple[Gpus, object], list[str]] = defaultdict(list)
    node_of = {name: name for name in kept | view.closed_nodes.keys()}
    for name in sorted(view.nodes.keys() - node_of.keys()):
        alike[view.nodes[name].usable_gpus, tuple(view.scarce.get(name, {}).items())].append(name)
    for nodes in alike.values():
        copies = [name for name in nodes if name in used]
        node_of.update(_assigned(copies, nodes, stays))
    return node_of


def _stays(view: ClusterState, packing: Packing) -> Mapping[tuple[str, str], int]:
    """Return (copy, node) -> workers that would stay, were the copy mapped to that node; far below 0 where refused."""
    stays: dict[tuple[str, str], int] = defaultdict(int)
    for job_id, copies in packing.items():
        # A shrink takes the highest indices away: their places do not count.
        before = per_node(view.plan.placement.get(job_id, ())[: sum(copies.values())])
        for copy, workers in copies.items():
            for node, there in before.items():
                stays[copy, node] += min(workers, there)
    _weigh_anchors_and_refusals(view, packing, stays)
    return stays


def _weigh_anchors_and_refusals(view: ClusterState, packing: Packing, stays: dict[tuple[str, str], int]) -> None:
    """Add what anchors are worth, and take away more than all of it where a job is refused."""
    jobs = view.jobs
    # Asked of every job, so without a call.
    special = [job_id for job_id in packing if (job := jobs[job_id]).refusals or job.has_anchor]
    if not special:
        return
    refused = -1 - 2 * sum(chain.from_iterable(copies.values() for copies in packing.values()))
    for job_id in special:
        copies, anchor_node = packing[job_id], anchor(view, job_id)
        for copy in copies:
            if anchor_node is not None:
                stays[copy, anchor_node] += sum(copies.values())
            for node in refusing(jobs[job_id], copies[copy]):
                stays[copy, node] += refused


def _before(view: ClusterState, job_id: str, kept: Mapping[str, Sequence[str]]) -> Sequence[str]:
    """Return the nodes in force, by index; empty for a worker that may not come to the node that it was meant for."""
    nodes, job = view.plan.placement.get(job_id, ()), view.jobs[job_id]
    if not job.refusals:
        return nodes
    stays = kept.get(job_id, ())
    return [
        (stays[index] if index < len(stays) else "") if job.is_refused_by(node, 1) else node
        for index, node in enumerate(nodes)
    ]


def _assigned(copies: Sequence[str], nodes: Sequence[str], stays: Mapping[tuple[str, str], int]) -> Mapping[str, str]:
    row = {copy: index for index, copy in enumerate(copies)}
    column = {node: index for index, node in enumerate(nodes)}
    weights = np.zeros((len(copies), len(nodes)))
    for (copy, node), workers in stays.items():
        if copy in row and node in column:
            weights[row[copy], column[node]] = workers
    # Imported here: it would be half of a start's time, also where nobody packs.
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(weights, maximize=True)
    return {copies[r]: nodes[c] for r, c in zip(rows.tolist(), columns.tolist(), strict=True)}


def _by_index(before: Sequence[str], counts: Mapping[str, int]) -> tuple[str, ...]:
    """Return the node of each worker index: as before where there is room, else node after node."""
    left = dict(counts)
    nodes_by_index: list[str | None] = [None] * sum(counts.values())
    for index, node in enumerate(before[: len(nodes_by_index)]):
        if left.get(node, 0):
            nodes_by_index[index] = node
            left[node] -= 1
    rest = chain.from_iterable([node] * workers for node, workers in left.items())
    return tuple(node or next(rest) for node in nodes_by_index)
