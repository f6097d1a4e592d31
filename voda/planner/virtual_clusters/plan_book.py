"""The plan in force as a book of cells: it follows each plan that is adopted, and costs what that changes.

A guaranteed worker has the quota cell that the plan names, and in it the virtual cells that stand where its devices do.
Rule: the book is a function of the plan, the jobs, the gangs and the cells that there are, however it came about. Where
workers do not fit together, since cells were applied anew, it is made anew with each plan until they do.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from voda.cells.book import CellBook
from voda.cells.gangs import Gang, WorkerCells
from voda.cells.preemption import end
from voda.cells.recovery import occupy, settle, take_leafs
from voda.cells.structure.trees import NONE
from voda.changed_keys import gone_keys, other_keys
from voda.domain.cells import CellsSpec, GangAllocation
from voda.domain.job import Job, JobSpec
from voda.domain.node import Node
from voda.domain.plan import Devices, Placement, Quotas
from voda.domain.state import ClusterState
from voda.planner.virtual_clusters.cell_draft import PlannedWorker, job_of, request_of
from voda.planner.virtual_clusters.cell_reasons import keeps
from voda.planner.virtual_clusters.pool_jobs import JobCells, PoolJobs, cluster_of, quota_of
from voda.planner.virtual_clusters.unused_book import unused_book

T = TypeVar("T")
Part = tuple[tuple[str, ...], tuple[tuple[int, ...], ...], tuple[str, ...]]
"""What the plan has of a job: nodes, devices and quota cells of its workers."""


class PlannedJob(Struct, frozen=True, kw_only=True, gc=False):
    """The workers that a job has by the plan in force."""

    spec: JobSpec
    part: Part
    workers: tuple[PlannedWorker, ...]
    gangs: tuple[Gang | None, ...]
    """By worker; None: its devices are not known, or are there no longer."""
    roots: tuple[int, ...]
    """Quota cells, by worker; NONE: it has no guarantee, or one in a cell that is not known."""


class PlanBook:
    """A pool's plan in force in cells."""

    def __init__(self, pool_cells: CellsSpec) -> None:
        self.jobs = PoolJobs()
        self.workers: dict[str, tuple[PlannedWorker, ...]] = {}
        """Job -> its workers that have cells."""
        self.parts: dict[str, tuple[Sequence[PlannedWorker], Sequence[PlannedWorker]]] = {}
        """Job -> its guaranteed workers and those on idle cells; not of jobs elsewhere."""
        self.elsewhere: set[str] = set()
        """Jobs of which some workers have other cells than the plan names, or none."""
        self.homeless: list[PlannedWorker] = []
        """Workers whose devices are gone or in use."""
        self.open_nodes: tuple[frozenset[str], Mapping[str, int]] | None = None
        """As `recovery` has them; None: it has yet to look."""
        self._cells = pool_cells
        self._nodes: Sequence[Node] = ()
        self._gangs: Mapping[str, GangAllocation] = {}
        self._unused = self.book = unused_book(pool_cells, ())
        """The book of workers and gangs, healthy whatever the nodes are, and the one of nobody."""
        self._planned: dict[str, PlannedJob] = {}
        self._known: dict[str, Job] = {}
        """All jobs, as they were last."""
        self._seen: tuple[Placement, Devices, Quotas] = ({}, {}, {})
        """Placement, devices and quota cells of the plan that the book is of."""
        self._is_settled = False
        """Whether all workers have the cells that the plan names."""

    @classmethod
    def of(cls, view: ClusterState) -> "PlanBook":
        """Return the book of a pool that has virtual clusters, made anew."""
        assert view.cells is not None, "the pool has virtual clusters"
        planned = cls(view.cells)
        planned.follow(view)
        return planned

    def follow(self, view: ClusterState) -> None:
        """Become the book of this state of the pool."""
        assert view.cells is not None, "the pool has virtual clusters"
        there = list(view.nodes.values())
        # Nearly always these are the very objects, which are compared at once.
        if self._cells is not view.cells or self._nodes != there:
            unused = unused_book(view.cells, there)
            self._is_settled = self._is_settled and unused is self._unused
            self._unused, self._cells, self._nodes, self.open_nodes = unused, view.cells, there, None
        # Until it has followed, nothing is certain: a failure on the way leaves a book that is made anew.
        was_settled, self._is_settled = self._is_settled, False
        is_settled = was_settled and [*self._gangs.items()] == [*view.gangs.items()]
        if is_settled:
            touched = self._touched(view)
            is_settled = all(self._settle(job) for job in self._come(view, touched))
            self._note(view, touched)
        self._is_settled = is_settled or self._make(view)
        for books in self.book.free.values():
            books.sort()

    def _touched(self, view: ClusterState) -> Sequence[str]:
        """Return the jobs of which anything changed, or their part of the plan."""
        known, now = self._known, (view.plan.placement, view.plan.devices, view.plan.guaranteed)
        touched = _differing(known, view.jobs)
        for old, new in zip(self._seen, now, strict=True):
            touched |= _differing(old, new)
        self._seen = now
        return sorted(touched)

    def _come(self, view: ClusterState, touched: Sequence[str]) -> list[PlannedJob]:
        """Let the workers of jobs leave that do not stay as they were; return the jobs of which some come."""
        come = list[PlannedJob]()
        placement, devices, quotas = self._seen
        for job_id in touched:
            last, job = self._planned.get(job_id), view.jobs.get(job_id)
            is_planned = job is not None and not job.is_canceling and job_id in placement
            part = (placement[job_id], devices.get(job_id, ()), quotas.get(job_id, ())) if is_planned else None
            if last is not None and (job is None or last.part != part or not _asks_alike(last.spec, job.spec)):
                for worker in self.workers.pop(job_id):
                    end(self.book, worker.name)
                del self._planned[job_id], self.parts[job_id]
                self.jobs.kept.drop(job_id)
                last = None
            if part is not None and job is not None and last is None:
                come.append(planned_job(self._unused, job.spec, part))
        return come

    def _settle(self, job: PlannedJob) -> bool:
        """Let the workers of a job have their cells; return whether all have those that the plan names."""
        for worker, gang, root in zip(job.workers, job.gangs, job.roots, strict=True):
            if gang is None or (worker.cells.quota and root == NONE) or not settle(self.book, gang, root):
                return False
        self._keep(job)
        return _is_in_order(job)

    def _keep(self, job: PlannedJob) -> None:
        """Note that a job has its cells."""
        job_id, workers = job.spec.job_id, job.workers
        nodes, devices, quotas = job.part
        guaranteed = [worker for worker in workers if worker.cells.quota]
        self._planned[job_id], self.workers[job_id] = job, workers
        self.parts[job_id] = guaranteed, [worker for worker in workers if not worker.cells.quota]
        cells = JobCells(nodes=nodes, devices=devices[: len(nodes)], quotas=quotas[: len(guaranteed)])
        self.jobs.kept.put(job_id, cells)
        self.jobs.kept.reasons[job_id] = keeps(len(nodes), len(guaranteed), job.spec)

    def _note(self, view: ClusterState, touched: Iterable[str]) -> None:
        """Note what became of jobs."""
        for job_id in touched:
            job = view.jobs.get(job_id)
            if job is None:
                self._known.pop(job_id, None)
            else:
                self._known[job_id] = job
            if job is None or job.is_canceling:
                self.jobs.drop(job_id)
            else:
                guaranteed, idle = self.parts.get(job_id, ((), ()))
                lent = tuple([worker.cells.node for worker in idle])
                self.jobs.put(job, self.book.quotas, sure=len(guaranteed), lent=lent)

    def _make(self, view: ClusterState) -> bool:
        """Make the book anew: gangs first, then guaranteed workers, then the others from the oldest job on.

        Return whether all workers have the cells that the plan names.
        """
        self.book, self._gangs, self.jobs = self._unused.copy(), view.gangs, PoolJobs()
        for each in (self._planned, self._known, self.workers, self.parts):
            each.clear()
        self.homeless, self.elsewhere, self._seen, self.open_nodes = [], set(), ({}, {}, {}), None
        for gang in view.gangs.values():
            # A job never takes their cells: voda cannot let their pods go.
            request = replace(gang.request, yields=False)
            occupy(self.book, request, gang.placement, workers={slot: pod.uid for slot, pod in gang.pods.items()})
        touched = self._touched(view)
        come = sorted(self._come(view, touched), key=_by_age(view.jobs))
        for are_guaranteed, jobs in (True, sorted(come, key=lambda job: -job.spec.priority)), (False, come):
            for job in jobs:
                self.elsewhere |= self._take(job, are_guaranteed=are_guaranteed)
        for job in come:
            self._keep(job)
            if not _is_in_order(job):
                self.elsewhere.add(job.spec.job_id)
        for worker in self.homeless:
            job_id = worker.job_id
            self.elsewhere.add(job_id)
            self.workers[job_id] = tuple(each for each in self.workers[job_id] if each is not worker)
        for job_id in self.elsewhere:
            self.parts.pop(job_id, None)
            self.jobs.kept.drop(job_id)
        self._note(view, touched)
        return not self.elsewhere

    def _take(self, job: PlannedJob, *, are_guaranteed: bool) -> set[str]:
        """Let workers of a job have cells as near to those that the plan names as can be; return who has others."""
        elsewhere = set[str]()
        for worker, gang, root in zip(job.workers, job.gangs, job.roots, strict=True):
            if bool(worker.cells.quota) != are_guaranteed:
                continue
            if gang is None or any(self.book.holder[leaf] for leaf in gang.leafs):
                self.homeless.append(worker)
            elif (are_guaranteed and root == NONE) or not settle(self.book, gang, root):
                elsewhere.add(worker.job_id)
                lost = take_leafs(self.book, gang, dict.fromkeys(gang.leafs, worker.cells))
                elsewhere |= {job_of(name) for name in lost if name not in self._gangs}
        return elsewhere


