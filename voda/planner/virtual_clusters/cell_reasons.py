"""What users are told of a plan in cells: one reason for every job.

Rule: every number is one that the decision was made with, or leaves behind.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from voda.cells.accounting import QuotaUse, quota_use
from voda.domain.cells import DEFAULT_VIRTUAL_CLUSTER
from voda.domain.job import Job, JobSpec
from voda.domain.reasons.cells import (
    CellUse,
    IdleCells,
    InCells,
    NoGuarantee,
    QuotaCause,
    QuotaInUse,
    QuotaTooSmall,
    TakenBack,
    Taker,
)
from voda.domain.reasons.outcomes import Cause, Keeps, Preempted, Reason, Resized, Starts, Waits
from voda.planner.virtual_clusters.cell_draft import CellDraft
from voda.planner.virtual_clusters.guaranteed import GuaranteedPart
from voda.planner.virtual_clusters.opportunistic import OpportunisticPart, idle_workers


def cell_reasons(
    draft: CellDraft, guaranteed: GuaranteedPart, opportunistic: OpportunisticPart, policy: str
) -> Mapping[str, Reason]:
    """Return job -> why it has what it has, for every job that is not being canceled."""
    writer, jobs = _CellReasons(draft, guaranteed, opportunistic, policy), draft.view.jobs
    # Nearly all jobs keep what they had by the plan in force.
    reasons = draft.jobs.kept.reasons.copy()
    for job_id in draft.touched | opportunistic.reasons.keys() | (draft.jobs.sure.keys() - reasons.keys()):
        reasons[job_id] = writer.reason(jobs[job_id])
    return reasons


_DEFAULT_POOL: Final = "default"


@dataclass
class _CellReasons:
    draft: CellDraft
    guaranteed: GuaranteedPart
    opportunistic: OpportunisticPart
    policy: str

    def reason(self, job: Job) -> Reason:
        job_id = job.spec.job_id
        size, had = self.draft.size(job_id), len(self.draft.view.plan.placement.get(job_id, ()))
        if not size:
            return (Preempted if had else Waits)(why=self._why_none(job))
        sure = len(self.draft.guaranteed(job_id))
        cluster, pin = self.draft.cluster(job) if sure else "", job.spec.pinned_cell
        if size == had:
            unpaid = self.opportunistic.reasons.get(job_id)
            is_said = isinstance(unpaid, Keeps) and unpaid.workers == size
            return unpaid if unpaid is not None and is_said else keeps(size, sure, job.spec)
        standing = _standing(size, sure, cluster, pin)
        if not had:
            return Starts(workers=size, why=(standing,))
        return Resized(had=had, workers=size, why=(standing, *self._given_back(job_id)))

    def _given_back(self, job_id: str) -> tuple[TakenBack, ...]:
        takers = self.draft.reclaimed.get(job_id)
        if not takers:
            return ()
        own = self.draft.cluster(self.draft.view.jobs[job_id])
        takers_by = [
            Taker(virtual_cluster="" if cluster == own else cluster, workers=count)
            for cluster, count in sorted(takers.items())
        ]
        return (TakenBack(takers=tuple(takers_by)),)

    def _why_none(self, job: Job) -> tuple[Cause, ...]:
        idle = () if job.spec.pinned_cell else (self._idle_cells(job),)
        return (self._quota_cause(job), *idle, *self._given_back(job.spec.job_id))

    def _quota_cause(self, job: Job) -> QuotaCause:
        spec, cluster = job.spec, self.draft.cluster(job)
        pin = spec.pinned_cell
        if not cluster:
            return NoGuarantee(cause="cluster_gone", virtual_cluster=spec.virtual_cluster)
        if not spec.is_guaranteed:
            return NoGuarantee(cause="opportunistic")
        if spec.job_id in self.draft.without_guarantee:
            return NoGuarantee(cause="backs_off")
        uses = self._uses.get((cluster, pin))
        if not uses:
            return NoGuarantee(cause="pin_gone" if pin else "no_cells", virtual_cluster=cluster, pinned_cell=pin)
        if (most := self.guaranteed.too_large.get(spec.job_id)) is not None:
            return QuotaTooSmall(
                virtual_cluster=cluster,
                pinned_cell=pin,
                holds=most,
                needs=spec.min_replicas,
                gpus=spec.gpus_per_replica,
            )
        lowest = self._lowest_priority.get((cluster, pin), spec.priority)
        cells = [_pin_use(use) if pin else self._use(kind, use) for kind, use in uses.items()]
        is_by_higher = lowest > spec.priority
        return QuotaInUse(virtual_cluster=cluster, pinned_cell=pin, uses=tuple(cells), is_by_higher=is_by_higher)

    def _use(self, kind: str, use: QuotaUse) -> CellUse:
        pool = self.draft.view.pool
        name = kind if pool == _DEFAULT_POOL else f"{pool} {kind}"
        return CellUse(cell_type=name, used=use.in_use, cells=use.cells, bad=use.doomed)

    def _idle_cells(self, job: Job) -> IdleCells:
        gpus, least = job.spec.gpus_per_replica, job.spec.min_replicas
        if gpus not in self._idle:
            self._idle[gpus] = idle_workers(self.draft, gpus)
        fit = self._idle[gpus]
        if fit < least:
            return IdleCells(fits=fit, needs=least)
        if job.spec.job_id in self.opportunistic.scattered:
            return IdleCells(fits=fit, needs=least, cause="scattered")
        return IdleCells(fits=fit, needs=least, cause="policy", policy=self.policy)

    @cached_property
    def _idle(self) -> dict[int, int]:
        return {}

    @cached_property
    def _uses(self) -> Mapping[tuple[str, str], Mapping[str, QuotaUse]]:
        """(virtual cluster, pin) -> cell type -> its use; pin empty: what is not pinned."""
        uses: dict[tuple[str, str], dict[str, QuotaUse]] = {}
        for key, use in quota_use(self.draft.book).items():
            uses.setdefault((key.virtual_cluster, key.pin), {})[key.cell_type] = use
        return uses

    @cached_property
    def _lowest_priority(self) -> Mapping[tuple[str, str], int]:
        """(virtual cluster, pin) -> lowest priority of a job with a guarantee in it."""
        lowest: dict[tuple[str, str], int] = {}
        # The priority of steady jobs is no user's word.
        for job_id in [job_id for job_id in self.draft.workers if job_id not in self.draft.steady]:
            job = self.draft.view.jobs[job_id]
            if self.draft.guaranteed(job_id):
                where = self.draft.cluster(job), job.spec.pinned_cell
                lowest[where] = min(job.spec.priority, lowest.get(where, job.spec.priority))
        return lowest


def keeps(size: int, sure: int, spec: JobSpec) -> Keeps:
    """Return what is said of a job that keeps its workers, of which so many are guaranteed."""
    cluster = spec.virtual_cluster or DEFAULT_VIRTUAL_CLUSTER if sure else ""
    return Keeps(workers=size, why=(_standing(size, sure, cluster, spec.pinned_cell),))


def _standing(size: int, sure: int, cluster: str, pin: str) -> InCells:
    """Return what guarantees the workers of a job."""
    if sure in (0, size):
        return InCells(virtual_cluster=cluster, pinned_cell=pin if sure else "")
    return InCells(guaranteed=sure, idle=size - sure, virtual_cluster=cluster)


def _pin_use(use: QuotaUse) -> CellUse:
    return CellUse(used=use.used_leafs, cells=use.leafs, bad=use.doomed)
