"""The plan in force as a draft: every worker that may stay where it is has its cells.

Rules: gangs of pods that voda does not make come first, since it cannot move them; then guaranteed workers, then the
others from the oldest job on. A worker whose node is lost, or no longer takes it, has no cells and is placed anew; so
is one whose devices another has. Devices that others use are nobody's.
"""

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from typing import Final, NamedTuple

from voda.cells.book import CellBook
from voda.cells.gangs import OPPORTUNISTIC, GangRequest, WorkerCells
from voda.cells.health import set_node_bad
from voda.cells.preemption import end
from voda.cells.recovery import occupy
from voda.cells.search.packing import choose_leafs
from voda.domain.job import Job
from voda.domain.state import ClusterState
from voda.planner.virtual_clusters.cell_draft import CellDraft, PlannedWorker, workers_on
from voda.planner.virtual_clusters.plan_book import PlanBook

_FOREIGN: Final = "others on "


def recover(
    view: ClusterState, without_guarantee: Set[str] = frozenset(), planned: PlanBook | None = None
) -> CellDraft:
    """Return the plan in force, without what cannot go on.

    Args:
        view: of a pool that has virtual clusters.
        without_guarantee: jobs that have none for this decision.
        planned: the book of the plan, which follows this view; None: it is made anew.
    """
    if planned is None:
        planned = PlanBook.of(view)
    else:
        planned.follow(view)
    held = gang_leafs(view)
    # Without gangs and closed nodes they follow from the nodes alone; a closed one that is full may be equal to an open
    # one.
    is_plain = not (held or view.closed_nodes)
    known = planned.open_nodes if is_plain else None
    usable, foreign = known or _open_nodes(view, planned.book.topology.leafs_on, held)
    planned.open_nodes = (usable, foreign) if is_plain else None
    draft = CellDraft(
        view=view,
        book=planned.book.copy(),
        usable=usable,
        mixed=frozenset(foreign) | _lent_to_gangs(view),
        without_guarantee=without_guarantee,
        workers=dict(planned.workers),
        jobs=planned.jobs,
        sure=planned.jobs.sure.copy(),
    )
    draft.parts.update(planned.parts)
    draft.parts.begin(draft.workers, draft.book.gangs)
    for job_id in planned.elsewhere:
        draft.changed(job_id)
    for job_id in sorted(without_guarantee & draft.workers.keys()):
        _end_guarantee(draft, job_id)
    closed = draft.book.topology.leafs_on.keys() - usable
    _send_away(draft, planned.homeless, closed | foreign.keys() | held.keys(), held)
    for name in sorted(foreign):
        _block(draft, name, foreign[name])
    # Bad nodes come last: what runs on them goes on, and no quota cell is doomed that a worker has.
    for name in sorted(closed):
        set_node_bad(draft.book, name)
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


def _open_nodes(
    view: ClusterState, leafs_on: Mapping[str, Sequence[int]], held: Mapping[str, int]
) -> tuple[frozenset[str], Mapping[str, int]]:
    """Return the nodes that take new workers, and node -> devices there that others than jobs and gangs use."""
    closed = view.closed_nodes
    usable = frozenset(
        name
        for name, node in view.nodes.items()
        if name not in closed and (node.usable_gpus or (held.get(name) and node.is_open))
    )
    return usable, _foreign(view, leafs_on, usable, held)


def _foreign(
    view: ClusterState, leafs_on: Mapping[str, Sequence[int]], usable: Set[str], held: Mapping[str, int]
) -> Mapping[str, int]:
    """Return node -> devices that others than jobs and gangs use, of usable nodes on which there are some."""
    foreign = {}
    for name, leafs in leafs_on.items():
        if name in usable and (count := len(leafs) - _room(view, held, name) - held.get(name, 0)) > 0:
            foreign[name] = count
    return foreign


def _lent_to_gangs(view: ClusterState) -> frozenset[str]:
    return frozenset(cells.node for gang in view.gangs.values() for cells in gang.placement if not cells.quota)


def _room(view: ClusterState, held: Mapping[str, int], name: str) -> int:
    """Return the GPUs of a node that jobs may have, whether or not the pods of gangs are there and request theirs."""
    if (node := view.nodes.get(name)) is None:
        return 0
    usable = int(node.usable_gpus)
    # What a closed node has is what workers hold there.
    is_shared = name in held and name not in view.closed_nodes
    return min(usable, int(node.gpus) - held[name]) if is_shared else usable


