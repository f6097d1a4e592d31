"""Packed: all jobs are packed anew into empty copies of the nodes, then the copies are mapped onto the nodes.

The way of Voda's placement manager (IC2E'23): few spans, many moves. A copy maps only to a node of its size, which
refuses none of its jobs, and the mapping keeps the most workers where they are (maximum-weight assignment, Hungarian
method); a worker that anchors its job counts as much as the whole job.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import ClassVar

import numpy as np

from voda.domain.gpus import Gpus
from voda.domain.plan import Placement
from voda.domain.state import ClusterState
from voda.placement.free_gpus import FreeGpus
from voda.placement.order import ANCHORED, anchor, largest_first, per_node, refusing

Packing = Mapping[str, Mapping[str, int]]
"""job id -> copy -> workers; a copy is called after the node it was made from."""


class Packed:
    """Best fit, largest request first, on empty nodes; then as few moves as that packing allows."""

    name: ClassVar[str] = "packed"
    title: ClassVar[str] = "packs all jobs anew, largest first, then keeps the most workers in place (Voda, IC2E'23)"

    def place(self, view: ClusterState, replicas: Mapping[str, int], now: float) -> Placement:
        packing = _packed(view, replicas)
        node_of = _mapped(view, packing)
        return {
            job_id: _by_index(_before(view, job_id, copies), {node_of[copy]: n for copy, n in copies.items()})
            for job_id, copies in packing.items()
        }


def _packed(view: ClusterState, replicas: Mapping[str, int]) -> Packing:
    """Best fit into empty copies; what fits no copy whole fills the emptiest one, and its rest goes on."""
    free = FreeGpus({name: node.usable_gpus for name, node in view.nodes.items()})
    packing: dict[str, Mapping[str, int]] = {}
    for job_id in largest_first(view, replicas):
        job = view.jobs[job_id]
        spec = job.spec
        # Mapped onto itself, no copy is refused: so there is a mapping that none is.
        copies = dict(per_node(filter(None, _staying(view, job_id, replicas[job_id]))))
        for copy, workers in copies.items():
            free.take(copy, workers * spec.gpus_per_replica)
        missing = replicas[job_id] - sum(copies.values())
        room = {node: job.fits.get(node, 0) - copies.get(node, 0) for node in job.refusals} if job.refusals else {}
        for copy, workers in free.spread(missing, spec.gpus_per_replica, room).items():
            copies[copy] = copies.get(copy, 0) + workers
        if sum(copies.values()) >= spec.min_replicas:
            packing[job_id] = copies
        else:
            for copy, workers in copies.items():
                free.take(copy, -workers * spec.gpus_per_replica)
    return packing


def _staying(view: ClusterState, job_id: str, size: int) -> Sequence[str]:
    """Return the closed node of each worker that is at work on one, by index, empty for all others."""
    if not view.closed_nodes:
        return ()
    workers = view.jobs[job_id].workers
    places = enumerate(view.plan.placement.get(job_id, ())[:size])
    return [node if node in view.closed_nodes and workers.get(index) == node else "" for index, node in places]


def _mapped(view: ClusterState, packing: Packing) -> Mapping[str, str]:
    """Return copy -> node such that the most workers stay."""
    stays = _stays(view, packing)
    used = {copy for copies in packing.values() for copy in copies}
    by_size: dict[Gpus, list[str]] = defaultdict(list)
    for name in sorted(view.nodes.keys() - view.closed_nodes.keys()):
        by_size[view.nodes[name].usable_gpus].append(name)
    node_of = {name: name for name in view.closed_nodes}
    for nodes in by_size.values():
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
    special = [job_id for job_id in packing if (job := jobs[job_id]).refusals or job.spec.kind in ANCHORED]
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


def _before(view: ClusterState, job_id: str, copies: Mapping[str, int]) -> Sequence[str]:
    """Return the nodes in force, by index; empty for a worker that may not come to the closed node it was meant for."""
    nodes = view.plan.placement.get(job_id, ())
    staying = _staying(view, job_id, sum(copies.values()))
    return [stays if node in view.closed_nodes else node for node, stays in zip(nodes, staying, strict=False)] or nodes


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
