"""Closes nodes that are cordoned, or silent for a while only: they have room for the workers there, and for no others.

Rules: pure, the time is a parameter; the workers at work on a closed node stay, and no plan puts a new one there. A
node is silent that does not answer, or says fewer GPUs than its workers hold: a kubelet or a device plugin that starts
anew says none for a moment, while all pods run. After `node_grace_s` what it says is believed, and one that says
nothing counts as lost; while most nodes of a pool are silent at once, none does, however long it lasts: it is what
they share that is believed ill, the control plane or a driver. A worker whose GPU has been sick for as long moves, and
no other of its job: a plan looks at the job without it, and gives it the place to which it would move another.
"""

import math
from collections import Counter
from collections.abc import Collection, Mapping
from itertools import chain

from msgspec.structs import replace

from voda.domain.gpus import Gpus
from voda.domain.job import CONTESTED_AGAIN, Job
from voda.domain.node import Node
from voda.domain.plan import Placement
from voda.domain.reasons.nodes import Cordoned, FewerGpus, NodeRefusal, NotAnswering
from voda.domain.state import ClusterState


def with_closed_nodes(view: ClusterState, now: float) -> ClusterState:
    """Return the view in which closed nodes have room for the workers there alone, and refuse all others."""
    silent = view.silent_since
    # Nearly all nodes are well.
    doubtful = [node for node in view.node_groups.special.values() if not (node.is_ready and node.is_schedulable)]
    doubtful += [node for name in silent if (node := view.nodes.get(name)) and node.is_ready and node.is_schedulable]
    if not doubtful:
        return view
    held = _held_gpus(view)
    closed = {node.name: why for node in doubtful if (why := _why_closed(view, node, held.get(node.name, 0), now))}
    # One without workers that has nothing to offer is out of the way.
    closed = {name: why for name, why in closed.items() if name in held or view.nodes[name].usable_gpus}
    if not closed:
        return view
    rooms = {name: _room_for(view.nodes[name], held.get(name, 0), why) for name, why in closed.items()}
    jobs = {
        job_id: job if job.is_canceling else replace(job, refusals=_closed(job, closed), fits=_open(job, closed))
        for job_id, job in view.jobs.items()
    }
    return replace(view, nodes={**view.nodes, **rooms}, jobs=jobs, closed_nodes=closed)


def without_sick_workers(view: ClusterState, now: float) -> ClusterState:
    """Return the view without the workers that are to have other GPUs."""
    left = {
        job_id: replace(job, workers={index: node for index, node in job.workers.items() if index not in sick})
        for job_id, job in view.special_jobs.items()
        if job.sick_gpus and (sick := _sick(job, view, now))
    }
    return view.with_jobs(left)


def with_sick_moved(view: ClusterState, placement: Placement, now: float) -> Placement:
    """Return a plan of as many workers on each node in which sick ones move instead of others."""
    moved: dict[str, tuple[str, ...]] = {}
    # Nearly no job has any.
    for job_id, job in [(job_id, job) for job_id, job in view.special_jobs.items() if job.sick_gpus]:
        nodes = [*placement.get(job_id, ())]
        for index in _sick(job, view, now):
            stays = index < len(nodes) and nodes[index] == job.workers[index]
            others = (other for other, node in job.workers.items() if other < len(nodes) and node != nodes[other])
            for other in [each for each in others if stays and job.workers[each] == nodes[index]][:1]:
                nodes[index], nodes[other] = nodes[other], nodes[index]
                moved[job_id] = tuple(nodes)
    # Of cells each worker has its own.
    return {**placement, **moved} if moved and view.cells is None else placement


def grace_ends_at(view: ClusterState, now: float) -> float:
    """Return when the next silent node with workers, or sick GPU, counts as lost; infinite: only a fact can."""
    if view.is_mostly_silent:
        return math.inf
    grace_s = view.settings.node_grace_s
    ends = {name: since + grace_s for name, since in view.silent_since.items() if since + grace_s > now}
    sick_at = (gpu.since + grace_s for job in view.special_jobs.values() for gpu in job.sick_gpus.values())
    first = min((at for at in sick_at if at > now), default=math.inf)
    if not ends:
        return first
    at_work = {node for job in view.jobs.values() for node in job.workers.values()}
    return min([first, *(at for name, at in ends.items() if name in at_work)])


def _why_closed(view: ClusterState, node: Node, held: int, now: float) -> NodeRefusal | None:
    """Return why a node takes no new workers while those there stay; None: it takes some, or none may stay."""
    if node.is_draining:
        return None
    since = view.silent_since.get(node.name)
    if since is not None and (view.is_mostly_silent or now < since + view.settings.node_grace_s):
        if not node.is_ready:
            return NotAnswering()
        # Once those with sick GPUs count no more, it may have enough.
        if node.own_gpus < held:
            return FewerGpus(gpus=node.gpus, held=held)
    return Cordoned() if node.is_ready and not node.is_schedulable else None


def _held_gpus(view: ClusterState) -> Mapping[str, int]:
    """Return node -> GPUs that workers hold which may stay."""
    of_size: dict[int, list[Job]] = {}
    for job in view.jobs.values():
        if job.workers and not job.is_canceling:
            of_size.setdefault(job.spec.gpus_per_replica, []).append(job)
    held: Counter[str] = Counter()
    for gpus, jobs in of_size.items():
        workers = Counter(chain.from_iterable([job.workers.values() for job in jobs]))
        held.update(workers if gpus == 1 else {node: count * gpus for node, count in workers.items()})
    return held


def _closed(job: Job, closed: Mapping[str, NodeRefusal]) -> Mapping[str, NodeRefusal]:
    """Return why nodes refuse a job; one and the same mapping where it is closed nodes alone."""
    return {**job.refusals, **closed} if job.refusals else closed


def _open(job: Job, closed: Mapping[str, NodeRefusal]) -> Mapping[str, int]:
    """Return how many workers of a job have room on nodes that are not closed, where that is known."""
    return {name: number for name, number in job.fits.items() if name not in closed}


def _room_for(node: Node, held: int, why: NodeRefusal) -> Node:
    gpus = min(held, node.own_gpus) if isinstance(why, Cordoned) else held
    return replace(node, gpus=Gpus(gpus), foreign_gpus=Gpus(0), is_ready=True, is_schedulable=True)


def _sick(job: Job, view: ClusterState, now: float) -> Collection[int]:
    """Return the workers of a job that are to have other GPUs; one that begins only once keeps its own."""
    if not (job.sick_gpus and job.spec.is_restartable) or view.is_mostly_silent:
        return ()
    late = (item for item in job.sick_gpus.items() if item[1].reason != CONTESTED_AGAIN)
    sick = ((index, gpu.since) for index, gpu in late if index in job.workers)
    # Its node may have said that it has fewer a moment before.
    since = {index: min(at, view.silent_since.get(job.workers[index], at)) for index, at in sick}
    return [index for index, at in since.items() if now >= at + view.settings.node_grace_s]
