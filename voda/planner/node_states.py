"""Closes nodes that are cordoned, or silent for a while only: they have room for the workers there, and for no others.

Rules: pure, the time is a parameter; the workers at work on a closed node stay, and no plan puts a new one there. A
node that is silent for longer than `node_grace_s` counts as lost; while most nodes of a pool are silent at once, none
does, however long it lasts: it is the control plane's side that is believed ill.
"""

import math
from collections import Counter
from collections.abc import Mapping

from msgspec.structs import replace

from voda.domain.gpus import Gpus
from voda.domain.job import Job
from voda.domain.node import Node
from voda.domain.plan import Plan
from voda.domain.state import ClusterState
from voda.events.types import WorkerExited

SILENT = "it does not answer"
CORDONED = "it is cordoned"


def with_closed_nodes(view: ClusterState, now: float) -> ClusterState:
    """Return the view in which closed nodes have room for the workers there alone, and refuse all others."""
    closed = {name: why for name, node in view.nodes.items() if (why := _why_closed(view, node, now))}
    if not closed or not (held := _held_gpus(view, closed)):
        return view
    closed = {name: why for name, why in closed.items() if name in held}
    rooms = {name: _room_for(view.nodes[name], held[name]) for name in closed}
    jobs = {
        job_id: job if job.is_canceling else replace(job, refusals={**job.refusals, **closed}, fits=_open(job, closed))
        for job_id, job in view.jobs.items()
    }
    return replace(view, nodes={**view.nodes, **rooms}, jobs=jobs, closed_nodes=closed)


def grace_ends_at(view: ClusterState, now: float) -> float:
    """Return when the next silent node with workers counts as lost; infinite where none does without another fact."""
    if view.is_mostly_silent:
        return math.inf
    grace_s = view.settings.node_grace_s
    ends = {name: since + grace_s for name, since in view.silent_since.items() if since + grace_s > now}
    if not ends:
        return math.inf
    at_work = {node for job in view.jobs.values() for node in job.workers.values()}
    return min((at for name, at in ends.items() if name in at_work), default=math.inf)


def has_lost_place(fact: WorkerExited, plan: Plan, nodes: Mapping[str, Node]) -> bool:
    """Return whether a worker exited that the plan has on a node which takes no new one: it cannot come back there."""
    planned = enumerate(plan.placement.get(fact.job_id, ()))
    places = (nodes.get(name) for index, name in planned if index in fact.workers)
    return any(node is not None and not node.usable_gpus for node in places)


def _why_closed(view: ClusterState, node: Node, now: float) -> str:
    """Return why a node takes no new workers while those there stay; empty: it takes some, or none may stay."""
    if node.is_draining:
        return ""
    if not node.is_ready:
        since = view.silent_since.get(node.name, -math.inf)
        return SILENT if view.is_mostly_silent or now < since + view.settings.node_grace_s else ""
    return "" if node.is_schedulable else CORDONED


def _held_gpus(view: ClusterState, nodes: Mapping[str, str]) -> Counter[str]:
    held: Counter[str] = Counter()
    for job in view.jobs.values():
        if not job.is_canceling:
            for node in job.workers.values():
                if node in nodes:
                    held[node] += job.spec.gpus_per_replica
    return held


def _open(job: Job, closed: Mapping[str, str]) -> Mapping[str, int]:
    """Return how many workers of a job have room on nodes that are not closed, where that is known."""
    return {name: number for name, number in job.fits.items() if name not in closed}


def _room_for(node: Node, held: int) -> Node:
    return replace(node, gpus=Gpus(min(held, node.own_gpus)), foreign_gpus=Gpus(0), is_ready=True, is_schedulable=True)
