"""The plan in force as a draft: every worker that may stay where it is has its cells again.

Rules: gangs of pods that voda does not make come first, since it cannot move them; then guaranteed workers, then the
others from the oldest job on. A worker whose node is lost, or no longer takes it, has no cells and is placed anew; so
is one whose devices another has. Devices that others use are nobody's.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Final

from msgspec.structs import replace

from voda.cells.book import CellBook
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
    _recover_gangs(view, book)
    held = gang_leafs(view)
    usable = frozenset(
        name
        for name, node in view.nodes.items()
        if name not in view.closed_nodes and (node.usable_gpus or (held[name] and node.is_open))
    )
    foreign = {name: len(leafs_on[name]) - _room(view, held, name) - held[name] for name in usable & leafs_on.keys()}
    mixed = frozenset(name for name in foreign if foreign[name] > 0) | _lent_to_gangs(view)
    draft = CellDraft(view, book, usable, mixed, without_guarantee)
    _recover_workers(draft, held)
    for name in sorted(name for name in foreign if foreign[name] > 0):
        _block(draft, name, foreign[name])
    # Bad nodes come last: what runs on them goes on, and no quota cell is doomed that a worker has.
    for name in leafs_on.keys() - usable:
        set_node_bad(book, name)
    return draft


def gang_leafs(view: ClusterState) -> Mapping[str, int]:
    """Return node -> devices that gangs of pods have there."""
    held = Counter[str]()
    for gang in view.gangs.values():
        for cells in gang.placement:
            held[cells.node] += len(cells.devices)
    return held


def blocked_nodes(book: CellBook) -> frozenset[str]:
    """Return the nodes of a recovered book on which others than jobs and gangs use devices."""
    return frozenset(name.removeprefix(_FOREIGN) for name in book.gangs if name.startswith(_FOREIGN))


def _recover_gangs(view: ClusterState, book: CellBook) -> None:
    for gang in view.gangs.values():
        # A job never takes their cells: voda cannot let their pods go.
        request = replace(gang.request, yields=False)
        occupy(book, request, gang.placement, workers={slot: pod.uid for slot, pod in gang.pods.items()})


def _lent_to_gangs(view: ClusterState) -> frozenset[str]:
    return frozenset(cells.node for gang in view.gangs.values() for cells in gang.placement if not cells.quota)


def _room(view: ClusterState, held: Mapping[str, int], name: str) -> int:
    """Return the GPUs of a node that jobs may have, whether or not the pods of gangs are there and request theirs."""
    node = view.nodes[name]
    return min(int(node.usable_gpus), int(node.gpus) - held[name]) if held[name] else int(node.usable_gpus)


def _recover_workers(draft: CellDraft, held: Mapping[str, int]) -> None:
    view = draft.view
    room = {name: _room(view, held, name) for name in view.nodes}
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


def _block(draft: CellDraft, node: str, count: int) -> None:
    """Let devices that others use be nobody's."""
    book = draft.book
    idle = sum(not book.holder[leaf] for leaf in book.topology.leafs_on[node])
    blocked = min(idle, count)
    cells = _idle_devices(draft, node, blocked) if blocked > 0 else None
    if cells is not None:
        name = f"{_FOREIGN}{node}"
        request = GangRequest(name=name, virtual_cluster="", members=((1, blocked),), priority=OPPORTUNISTIC)
        occupy(book, request, (cells,))
