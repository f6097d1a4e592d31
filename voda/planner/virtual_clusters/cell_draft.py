"""A plan under construction in cells: the book, and the workers of each job with their cells.

Rules: every worker is a gang of its own in the book, so that a job can lose one and go on; what must be there together
is placed together (`place`), or not at all. Whether a worker is guaranteed, the book says.
"""

from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from voda.cells.book import CellBook
from voda.cells.decisions import GangWaits
from voda.cells.gangs import HIGHEST, OPPORTUNISTIC, GangRequest, WorkerCells
from voda.cells.preemption import downgrade, end
from voda.cells.recovery import occupy
from voda.cells.scheduling import ANY, Conditions, decide
from voda.cells.search.losses import Losses
from voda.cells.structure.trees import NONE
from voda.domain.cells import DEFAULT_VIRTUAL_CLUSTER
from voda.domain.job import Job
from voda.domain.state import ClusterState

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
    workers: dict[str, list[PlannedWorker]] = field(default_factory=dict)
    """Job -> its workers."""
    by_name: dict[str, PlannedWorker] = field(default_factory=dict)
    dropped: dict[str, list[PlannedWorker]] = field(default_factory=dict)
    """Job -> workers of the plan in force that it has lost so far."""
    reclaimed: dict[str, dict[str, int]] = field(default_factory=dict)
    """Job -> virtual cluster -> workers that it had to give to it."""
    _serial: int = 0

    def cluster(self, job: Job) -> str:
        """Return the virtual cluster of a job; empty: it is there no longer."""
        name = job.spec.virtual_cluster or DEFAULT_VIRTUAL_CLUSTER
        return name if name in self.book.quotas.clusters else ""

    def may_be_guaranteed(self, job: Job) -> bool:
        """Return whether a job has a part in its virtual cluster's guarantee."""
        spec, cluster = job.spec, self.cluster(job)
        has_place = (cluster, spec.pinned_cell) in self.book.quotas.pin_views if spec.pinned_cell else bool(cluster)
        return has_place and spec.is_guaranteed and spec.job_id not in self.without_guarantee

    def size(self, job_id: str) -> int:
        """Return how many workers a job has."""
        return len(self.workers.get(job_id, ()))

    def is_guaranteed(self, worker: PlannedWorker) -> bool:
        """Return whether the cells of a worker are its virtual cluster's."""
        return bool(self.book.gangs[worker.name].virtual)

    def guaranteed(self, job_id: str) -> list[PlannedWorker]:
        """Return the guaranteed workers of a job."""
        gangs = self.book.gangs
        return [worker for worker in self.workers.get(job_id, ()) if gangs[worker.name].virtual]

    def opportunistic(self, job_id: str) -> list[PlannedWorker]:
        """Return the workers of a job on idle cells."""
        gangs = self.book.gangs
        return [worker for worker in self.workers.get(job_id, ()) if not gangs[worker.name].virtual]

    def add(self, job: Job, cells: WorkerCells, index: int = _NEW) -> PlannedWorker:
        """Give a job a worker in these cells, with a guarantee if they name a quota and it can be kept."""
        self._serial += 1
        worker = PlannedWorker(
            name=f"{job.spec.job_id}#{self._serial}", job_id=job.spec.job_id, cells=cells, index=index
        )
        occupy(self.book, self._request(worker.name, job, 1, is_guaranteed=bool(cells.quota)), (cells,))
        self.workers.setdefault(worker.job_id, []).append(worker)
        self.by_name[worker.name] = worker
        return worker

    def drop(self, worker: PlannedWorker) -> None:
        """Take a worker away from its job."""
        end(self.book, worker.name)
        del self.by_name[worker.name]
        self.workers[worker.job_id].remove(worker)
        if worker.index != _NEW:
            self.dropped.setdefault(worker.job_id, []).append(worker)

    def release_guarantee(self, worker: PlannedWorker) -> None:
        """Let a worker go on in its cells, as idle ones."""
        downgrade(self.book, worker.name, worker.name)

    def guarantee(self, worker: PlannedWorker) -> bool:
        """Give a worker a guarantee for the cells that it has; return whether its virtual cluster has cells for it."""
        job = self.view.jobs[worker.job_id]
        if worker.cells.node in self.mixed or worker.cells.node in job.refusals:
            return False
        for quota in self._quota_types(job, worker.cells.chain):
            end(self.book, worker.name)
            cells = WorkerCells(
                node=worker.cells.node, devices=worker.cells.devices, chain=worker.cells.chain, quota=quota
            )
            occupy(self.book, self._request(worker.name, job, 1, is_guaranteed=True), (cells,))
            if self.is_guaranteed(worker):
                kept = PlannedWorker(name=worker.name, job_id=worker.job_id, cells=cells, index=worker.index)
                self.by_name[worker.name] = kept
                mine = self.workers[worker.job_id]
                mine[mine.index(worker)] = kept
                return True
        return False

    def place(
        self, job: Job, count: int, *, is_guaranteed: bool, losses: Losses | None = None
    ) -> list[PlannedWorker] | None:
        """Give a job so many workers more, all or none.

        Workers of others that are in the way of a guarantee lose theirs, or their cells, as the book decides.
        """
        request = self._request(f"{job.spec.job_id}#", job, count, is_guaranteed=is_guaranteed)
        if not request.virtual_cluster:
            # A request must name one; of idle cells it does not matter which.
            request = replace(request, virtual_cluster=self.book.quotas.clusters[0])
        nodes = self._nodes_for(job, is_guaranteed=is_guaranteed)
        conditions = ANY if losses is None and nodes is None else Conditions(suggested=nodes, losses=losses)
        request = request if nodes is None else replace(request, ignores_suggestions=False)
        decision = decide(self.book, request, job.spec.gpus_per_replica, conditions)
        if isinstance(decision, GangWaits) or any(name in self.view.gangs for name in getattr(decision, "victims", ())):
            return None
        for name in decision.downgrades:
            downgrade(self.book, name, request.name)
        for name in getattr(decision, "victims", ()):
            self._reclaim(self.by_name[name], self.cluster(job))
        return [self.add(job, cells) for cells in decision.placement]

    def restore(self, job: Job) -> PlannedWorker | None:
        """Give a job a worker back that it has lost by this plan, where its cells are idle again."""
        lost = self.dropped.get(job.spec.job_id, [])
        for worker in sorted(lost, key=lambda each: each.index):
            if worker.cells.node in self.usable and worker.cells.node not in job.refusals and self._is_idle(worker):
                lost.remove(worker)
                cells = WorkerCells(node=worker.cells.node, devices=worker.cells.devices, chain=worker.cells.chain)
                return self.add(job, cells, worker.index)
        return None

    def _is_idle(self, worker: PlannedWorker) -> bool:
        leaf_at, holder = self.book.topology.leaf_at, self.book.holder
        leafs = [leaf_at.get((worker.cells.node, device), NONE) for device in worker.cells.devices]
        return bool(leafs) and all(leaf != NONE and not holder[leaf] for leaf in leafs)

    def _reclaim(self, victim: PlannedWorker, cluster: str) -> None:
        self.drop(victim)
        counts = self.reclaimed.setdefault(victim.job_id, {})
        counts[cluster] = counts.get(cluster, 0) + 1

    def _request(self, name: str, job: Job, count: int, *, is_guaranteed: bool) -> GangRequest:
        return GangRequest(
            name=name,
            virtual_cluster=self.cluster(job),
            members=((count, job.spec.gpus_per_replica),),
            priority=min(job.spec.priority, HIGHEST) if is_guaranteed else OPPORTUNISTIC,
            pin=job.spec.pinned_cell if is_guaranteed else "",
            yields=True,
        )

    def _nodes_for(self, job: Job, *, is_guaranteed: bool) -> frozenset[str] | None:
        """Return the only nodes that may take workers of a job; None = all healthy ones."""
        excluded = (self.mixed if is_guaranteed else frozenset()) | job.refusals.keys()
        return self.usable - excluded if excluded else None

    def _quota_types(self, job: Job, chain: str) -> Sequence[str]:
        """Return the types of the quota cells in a chain that a job may be in, the smaller ones first."""
        cluster, pin, quotas = self.cluster(job), job.spec.pinned_cell, self.book.quotas
        view = quotas.pin_views.get((cluster, pin)) if pin else quotas.views.get((cluster, chain))
        trees, roots = quotas.trees, () if view is None else view.roots
        levels = sorted({trees.level[root] for root in roots if trees.chain[root].name == chain})
        return [self.book.topology.chains[chain].type_at(level).name for level in levels]


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
