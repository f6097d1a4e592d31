"""Steady: starts from the placement in force and changes as little as the rules of this folder allow.

Rules: a job begins to span nodes only while no node has room for it whole; a job that spans is brought together
when the time this saves outweighs the move; others move for a job only where it could not start otherwise; what hosts
a rendezvous stays as long as its node has room for it; only smaller workers are moved out of the way, so two jobs never
take turns in moving each other; placing again with the answer in force gives the same answer.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import ClassVar

from msgspec.structs import replace

from voda.domain.gpus import Gpus
from voda.domain.plan import Placement
from voda.domain.state import ClusterState
from voda.placement.order import anchor, by_size, is_uprooted, refusing
from voda.placement.partial_placement import PartialPlacement


class Steady:
    """Keeps workers where they are; best fit for what starts or grows."""

    name: ClassVar[str] = "steady"
    title: ClassVar[str] = "keeps workers where they are, and brings a spanning job together when that pays"

    def place(self, view: ClusterState, replicas: Mapping[str, int], now: float) -> Placement:
        placed = _settle(view, replicas)
        while (roomier := _with_one_more(view, replicas, placed)) is not None:
            placed = roomier
        return placed


def _settle(view: ClusterState, replicas: Mapping[str, int]) -> Placement:
    partial = PartialPlacement(view, replicas)
    # Bringing a job together makes room elsewhere: go on until nothing fits any better. Each round places more
    # workers or ends a span, so the rounds end.
    while partial.serve_short() or partial.consolidate():
        pass
    return partial.placed


def _with_one_more(view: ClusterState, replicas: Mapping[str, int], placed: Placement) -> Placement | None:
    """Return a placement in which one more job starts and no other has less; None if no job is helped so.

    Only jobs with several GPUs per worker need it: free GPUs in all, but too few on any node.
    """
    roomless = [job_id for job_id, count in replicas.items() if count > 0 and job_id not in placed]
    for job_id in by_size(view, roomless, replicas):
        in_the_way = _with_minimum_of(view, placed, job_id)
        if in_the_way is None:
            continue
        # The nodes are overfull now: settling moves the smaller workers elsewhere, if there is room.
        roomier = _settle(replace(view, plan=replace(view.plan, placement=in_the_way)), replicas)
        if all(
            len(roomier.get(other, ())) >= len(nodes) and not is_uprooted(view, other, roomier[other])
            for other, nodes in in_the_way.items()
        ):
            return roomier
    return None


def _with_minimum_of(view: ClusterState, placed: Placement, job_id: str) -> Placement | None:
    """Return the placement with the job's minimum put where the least has to move, the nodes overfull.

    The job's workers fit on no node as it is; None where there is no room even without the smaller workers.
    """
    job, spec = view.jobs[job_id], view.jobs[job_id].spec
    free, smaller = _free_and_smaller(view, placed, spec.gpus_per_replica)
    nodes: list[str] = []
    for node in sorted(free.keys() - refusing(job, 1), key=lambda node: (-free[node], node)):
        fitting = (free[node] + smaller[node]) // spec.gpus_per_replica
        fitting = min(fitting, job.fits.get(node, fitting))
        nodes += [node] * min(fitting, spec.min_replicas - len(nodes))
    return {**placed, job_id: tuple(nodes)} if len(nodes) == spec.min_replicas else None


def _free_and_smaller(view: ClusterState, placed: Placement, gpus: Gpus) -> tuple[dict[str, Gpus], dict[str, Gpus]]:
    """Return node -> free GPUs, and node -> GPUs held by workers of fewer than `gpus`."""
    smaller: dict[str, Gpus] = defaultdict(Gpus)
    for job_id, nodes in placed.items():
        held = view.jobs[job_id].spec.gpus_per_replica
        if held >= gpus:
            continue
        for node in nodes:
            smaller[node] += held
        if anchor(view, job_id) == nodes[0]:
            smaller[nodes[0]] -= held
    return view.free_gpus(placed), smaller
