"""A plan under construction in cells: the book, and the workers of each job with their cells.

Rules: every worker is a gang of its own in the book, so that a job can lose one and go on; what must be there together
is placed together (`place`), or not at all. Whether a worker is guaranteed, the book says. No node gets workers that
ask for more CPU or the like than there is; of workers on idle cells, those leave that have it where a guarantee needs
it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from voda.cells.book import CellBook
from voda.cells.decisions import GangWaits
from voda.cells.gangs import HIGHEST, OPPORTUNISTIC, Gang, GangRequest, WorkerCells
from voda.cells.preemption import downgrade, end
from voda.cells.recovery import may_find_quota, occupy
from voda.cells.scheduling import ANY, Conditions, decide
from voda.cells.search.losses import Losses
from voda.cells.structure.trees import NONE
from voda.domain.job import Job, JobSpec
from voda.domain.state import ClusterState
from voda.placement.scarce import ScarceResources
from voda.planner.virtual_clusters.pool_jobs import PoolJobs, cluster_of, quota_of

_NEW: Final = 1 << 30
"""The index of a worker that was not in the plan before: it gets one at the end."""


class PlannedWorker(Struct, frozen=True, kw_only=True, gc=False):
    """A worker and its cells."""

    name: str
    """Of its gang in the book."""
    job_id: str
    cells: WorkerCells
    index: int = _NEW
    """By the plan in force."""


_Parts = tuple[Sequence[PlannedWorker], Sequence[PlannedWorker]]
"""The guaranteed workers of a job, and those on idle cells."""
_NOBODY: Final[_Parts] = ((), ())


class _PartsByJob(dict[str, _Parts]):
    """Jobs -> their workers, until one of them changes; those of others are found when they are asked for.

    It refers to no draft: a draft that refers to itself would be there until garbage is collected.
    """

    def __init__(self) -> None:
        super().__init__()
        self._workers: Mapping[str, tuple[PlannedWorker, ...]] = {}
        self._gangs: Mapping[str, Gang] = {}

    def begin(self, workers: Mapping[str, tuple[PlannedWorker, ...]], gangs: Mapping[str, Gang]) -> None:
        """Find the workers of jobs that are not here among these, which change meanwhile."""
        self._workers, self._gangs = workers, gangs

    def __missing__(self, job_id: str) -> _Parts:
        workers = self._workers.get(job_id)
        if not workers:
            self[job_id] = _NOBODY
            return _NOBODY
        gangs = self._gangs
        guaranteed = [worker for worker in workers if gangs[worker.name].virtual]
        parts = self[job_id] = guaranteed, [worker for worker in workers if not gangs[worker.name].virtual]
        return parts


@dataclass
class CellDraft:
    """The workers that a plan has so far, and who lost cells by it."""

    view: ClusterState
    book: CellBook
    usable: frozenset[str]
    """Nodes that take new workers."""
    mixed: frozenset[str]
    """Usable nodes on which not all devices are voda's: no guarantee rests on them."""
    without_guarantee: Set[str]
    """Jobs that others go before for a while."""
    steady: Set[str] = frozenset()
    """Jobs of one worker that leave an idle cell for a guarantee alone, and for no other work."""
    workers: dict[str, tuple[PlannedWorker, ...]] = field(default_factory=dict)
    """Job -> its workers."""
    dropped: dict[str, list[PlannedWorker]] = field(default_factory=dict)
    """Job -> workers of the plan in force that it has lost so far."""
    reclaimed: dict[str, dict[str, int]] = field(default_factory=dict)
    """Job -> virtual cluster -> workers that it had to give to it."""
    jobs: PoolJobs = field(default_factory=PoolJobs)
    """With the plan in force: they do not change with the draft."""
    touched: set[str] = field(default_factory=set)
    """Jobs of which a worker came, went, or lost or got its guarantee since."""
    sure: dict[str, int] = field(default_factory=dict)
    """Job -> how many workers of it are guaranteed, of those that are not touched."""
    parts: _PartsByJob = field(default_factory=_PartsByJob)
    room: ScarceResources | None = None
    """What workers leave of scarce resources, once somebody has asked for it."""
    _serial: int = 0

    def cluster(self, job: Job) -> str:
        """Return the virtual cluster of a job; empty: it is there no longer."""
        return cluster_of(self.book.quotas, job.spec)

    def cluster_or_first(self, job: Job) -> str:
        """Return the virtual cluster of a job, or any where it is there no longer: it has no part in a guarantee."""
        return self.cluster(job) or self.book.quotas.clusters[0]

    def quota(self, job: Job) -> tuple[str, str] | None:
        """Return the virtual cluster that guarantees cells to a job, and its pinned cell if it names one."""
        return None if job.spec.job_id in self.without_guarantee else quota_of(self.book.quotas, job.spec)

    def size(self, job_id: str) -> int:
        """Return how many workers a job has."""
        return len(self.workers.get(job_id, ()))

    def worker(self, name: str) -> PlannedWorker:
        """Return the worker that has a gang of this name; raises KeyError where the gang is no job's."""
        for worker in self.workers[job_of(name)]:
            if worker.name == name:
                return worker
        raise KeyError(name)

    def guaranteed(self, job_id: str) -> Sequence[PlannedWorker]:
        """Return the guaranteed workers of a job."""
        return self.parts[job_id][0]

    def opportunistic(self, job_id: str) -> Sequence[PlannedWorker]:
        """Return the workers of a job on idle cells."""
        return self.parts[job_id][1]

    def changed(self, job_id: str) -> None:
        """Note that a worker of a job came, went, or lost or got its guarantee."""
        self.parts.pop(job_id, None)
        self.sure.pop(job_id, None)
        self.touched.add(job_id)

    def add(self, job: Job, cells: WorkerCells, index: int = _NEW) -> PlannedWorker:
        """Give a job a worker in these cells, with a guarantee if they name a quota and it can be kept."""
        self._serial += 1
        job_id = job.spec.job_id
        worker = PlannedWorker(name=f"{job_id}#+{self._serial}", job_id=job_id, cells=cells, index=index)
        self.workers[job_id] = (*self.workers.get(job_id, ()), worker)
        if self.room is not None:
            self.room.take(job, cells.node, 1)
        self._occupy(worker, job, is_guaranteed=bool(cells.quota))
        return worker

    def remove(self, worker: PlannedWorker) -> None:
        """Forget a worker that has no cells any longer."""
        self.workers[worker.job_id] = tuple([each for each in self.workers[worker.job_id] if each != worker])
        if self.room is not None:
            self.room.take(self.view.jobs[worker.job_id], worker.cells.node, -1)
        self.changed(worker.job_id)

    def drop(self, worker: PlannedWorker) -> None:
        """Take a worker away from its job."""
        end(self.book, worker.name)
        self.remove(worker)
        if worker.index != _NEW:
            self.dropped.setdefault(worker.job_id, []).append(worker)

    def release_guarantee(self, worker: PlannedWorker) -> None:
        """Let a worker go on in its cells, as idle ones."""
        self._downgrade(worker.name, worker.name)

    def guarantee(self, worker: PlannedWorker) -> bool:
        """Give a worker a guarantee for the cells that it has; return whether its virtual cluster has cells for it."""
        job = self.view.jobs[worker.job_id]
        if worker.cells.node in self.mixed or job.is_refused_by(worker.cells.node, 1):
            return False
        cluster = self.cluster(job)
        types = self.book.quotas.root_types.get((cluster, job.spec.pinned_cell, worker.cells.chain), ())
        for quota in types:
            cells = WorkerCells(
                node=worker.cells.node, devices=worker.cells.devices, chain=worker.cells.chain, quota=quota
            )
            if not may_find_quota(self.book, request_of(worker.name, job.spec, cluster, is_guaranteed=True), cells):
                continue
            end(self.book, worker.name)
            kept = PlannedWorker(name=worker.name, job_id=worker.job_id, cells=cells, index=worker.index)
            self._occupy(kept, job, is_guaranteed=True)
            if self.book.gangs[kept.name].virtual:
                mine = self.workers[worker.job_id]
                self.workers[worker.job_id] = tuple([kept if each == worker else each for each in mine])
                return True
        return False

    def place(
        self, job: Job, count: int, *, is_guaranteed: bool, losses: Losses | None = None
    ) -> list[PlannedWorker] | None:
        """Give a job so many workers more, all or none.

        Workers of others that are in the way of a guarantee lose theirs, or their cells, as the book decides.
        """
        name, cluster = f"{job.spec.job_id}#", self.cluster_or_first(job)
        request = request_of(name, job.spec, cluster, is_guaranteed=is_guaranteed, count=count)
        nodes = _nodes_for(self, job, count, is_guaranteed=is_guaranteed)
        request = request if nodes is None else replace(request, ignores_suggestions=False)
        conditions = ANY if losses is None and nodes is None else Conditions(suggested=nodes, losses=losses)
        decision = decide(self.book, request, job.spec.gpus_per_replica, conditions)
        if isinstance(decision, GangWaits) or any(name in self.view.gangs for name in getattr(decision, "victims", ())):
            is_single = count == 1 or not (job.fits or self.view.scarce)
            return None if is_guaranteed or is_single else self._place_singly(job, count)
        for name in decision.downgrades:
            self._downgrade(name, request.name)
        for name in getattr(decision, "victims", ()):
            self._reclaim(self.worker(name), self.cluster(job))
        placed = [self.add(job, cells) for cells in decision.placement]
        for node in {worker.cells.node for worker in placed} if is_guaranteed and self.view.scarce else ():
            for worker in reversed(_lent_on(self, node)):
                if scarce_room(self).lacks_for(self.view.jobs[worker.job_id], node) and worker not in placed:
                    self._reclaim(worker, self.cluster(job))
        return placed

    def _place_singly(self, job: Job, count: int) -> list[PlannedWorker] | None:
        """Give a job so many workers on idle cells, all or none, where no node that has some takes all of them."""
        placed: list[PlannedWorker] = []
        while len(placed) < count and (more := self.place(job, 1, is_guaranteed=False)) is not None:
            placed += more
        if len(placed) == count:
            return placed
        for worker in placed:
            self.drop(worker)
        return None

    def _downgrade(self, name: str, by: str) -> None:
        downgrade(self.book, name, by)
        self.changed(job_of(name))

    def _occupy(self, worker: PlannedWorker, job: Job, *, is_guaranteed: bool) -> None:
        request = request_of(worker.name, job.spec, self.cluster(job), is_guaranteed=is_guaranteed)
        downgraded = [name for name in occupy(self.book, request, (worker.cells,)) if name not in self.view.gangs]
        for name in (worker.name, *downgraded):
            self.changed(job_of(name))

    def restore(self, job: Job) -> PlannedWorker | None:
        """Give a job a worker back that it has lost by this plan, where its cells are idle again."""
        lost = self.dropped.get(job.spec.job_id, [])
        for worker in sorted(lost, key=lambda each: each.index):
            if (
                worker.cells.node in self.usable
                and worker.cells.node not in job.refusals
                and _is_idle(self.book, worker.cells)
                and (not self.view.scarce or scarce_room(self).most(job, worker.cells.node, 1) > 0)
            ):
                lost.remove(worker)
                cells = WorkerCells(node=worker.cells.node, devices=worker.cells.devices, chain=worker.cells.chain)
                return self.add(job, cells, worker.index)
        return None

    def _reclaim(self, victim: PlannedWorker, cluster: str) -> None:
        self.drop(victim)
        counts = self.reclaimed.setdefault(victim.job_id, {})
        counts[cluster] = counts.get(cluster, 0) + 1


