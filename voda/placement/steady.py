"""Steady: starts from the placement in force and changes as little as the rules of this folder allow.

Rules: a job begins to span nodes only while no node has room for it whole; a job that spans is brought together
when the time this saves outweighs the move; others move for a job only where it could not start otherwise; what hosts
a rendezvous stays as long as its node has room for it; only smaller workers are moved out of the way, so two jobs never
take turns in moving each other; placing again with the answer in force gives the same answer.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import ClassVar, Final

from msgspec.structs import replace

from voda.domain.gpus import Gpus
from voda.domain.plan import Placement
from voda.domain.state import ClusterState
from voda.placement.order import anchor, by_size, is_uprooted, lacking, per_node, refusing, shape
from voda.placement.partial_placement import PartialPlacement
from voda.placement.scarce import ScarceResources

_MOST_TRIES: Final = 8
"""Classes of jobs that are tried in vain where resources are scarce: a bound on the time that a decision takes."""


class Steady:
    """Keeps workers where they are; best fit for what starts or grows."""

    name: ClassVar[str] = "steady"
    title: ClassVar[str] = "keeps workers where they are, and brings a spanning job together when that pays"

    def place(self, view: ClusterState, replicas: Mapping[str, int], now: float) -> Placement:
        return settled(view, replicas)


def settled(view: ClusterState, replicas: Mapping[str, int], *, keeps_spans: bool = False) -> Placement:
    """Return the placement of `Steady`; with `keeps_spans`, no job that spans already is brought together."""
    in_vain: set[object] = set()

    def settle(begun: ClusterState) -> Placement:
        return _settle(begun, replicas, keeps_spans=keeps_spans)

    placed = settle(view)
    while (roomier := _with_one_more(view, replicas, placed, settle, in_vain if view.scarce else set())) is not None:
        placed = roomier
    return placed


def _settle(view: ClusterState, replicas: Mapping[str, int], *, keeps_spans: bool) -> Placement:
    partial = PartialPlacement(view, replicas, keeps_spans=keeps_spans)
    # Bringing a job together makes room elsewhere: go on until nothing fits any better. Each round places more
    # workers or ends a span, so the rounds end.
    while partial.serve_short() or partial.consolidate():
        pass
    return partial.placed


def _with_one_more(
    view: ClusterState,
    replicas: Mapping[str, int],
    placed: Placement,
    settle: Callable[[ClusterState], Placement],
    in_vain: set[object],
) -> Placement | None:
    """Return a placement in which one more job starts and no other has less; None if no job is helped so.

    Only jobs with several GPUs per worker need it: free GPUs in all, but too few on any node. What was tried `in_vain`
    is added to it; where resources are scarce, one job is tried for all of its class, and few classes are.
    """
    roomless = [job_id for job_id in lacking(replicas, placed) if job_id not in placed]
    for job_id in by_size(view, roomless, replicas):
        job = view.jobs[job_id]
        alike = (*shape(job), job.spec.min_replicas) if view.scarce else job_id
        if alike in in_vain or (view.scarce and len(in_vain) >= _MOST_TRIES):
            continue
        in_vain.add(alike)
        in_the_way = _with_minimum_of(view, placed, job_id)
        if in_the_way is None:
            continue
        # The nodes are overfull now: settling moves the smaller workers elsewhere, if there is room.
        roomier = settle(replace(view, plan=replace(view.plan, placement=in_the_way)))
        if all(
            len(roomier.get(other, ())) >= len(nodes) and not is_uprooted(view, other, roomier[other])
            for other, nodes in in_the_way.items()
        ):
            in_vain.remove(alike)
            return roomier
    return None


def _with_minimum_of(view: ClusterState, placed: Placement, job_id: str) -> Placement | None:
    """Return the placement with the job's minimum put where the least has to move, the nodes overfull.

    The job's workers fit on no node as it is; None where there is no room even without the smaller workers.
    """
    job, spec = view.jobs[job_id], view.jobs[job_id].spec
    free, smaller, scarce = _free_and_smaller(view, placed, spec.gpus_per_replica)
    nodes: list[str] = []
    for node in sorted(free.keys() - refusing(job, 1), key=lambda node: (-free[node], node)):
        fitting = (free[node] + smaller[node]) // spec.gpus_per_replica
        fitting = max(0, scarce.most(job, node, min(fitting, job.fits.get(node, fitting))))
        nodes += [node] * min(fitting, spec.min_replicas - len(nodes))
    return {**placed, job_id: tuple(nodes)} if len(nodes) == spec.min_replicas else None


def _free_and_smaller(
    view: ClusterState, placed: Placement, gpus: Gpus
) -> tuple[dict[str, Gpus], dict[str, Gpus], ScarceResources]:
    """Return node -> free GPUs, node -> GPUs held by workers of fewer than `gpus`, and what these leave when gone."""
    smaller: dict[str, Gpus] = defaultdict(Gpus)
    scarce = ScarceResources(view.scarce)
    for job_id, nodes in placed.items():
        job = view.jobs[job_id]
        held = job.spec.gpus_per_replica
        if held >= gpus:
            scarce.take_all(job, per_node(nodes) if view.scarce else {})
            continue
        for node in nodes:
            smaller[node] += held
        if anchor(view, job_id) == nodes[0]:
            smaller[nodes[0]] -= held
            scarce.take(job, nodes[0], 1)
    return view.free_gpus(placed), smaller, scarce