def _differing(old: Mapping[str, T], new: Mapping[str, T]) -> set[str]:
    """Return the keys of what is not the very same in both."""
    if old is new:
        return set()
    others = other_keys(old, new)
    return {*others, *gone_keys(old, new, others)}


def _is_in_order(job: PlannedJob) -> bool:
    """Return whether guaranteed workers come before the others."""
    return not any(bool(one.cells.quota) < bool(other.cells.quota) for one, other in pairwise(job.workers))


def _by_age(jobs: Mapping[str, Job]) -> Callable[[PlannedJob], tuple[float, str]]:
    return lambda each: (jobs[each.spec.job_id].submitted_at, each.spec.job_id)


def _asks_alike(one: JobSpec, other: JobSpec) -> bool:
    """Return whether workers of both are the same to a book."""
    return all(
        getattr(one, name) == getattr(other, name)
        for name in ("gpus_per_replica", "priority", "pinned_cell", "virtual_cluster")
    )


def planned_job(book: CellBook, spec: JobSpec, part: Part) -> PlannedJob:
    """Return the workers of a job with the cells that a plan names; `book`: any with the cells that there are."""
    nodes, devices, quotas = part
    cluster, workers, gangs, roots = cluster_of(book.quotas, spec), [], list[Gang | None](), []
    may_be_guaranteed = quota_of(book.quotas, spec) is not None
    for index, node in enumerate(nodes):
        at = devices[index] if index < len(devices) else ()
        name = quotas[index] if may_be_guaranteed and index < len(quotas) else ""
        leafs = dict.fromkeys(book.topology.leaf_at.get((node, device), NONE) for device in at)
        is_known = len(at) == spec.gpus_per_replica and NONE not in leafs and len(leafs) == len(at)
        chain = book.topology.trees.chain[next(iter(leafs))].name if is_known else ""
        cells = WorkerCells(node=node, devices=at, chain=chain, quota=name.rpartition("/")[0])
        worker = PlannedWorker(name=f"{spec.job_id}#{index}", job_id=spec.job_id, cells=cells, index=index)
        request = request_of(worker.name, spec, cluster, is_guaranteed=bool(name))
        workers.append(worker)
        gangs.append(Gang(request=request, placement=(cells,), leafs=tuple(leafs)) if is_known else None)
        roots.append(book.quotas.root_named.get((cluster, spec.pinned_cell, name), NONE) if name else NONE)
    return PlannedJob(
        spec=spec,
        part=part if may_be_guaranteed else (nodes, devices, ()),
        workers=tuple(workers),
        gangs=tuple(gangs),
        roots=tuple(roots),
    )