def numbered(draft: CellDraft, job_id: str) -> list[PlannedWorker]:
    """Return the workers of a job by index: the guaranteed ones first, and each where it was as far as can be."""
    guaranteed, idle = draft.guaranteed(job_id), draft.opportunistic(job_id)
    return _in_order(guaranteed, 0) + _in_order(idle, len(guaranteed))


def _in_order(workers: Sequence[PlannedWorker], first: int) -> list[PlannedWorker]:
    if [worker.index for worker in workers] == list(range(first, first + len(workers))):
        return list(workers)
    places: dict[int, PlannedWorker] = {}
    others = []
    for worker in sorted(workers, key=lambda each: each.index):
        if first <= worker.index < first + len(workers):
            places[worker.index] = worker
        else:
            others.append(worker)
    rest = iter(others)
    return [places.get(index) or next(rest) for index in range(first, first + len(workers))]


def job_of(worker: str) -> str:
    """Return the job of the worker that has a gang of this name."""
    return worker.rpartition("#")[0]


def request_of(name: str, spec: JobSpec, cluster: str, *, is_guaranteed: bool, count: int = 1) -> GangRequest:
    """Return what a job asks for, as one gang of so many workers."""
    return GangRequest(
        name=name,
        virtual_cluster=cluster,
        members=((count, spec.gpus_per_replica),),
        priority=min(spec.priority, HIGHEST) if is_guaranteed else OPPORTUNISTIC,
        pin=spec.pinned_cell if is_guaranteed else "",
        yields=True,
    )