def _end_guarantee(draft: CellDraft, job_id: str) -> None:
    """Let the guaranteed workers of a job go on as others do."""
    job = draft.view.jobs[job_id]
    for worker in draft.guaranteed(job_id):
        end(draft.book, worker.name)
        draft.remove(worker)
        cells = WorkerCells(node=worker.cells.node, devices=worker.cells.devices, chain=worker.cells.chain)
        draft.add(job, cells, worker.index)


class _Doubt(NamedTuple):
    """A worker of which it is not certain that it can stay."""

    is_lent: bool
    rank: int
    submitted_at: float
    job_id: str
    place: int
    worker: PlannedWorker
    """In the order of these, guaranteed ones first, they stay."""
    is_homeless: bool


def _send_away(draft: CellDraft, homeless: Sequence[PlannedWorker], nodes: Set[str], held: Mapping[str, int]) -> None:
    """Take workers away for which their nodes have no room, or which they refuse; give others cells that have none.

    Args:
        homeless: workers that have no cells.
        nodes: those on which something is not as it is on most.
        held: node -> devices that gangs have there.
    """
    view, jobs = draft.view, draft.view.jobs
    nodes = nodes | {worker.cells.node for worker in homeless}
    refused = draft.jobs.refusing & draft.workers.keys()
    if not (nodes or refused):
        return
    doubtful = {worker.name: worker for job_id in refused for worker in draft.workers[job_id]}
    for name in nodes:
        doubtful |= {worker.name: worker for worker in workers_on(draft, name)}
    doubts = [_doubt(draft, worker, is_homeless=False) for worker in doubtful.values()]
    doubts += [_doubt(draft, worker, is_homeless=True) for worker in homeless]
    room = {name: _room(view, held, name) for name in nodes}
    there = Counter((doubt.job_id, doubt.worker.cells.node) for doubt in doubts if _is_at_work(jobs, doubt.worker))
    coming = list[PlannedWorker]()
    for doubt in sorted(doubts):
        job, worker = jobs[doubt.job_id], doubt.worker
        place = doubt.job_id, worker.cells.node
        is_new = not _is_at_work(jobs, worker)
        if (is_new and job.is_refused_by(worker.cells.node, there[place] + 1)) or not _has_room(job, worker, room):
            if not doubt.is_homeless:
                end(draft.book, worker.name)
                draft.remove(worker)
            continue
        there[place] += is_new
        if doubt.is_homeless:
            coming.append(worker)
    for worker in coming:
        job = jobs[worker.job_id]
        if (found := _idle_devices(draft.book, worker.cells.node, job.spec.gpus_per_replica)) is not None:
            draft.add(job, found, worker.index)


def _doubt(draft: CellDraft, worker: PlannedWorker, *, is_homeless: bool) -> _Doubt:
    job, is_lent = draft.view.jobs[worker.job_id], not worker.cells.quota
    rank = 0 if is_lent else -job.spec.priority
    return _Doubt(is_lent, rank, job.submitted_at, worker.job_id, worker.index, worker, is_homeless)


def _is_at_work(jobs: Mapping[str, Job], worker: PlannedWorker) -> bool:
    return jobs[worker.job_id].workers.get(worker.index) == worker.cells.node


def _has_room(job: Job, worker: PlannedWorker, room: dict[str, int]) -> bool:
    """Take the room of a worker on its node; return False where there is none."""
    node, gpus = worker.cells.node, job.spec.gpus_per_replica
    if node in room:
        if room[node] < gpus:
            return False
        room[node] -= gpus
    return True


def _idle_devices(book: CellBook, node: str, count: int) -> WorkerCells | None:
    """Return devices of a node that nobody has, near to each other; None where there are too few."""
    topology, holder = book.topology, book.holder
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
    cells = _idle_devices(book, node, blocked) if blocked > 0 else None
    if cells is not None:
        name = f"{_FOREIGN}{node}"
        request = GangRequest(name=name, virtual_cluster="", members=((1, blocked),), priority=OPPORTUNISTIC)
        occupy(book, request, (cells,))
