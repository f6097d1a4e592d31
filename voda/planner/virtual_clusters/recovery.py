"""The plan in force as a draft: every worker that may stay where it is has its cells again.

Rules: guaranteed workers come first, then the others from the oldest job on. A worker whose node is lost, or no longer
takes it, has no cells and is placed anew; so is one whose devices another has. Devices that others use are nobody's.
"""

from collections.abc import Iterator, Sequence, Set
from typing import Final

from voda.cells.gangs import OPPORTUNISTIC, GangRequest, WorkerCells
from voda.cells.health import set_node_bad
from voda.cells.recovery import occupy
from voda.cells.search.packing import choose_leafs
from voda.domain.job import Job
from voda.domain.state import ClusterState
from voda.planner.virtual_clusters.cell_draft import CellDraft
from voda.planner.virtual_clusters.unused_book import unused_book

_FOREIGN: Final = "others on "


def recover(view: ClusterState, without_guarantee: Set[str]) -> CellDraft:
    """Return the plan in force, without what cannot go on; jobs `without_guarantee` have none for this decision."""
    book = unused_book(view).copy()
    leafs_on = book.topology.leafs_on
    usable = frozenset(name for name, node in view.nodes.items() if node.usable_gpus and name not in view.closed_nodes)
    mixed = frozenset(name for name in usable & leafs_on.keys() if view.nodes[name].usable_gpus < len(leafs_on[name]))
    draft = CellDraft(view, book, usable, mixed, without_guarantee)
    _recover_workers(draft)
    for name in sorted(mixed):
        _block(draft, name)
    # Bad nodes come last: what runs on them goes on, and no quota cell is doomed that a worker has.
    for name in leafs_on.keys() - usable:
        set_node_bad(book, name)
    return draft


def _recover_workers(draft: CellDraft) -> None:
    view = draft.view
    room = {name: int(node.usable_gpus) for name, node in view.nodes.items()}
    all_devices = view.plan.devices
    later: list[tuple[Job, int, str, tuple[int, ...]]] = []
    for job, index, node, quota in _kept(draft):
        gpus = job.spec.gpus_per_replica
        if room[node] < gpus:
            continue
        room[node] -= gpus
        of_job = all_devices.get(job.spec.job_id, ())
        devices = of_job[index] if index < len(of_job) else ()
        cells = _cells(draft, node, devices, quota) if len(devices) == gpus else None
        if cells is None:
            later.append((job, index, node, devices))
        else:
            draft.add(job, cells, index)
    for job, index, node, _ in later:
        found = _idle_devices(draft, node, job.spec.gpus_per_replica)
        if found is not None:
            draft.add(job, found, index)


def _kept(draft: CellDraft) -> Iterator[tuple[Job, int, str, str]]:
    """Yield (job, index, node, type of its quota cell) of workers that stay, in the order in which they have cells."""
    view = draft.view
    jobs = [job for job_id in view.plan.placement if (job := view.jobs.get(job_id)) and not job.is_canceling]
    jobs.sort(key=lambda job: (job.submitted_at, job.spec.job_id))
    in_force, quotas, nodes = view.plan.placement, view.plan.guaranteed, view.nodes
    guaranteed: list[tuple[Job, int, str, str]] = []
    idle: list[tuple[Job, int, str, str]] = []
    for job in jobs:
        of_job = quotas.get(job.spec.job_id, ()) if draft.may_be_guaranteed(job) else ()
        for index, node in enumerate(in_force[job.spec.job_id]):
            if node in nodes and (node not in job.refusals or job.workers.get(index) == node):
                quota = of_job[index] if index < len(of_job) else ""
                (guaranteed if quota else idle).append((job, index, node, quota))
    guaranteed.sort(key=lambda each: -each[0].spec.priority)
    yield from guaranteed
    yield from idle


def _cells(draft: CellDraft, node: str, devices: Sequence[int], quota: str) -> WorkerCells | None:
    """Return a worker's cells; None where a device is gone or another has it."""
    topology, holder = draft.book.topology, draft.book.holder
    leafs = [topology.leaf_at.get((node, device)) for device in devices]
    for leaf in leafs:
        if leaf is None or holder[leaf]:
            return None
    chain = topology.trees.chain[topology.leaf_at[node, devices[0]]].name
    return WorkerCells(node=node, devices=tuple(devices), chain=chain, quota=quota)


def _idle_devices(draft: CellDraft, node: str, count: int) -> WorkerCells | None:
    """Return devices of a node that nobody has, near to each other; None where there are too few."""
    topology, holder = draft.book.topology, draft.book.holder
    idle = [leaf for leaf in topology.leafs_on.get(node, ()) if not holder[leaf]]
    if len(idle) < count:
        return None
    leafs = choose_leafs(topology.trees, idle, count)
    devices = tuple(topology.devices[leaf] for leaf in leafs)
    return WorkerCells(node=node, devices=devices, chain=topology.trees.chain[leafs[0]].name)


def _block(draft: CellDraft, node: str) -> None:
    """Let devices that others use be nobody's."""
    book = draft.book
    leafs = book.topology.leafs_on[node]
    held = sum(bool(book.holder[leaf]) for leaf in leafs)
    blocked = min(len(leafs) - held, len(leafs) - int(draft.view.nodes[node].usable_gpus))
    cells = _idle_devices(draft, node, blocked) if blocked > 0 else None
    if cells is not None:
        name = f"{_FOREIGN}{node}"
        request = GangRequest(name=name, virtual_cluster="", members=((1, blocked),), priority=OPPORTUNISTIC)
        occupy(book, request, (cells,))