def _is_idle(book: CellBook, cells: WorkerCells) -> bool:
    leafs = [book.topology.leaf_at.get((cells.node, device), NONE) for device in cells.devices]
    return bool(leafs) and all(leaf != NONE and not book.holder[leaf] for leaf in leafs)


def workers_on(draft: CellDraft, node: str) -> list[PlannedWorker]:
    """Return the workers of jobs that have cells on a node."""
    book = draft.book
    names = dict.fromkeys(book.holder[leaf] for leaf in book.topology.leafs_on.get(node, ()))
    return [draft.worker(name) for name in names if name and job_of(name) in draft.workers]


def _lent_on(draft: CellDraft, node: str) -> list[PlannedWorker]:
    """Return the workers on idle cells of a node, those of the oldest jobs first."""
    lent = [worker for worker in workers_on(draft, node) if not draft.book.gangs[worker.name].virtual]
    return sorted(lent, key=lambda each: (draft.view.jobs[each.job_id].submitted_at, each.name))


def scarce_room(draft: CellDraft) -> ScarceResources:
    """Return what workers leave of scarce resources."""
    if draft.room is None:
        draft.room = ScarceResources(draft.view.scarce)
        for job_id, workers in draft.workers.items():
            draft.room.take_all(draft.view.jobs[job_id], Counter(worker.cells.node for worker in workers))
    return draft.room


