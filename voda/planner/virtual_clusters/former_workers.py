"""The workers of the plan in force, made ready to have their cells again.

Most jobs keep their cells from one plan to the next, so their workers are kept between decisions. Rule: what is kept of
a job follows from its part of the plan and from the cells that there are, and from nothing else: a decision is the same
with it and without it.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

from msgspec import Struct
from msgspec.structs import replace

from voda.cells.book import CellBook
from voda.cells.gangs import Gang, GangBatch, WorkerCells, batches
from voda.cells.resumption import KeptCells
from voda.cells.structure.trees import NONE
from voda.domain.job import Job, JobSpec
from voda.domain.node import Node
from voda.planner.virtual_clusters.beyond_quota import KeptBeyondQuota
from voda.planner.virtual_clusters.cell_draft import CellDraft, JobCells, PlannedWorker, request_of


class FormerWorker(Struct, frozen=True, kw_only=True, gc=False):
    """A worker of the plan in force."""

    node: str
    planned: PlannedWorker
    gang: Gang | None
    """In the cells that the plan names; None: its devices are not known, or are there no longer."""


class WholeJob(Struct, frozen=True, kw_only=True, gc=False):
    """The same, of a job of which every worker has cells."""

    cells: JobCells
    leafs: tuple[int, ...]
    workers: tuple[PlannedWorker, ...]
    parts: tuple[Sequence[PlannedWorker], Sequence[PlannedWorker]]
    """The guaranteed workers, and those on idle cells."""
    batches: tuple[Sequence[GangBatch], Sequence[GangBatch]]


class FormerWorkers(Struct, frozen=True, kw_only=True, gc=False):
    """The workers of one job."""

    guaranteed: Sequence[FormerWorker]
    idle: Sequence[FormerWorker]
    whole: WholeJob | None
    """None: some have no cells, or the guaranteed ones do not come first."""


class SchedulableNodes(Struct, frozen=True, kw_only=True, gc=False):
    """The nodes that take new workers."""

    of: Sequence[Node]
    """All nodes that there were."""
    usable: frozenset[str]
    foreign: Mapping[str, int]
    """Node -> devices that others than jobs and gangs use, of usable nodes on which there are some."""


FormerJob = tuple[float, str, Job, FormerWorkers]
"""When it was submitted, its id, it, and its workers: in this order they are sorted."""
_Part = tuple[tuple[str, ...], tuple[tuple[int, ...], ...], tuple[str, ...], int, int, str, str]
"""What the workers of a job follow from: nodes, devices, types of quota cells, GPUs, priority, pin, virtual cluster."""


@dataclass
class KeptWorkers:
    """The workers of the jobs of a pool, for one state of its cells. Threads may share it."""

    book: CellBook
    """It is never changed."""
    cells: KeptCells = field(default_factory=KeptCells)
    beyond_quota: KeptBeyondQuota = field(default_factory=KeptBeyondQuota)
    open_nodes: SchedulableNodes | None = None
    """Those of the last decision."""
    _kept: dict[str, tuple[JobSpec, _Part, FormerWorkers]] = field(default_factory=dict)

    def of_jobs(self, draft: CellDraft) -> list[FormerJob]:
        """Return the workers that jobs have by the plan in force, the oldest jobs first."""
        plan, jobs, kept = draft.view.plan, draft.view.jobs, self._kept
        former: list[FormerJob] = []
        for job_id, nodes in plan.placement.items():
            job = jobs.get(job_id)
            if job is None or job.is_canceling:
                continue
            devices, quotas = plan.devices.get(job_id, ()), plan.guaranteed.get(job_id, ())
            if (last := kept.get(job_id)) is not None:
                spec, part, workers = last
                # Nearly always these are the very objects, which need not be compared.
                is_same = spec is job.spec and part[0] is nodes and part[1] is devices and part[2] is quotas
                if is_same and job_id not in draft.without_guarantee:
                    former.append((job.submitted_at, job_id, job, workers))
                    continue
            former.append((job.submitted_at, job_id, job, self._of_job(draft, job, nodes, devices, quotas)))
        former.sort()
        return former

    def _of_job(
        self,
        draft: CellDraft,
        job: Job,
        nodes: tuple[str, ...],
        devices: tuple[tuple[int, ...], ...],
        quotas: tuple[str, ...],
    ) -> FormerWorkers:
        spec = job.spec
        if quotas and not draft.may_be_guaranteed(job):
            quotas = ()
        cluster = draft.cluster(job)
        part = nodes, devices, quotas, spec.gpus_per_replica, spec.priority, spec.pinned_cell, cluster
        last = self._kept.get(spec.job_id)
        workers = last[2] if last is not None and last[1] == part else _workers(self.book, spec, part)
        self._kept[spec.job_id] = spec, part, workers
        return workers

    def forget_others(self, job_ids: Set[str]) -> None:
        """Keep the workers of these jobs, and not of many more."""
        for job_id in set(self._kept) - job_ids if len(self._kept) > len(job_ids) else ():
            self._kept.pop(job_id, None)


def _workers(book: CellBook, spec: JobSpec, part: _Part) -> FormerWorkers:
    nodes, devices, quotas, *_, cluster = part
    guaranteed: list[FormerWorker] = []
    idle: list[FormerWorker] = []
    for index, node in enumerate(nodes):
        at = devices[index] if index < len(devices) else ()
        leafs = dict.fromkeys(book.topology.leaf_at.get((node, device), NONE) for device in at)
        is_known = len(at) == spec.gpus_per_replica and NONE not in leafs
        chain = book.topology.trees.chain[next(iter(leafs))].name if is_known else ""
        cells = WorkerCells(node=node, devices=at, chain=chain, quota=quotas[index] if index < len(quotas) else "")
        planned = PlannedWorker(name=f"{spec.job_id}#{index}", job_id=spec.job_id, cells=cells, index=index)
        request = request_of(planned.name, spec, cluster, is_guaranteed=bool(cells.quota))
        gang = Gang(request=request, placement=(cells,), leafs=tuple(leafs)) if is_known else None
        (guaranteed if cells.quota else idle).append(FormerWorker(node=node, planned=planned, gang=gang))
    whole = _whole(book, guaranteed, idle, JobCells(nodes=nodes, devices=devices, quotas=quotas))
    return FormerWorkers(guaranteed=guaranteed, idle=idle, whole=whole)


def _whole(
    book: CellBook, guaranteed: Sequence[FormerWorker], idle: Sequence[FormerWorker], cells: JobCells
) -> WholeJob | None:
    gangs = [each.gang for each in guaranteed if each.gang], [each.gang for each in idle if each.gang]
    parts = [each.planned for each in guaranteed], [each.planned for each in idle]
    size, indices = len(cells.nodes), [worker.index for part in parts for worker in part]
    if len(gangs[0]) + len(gangs[1]) < size or indices != [*range(size)]:
        return None
    leafs = tuple(leaf for part in gangs for gang in part for leaf in gang.leafs)
    if len(leafs) < sum(map(len, cells.devices[:size])):
        return None
    cells = replace(cells, devices=cells.devices[:size], quotas=cells.quotas[: len(guaranteed)])
    return WholeJob(
        cells=cells,
        leafs=leafs,
        workers=(*parts[0], *parts[1]),
        parts=parts,
        batches=(batches(book.topology, gangs[0]), batches(book.topology, gangs[1])),
    )
