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
from voda.cells.resumption import GangBatch, alone, batches, resume
from voda.cells.search.packing import choose_leafs
from voda.domain.job import Job
from voda.domain.state import ClusterState
from voda.planner.virtual_clusters.cell_draft import CellDraft, job_of
from voda.planner.virtual_clusters.former_workers import FormerWorker, FormerWorkers, KeptWorkers
from voda.planner.virtual_clusters.unused_book import kept_workers

_FOREIGN: Final = "others on "
_Former = tuple[Job, FormerWorkers]


def recover(view: ClusterState, without_guarantee: Set[str]) -> CellDraft:
    """Return the plan in force, without what cannot go on; jobs `without_guarantee` have none for this decision."""
    kept = kept_workers(view)
    book = kept.book.copy()
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
    _recover_workers(draft, kept, held)
    for name in sorted(name for name in foreign if foreign[name] > 0):
        _block(draft, name, foreign[name])
    # Bad nodes come last: what runs on them goes on, and no quota cell is doomed that a worker has.
    for name in sorted(leafs_on.keys() - usable):
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


def _recover_workers(draft: CellDraft, kept: KeptWorkers, held: Mapping[str, int]) -> None:
    view = draft.view
    jobs = [job for job_id in view.plan.placement if (job := view.jobs.get(job_id)) and not job.is_canceling]
    jobs.sort(key=lambda job: (job.submitted_at, job.spec.job_id))
    former = [(job, kept.of_job(draft, job)) for job in jobs]
    later: list[tuple[Job, FormerWorker]] = []
    downgraded = resume(draft.book, _batches(draft, former, later, held), kept.contents)
    kept.forget_others(view.plan.placement.keys())
    for name in downgraded:
        draft.changed(job_of(name))
    for job, worker in later:
        found = _idle_devices(draft, worker.node, job.spec.gpus_per_replica)
        if found is not None:
            draft.add(job, found, worker.planned.index)


def _batches(
    draft: CellDraft, former: Sequence[_Former], later: list[tuple[Job, FormerWorker]], held: Mapping[str, int]
) -> Iterator[GangBatch]:
    """Add the workers that go on, and yield their gangs, those of the guaranteed ones of all jobs first.

    Workers whose devices are gone or in use come `later`.
    """
    certain, workers = _certain_nodes(draft, former) - held.keys(), draft.workers
    room = {name: _room(draft.view, held, name) for name in draft.view.nodes}
    taken = {leaf for leaf, name in enumerate(draft.book.holder) if name}
    guaranteed = [each for each in former if each[1].guaranteed]
    guaranteed.sort(key=lambda each: -each[0].spec.priority)
    for part, jobs in enumerate((guaranteed, former)):
        for job, of_job in jobs:
            whole, job_id = of_job.whole, job.spec.job_id
            if whole is not None and not job.refusals and certain.issuperset(whole.cells.nodes):
                if job_id not in workers:
                    workers[job_id] = whole.workers
                    draft.keep(job_id, whole.cells, whole.parts)
                yield from whole.batches[part]
                continue
            for worker in of_job.idle if part else of_job.guaranteed:
                if not _has_room(job, worker, room):
                    continue
                if worker.gang is None or not taken.isdisjoint(worker.gang.leafs):
                    later.append((job, worker))
                    continue
                taken.update(worker.gang.leafs)
                workers[job_id] = (*workers.get(job_id, ()), worker.planned)
                # Beside pods of gangs nothing is as simple as for most.
                is_alone, topology = worker.node in held, draft.book.topology
                yield from (alone(worker.gang),) if is_alone else batches(topology, (worker.gang,))


def _has_room(job: Job, worker: FormerWorker, room: dict[str, int]) -> bool:
    """Take the room of a worker on its node; return False where there is none, or the node does not take it."""
    node, gpus = worker.node, job.spec.gpus_per_replica
    is_refused = node in job.refusals and job.workers.get(worker.planned.index) != node
    if is_refused or room.get(node, 0) < gpus:
        return False
    room[node] -= gpus
    return True


def _certain_nodes(draft: CellDraft, former: Sequence[_Former]) -> frozenset[str]:
    """Return nodes on which all workers have their devices: these are voda's, and no two workers name the same."""
    leafs: list[int] = []
    doubtful: set[str] = set()
    for _, workers in former:
        if workers.whole is None:
            doubtful.update(worker.node for worker in (*workers.guaranteed, *workers.idle))
        else:
            leafs += workers.whole.leafs
    return draft.usable - draft.mixed - doubtful if len(set(leafs)) == len(leafs) else frozenset()


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
