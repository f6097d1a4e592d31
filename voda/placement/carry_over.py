"""What can stay of the placement in force: shrunk jobs lose their highest indices, lost nodes all their workers.

Rules: afterwards no node holds more than it has, and of a job that it refuses only workers that are at work there.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from voda.domain.gpus import NO_GPUS, Gpus
from voda.domain.state import ClusterState
from voda.placement.order import anchor


@dataclass(slots=True)
class CarryOver:
    """The workers that stay, and what they leave free."""

    free: dict[str, Gpus]
    """node -> GPUs free once all others are gone; nodes that left may be named, with 0."""
    whole: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Jobs that have all their replicas -> node by worker index."""
    short: dict[str, dict[int, str]] = field(default_factory=dict)
    """Jobs that lack workers -> worker index -> node; starting ones have none at all."""
    spanning: list[str] = field(default_factory=list)
    """Jobs of either kind whose workers are on several nodes."""


def carry_over(view: ClusterState, replicas: Mapping[str, int]) -> CarryOver:
    """Return what stays of `view.plan.placement` under a new allocation. Costs O(live workers)."""
    carried = CarryOver({name: node.usable_gpus for name, node in view.nodes.items()})
    free, in_force, jobs = carried.free, view.plan.placement, view.jobs
    refused: list[str] = []
    for job_id, count in replicas.items():
        if count <= 0:
            continue
        nodes = in_force.get(job_id, ())
        if len(nodes) < count:
            carried.short[job_id] = dict(enumerate(nodes))
        else:
            nodes = carried.whole[job_id] = nodes[:count]
        job = jobs[job_id]
        gpus = job.spec.gpus_per_replica
        if job.refusals:
            refused.append(job_id)
        for node in nodes:
            free[node] = free.get(node, NO_GPUS) - gpus
        if len(nodes) > 1 and nodes.count(nodes[0]) < len(nodes):
            carried.spanning.append(job_id)
    for job_id in refused:
        _leave_refusing_nodes(carried, view, job_id)
    if min(free.values(), default=0) < 0:
        _clear_overfull(carried, view)
    return carried


def _leave_refusing_nodes(carried: CarryOver, view: ClusterState, job_id: str) -> None:
    """Give up the places on nodes that refuse the job, but for workers at work there."""
    job = view.jobs[job_id]
    places = carried.short[job_id] if job_id in carried.short else dict(enumerate(carried.whole[job_id]))
    going = [index for index, node in places.items() if node in job.refusals and job.workers.get(index) != node]
    if not going:
        return
    carried.whole.pop(job_id, None)
    carried.short[job_id] = places
    for index in going:
        carried.free[places.pop(index)] += job.spec.gpus_per_replica


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