def _without_room(draft: CellDraft, job: Job, count: int, *, is_guaranteed: bool) -> frozenset[str]:
    """Return the nodes that lack a scarce resource for so many workers, or for as many as they have GPUs for."""
    room, found = scarce_room(draft), set[str]()
    for name in room.left:
        node = draft.view.nodes.get(name)
        slots = min(count, node.usable_gpus // job.spec.gpus_per_replica) if node is not None else 0
        if room.most(job, name, slots) >= slots:
            continue
        lent = [draft.view.jobs[worker.job_id] for worker in _lent_on(draft, name)] if is_guaranteed else []
        for other in lent:
            room.take(other, name, -1)
        if room.most(job, name, slots) < slots:
            found.add(name)
        for other in lent:
            room.take(other, name, 1)
    return frozenset(found)


def _nodes_for(draft: CellDraft, job: Job, count: int, *, is_guaranteed: bool) -> frozenset[str] | None:
    """Return the only nodes that may take so many workers of a job more; None = all healthy ones."""
    excluded = draft.mixed if is_guaranteed else frozenset()
    if job.refusals:
        there = Counter(each.cells.node for each in draft.workers.get(job.spec.job_id, ()))
        excluded |= {node for node in job.refusals if job.is_refused_by(node, there[node] + count)}
    if draft.view.scarce:
        excluded |= _without_room(draft, job, count, is_guaranteed=is_guaranteed)
    return draft.usable - excluded if excluded else None
