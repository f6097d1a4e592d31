"""The plan in force as a draft: every worker that may stay where it is has its cells again.

Rules: gangs of pods that voda does not make come first, since it cannot move them; then guaranteed workers, then the
others from the oldest job on. A worker whose node is lost, or no longer takes it, has no cells and is placed anew; so
is one whose devices another has. Devices that others use are nobody's.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Literal

from msgspec.structs import replace

from voda.cells.book import CellBook
from voda.cells.gangs import OPPORTUNISTIC, GangBatch, GangRequest, WorkerCells, alone, batches
from voda.cells.health import set_node_bad
from voda.cells.recovery import occupy
from voda.cells.resumption import resume
from voda.cells.search.packing import choose_leafs
from voda.domain.job import Job
from voda.domain.state import ClusterState
from voda.planner.virtual_clusters.cell_draft import CellDraft, job_of
from voda.planner.virtual_clusters.former_workers import FormerJob, FormerWorker, KeptWorkers, SchedulableNodes
from voda.planner.virtual_clusters.unused_book import unused_book

_FOREIGN: Final = "others on "


def recover(
    view: ClusterState, without_guarantee: Set[str] = frozenset(), kept: KeptWorkers | None = None
) -> CellDraft:
    """Return the plan in force, without what cannot go on.

    Args:
        view: of a pool that has virtual clusters.
        without_guarantee: jobs that have none for this decision.
        kept: of the workers in the decisions before, for these cells and nodes.
    """
    assert view.cells is not None, "the pool has virtual clusters"
    kept = kept or KeptWorkers(unused_book(view.cells, list(view.nodes.values())))
    # Without gangs it stays as it is: jobs have their cells again in a book of their own.
    book = kept.book.copy() if view.gangs else kept.book
    leafs_on = book.topology.leafs_on
    _recover_gangs(view, book)
    held = gang_leafs(view)
    nodes = _open_nodes(view, kept, held)
    foreign = nodes.foreign
    mixed = frozenset(foreign) | _lent_to_gangs(view)
    draft = CellDraft(view, book, nodes.usable, mixed, without_guarantee, kept.beyond_quota)
    _recover_workers(draft, kept, held)
    for name in sorted(foreign):
        _block(draft, name, foreign[name])
    # Bad nodes come last: what runs on them goes on, and no quota cell is doomed that a worker has.
    for name in sorted(leafs_on.keys() - nodes.usable):
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


def _open_nodes(view: ClusterState, kept: KeptWorkers, held: Mapping[str, int]) -> SchedulableNodes:
    there = list(view.nodes.values())
    is_simple, last = not (held or view.closed_nodes), kept.open_nodes
    if is_simple and last is not None and last.of == there:
        return last
    usable = frozenset(
        name
        for name, node in view.nodes.items()
        if name not in view.closed_nodes and (node.usable_gpus or (held.get(name) and node.is_open))
    )
    nodes = SchedulableNodes(of=there, usable=usable, foreign=_foreign(view, kept.book.topology.leafs_on, usable, held))
    if is_simple:
        kept.open_nodes = nodes
    return nodes


def _foreign(
    view: ClusterState, leafs_on: Mapping[str, Sequence[int]], usable: Set[str], held: Mapping[str, int]
) -> Mapping[str, int]:
    """Return node -> devices that others than jobs and gangs use, of usable nodes on which there are some."""
    foreign = {}
    for name, leafs in leafs_on.items():
        if name in usable and (count := len(leafs) - _room(view, held, name) - held.get(name, 0)) > 0:
            foreign[name] = count
    return foreign


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
    usable = int(node.usable_gpus)
    # What a closed node has is what workers hold there.
    is_shared = name in held and name not in view.closed_nodes
    return min(usable, int(node.gpus) - held[name]) if is_shared else usable


def _recover_workers(draft: CellDraft, kept: KeptWorkers, held: Mapping[str, int]) -> None:
    view = draft.view
    former = kept.of_jobs(draft)
    coming = _Coming(draft, held, _certain_nodes(draft, former) - held.keys())
    by_priority: dict[int, list[FormerJob]] = {}
    for each in former:
        if each[3].guaranteed:
            by_priority.setdefault(each[2].spec.priority, []).append(each)
    for priority in sorted(by_priority, reverse=True):
        coming.add(by_priority[priority], 0)
    coming.add([each for each in former if each[3].idle], 1)
    draft.book, downgraded = resume(draft.book, *coming.batches, kept.cells)
    draft.parts.begin(draft.workers, draft.book.gangs)
    kept.forget_others(view.plan.placement.keys())
    kept.beyond_quota.forget_others(view.jobs.keys())
    for name in downgraded:
        draft.changed(job_of(name))
    for job, worker in coming.later:
        found = _idle_devices(draft, worker.node, job.spec.gpus_per_replica)
        if found is not None:
            draft.add(job, found, worker.planned.index)


@dataclass
class _Coming:
    """The workers that go on, and their gangs, first those of the guaranteed ones of all jobs."""

    draft: CellDraft
    held: Mapping[str, int]
    certain: frozenset[str]
    batches: tuple[list[GangBatch], list[GangBatch]] = field(default_factory=lambda: ([], []))
    later: list[tuple[Job, FormerWorker]] = field(default_factory=list)
    """Those whose devices are gone or in use."""

    def add(self, former: Iterable[FormerJob], part: Literal[0, 1]) -> None:
        """Add the guaranteed workers of jobs (0), or their others (1)."""
        workers, come, are_certain = self.draft.workers, self.batches[part], self._all_certain
        for _, job_id, job, of_job in former:
            whole = of_job.whole
            if whole is None or job.refusals or not (are_certain or self.certain.issuperset(whole.cells.nodes)):
                self._add_each(job, of_job.idle if part else of_job.guaranteed, come)
                continue
            if job_id not in workers:
                workers[job_id] = whole.workers
                self.draft.keep(job_id, whole.cells, whole.parts)
            come += whole.batches[part]

    def _add_each(self, job: Job, of_job: Iterable[FormerWorker], come: list[GangBatch]) -> None:
        job_id, workers = job.spec.job_id, self.draft.workers
        for worker in of_job:
            if not _has_room(job, worker, self._room):
                continue
            if worker.gang is None or not self._taken.isdisjoint(worker.gang.leafs):
                self.later.append((job, worker))
                continue
            self._taken.update(worker.gang.leafs)
            workers[job_id] = (*workers.get(job_id, ()), worker.planned)
            # Beside pods of gangs nothing is as simple as for most.
            is_alone, topology = worker.node in self.held, self.draft.book.topology
            come += (alone(worker.gang),) if is_alone else batches(topology, (worker.gang,))

    @cached_property
    def _all_certain(self) -> bool:
        return self.certain >= self.draft.book.topology.leafs_on.keys()

    @cached_property
    def _room(self) -> dict[str, int]:
        """Node -> GPUs that jobs may have there and that no worker has, but those on certain nodes."""
        return {name: _room(self.draft.view, self.held, name) for name in self.draft.view.nodes}

    @cached_property
    def _taken(self) -> set[int]:
        """Leafs that somebody has."""
        return {leaf for leaf, name in enumerate(self.draft.book.holder) if name}


def _has_room(job: Job, worker: FormerWorker, room: dict[str, int]) -> bool:
    """Take the room of a worker on its node; return False where there is none, or the node does not take it."""
    node, gpus = worker.node, job.spec.gpus_per_replica
    is_refused = node in job.refusals and job.workers.get(worker.planned.index) != node
    if is_refused or room.get(node, 0) < gpus:
        return False
    room[node] -= gpus
    return True


def _certain_nodes(draft: CellDraft, former: Sequence[FormerJob]) -> frozenset[str]:
    """Return nodes on which all workers have their devices: these are voda's, and no two workers name the same."""
    leafs: list[int] = []
    doubtful: set[str] = set()
    for _, _, _, workers in former:
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
