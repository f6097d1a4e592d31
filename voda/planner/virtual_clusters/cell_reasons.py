"""What users are told of a plan in cells: one sentence for every job.

Rule: every number is one that the decision was made with, or leaves behind.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final

from voda.cells.accounting import QuotaUse, quota_use
from voda.domain.job import Job
from voda.planner.virtual_clusters.cell_draft import CellDraft
from voda.planner.virtual_clusters.guaranteed import GuaranteedPart
from voda.planner.virtual_clusters.opportunistic import OpportunisticPart, idle_workers
from voda.text import counted


def cell_reasons(
    draft: CellDraft, guaranteed: GuaranteedPart, opportunistic: OpportunisticPart, policy: str
) -> Mapping[str, str]:
    """Return job -> why it has what it has, for every job that is not being canceled."""
    reasons, writer = dict[str, str](), _CellReasons(draft, guaranteed, opportunistic, policy)
    unchanged, unpaid = draft.unchanged, opportunistic.reasons
    for job_id, job in draft.view.jobs.items():
        cells = unchanged.get(job_id)
        # Nearly all jobs keep what they had by the plan in force.
        if cells is not None and job_id not in unpaid:
            cluster = draft.cluster(job) if cells.quotas else ""
            reasons[job_id] = _keeps(len(cells.nodes), len(cells.quotas), cluster, job.spec.pinned_cell)
        elif not job.is_canceling:
            reasons[job_id] = writer.reason(job)
    return reasons


_DEFAULT_POOL: Final = "default"


@dataclass
class _CellReasons:
    draft: CellDraft
    guaranteed: GuaranteedPart
    opportunistic: OpportunisticPart
    policy: str

    def reason(self, job: Job) -> str:
        job_id = job.spec.job_id
        size, had = self.draft.size(job_id), len(self.draft.view.plan.placement.get(job_id, ()))
        if not size:
            return f"{'preempted' if had else 'waits'}: {self._why_none(job)}"
        sure = len(self.draft.guaranteed(job_id))
        cluster, pin = self.draft.cluster(job) if sure else "", job.spec.pinned_cell
        if size == had:
            unpaid = self.opportunistic.reasons.get(job_id, "")
            is_said = unpaid.startswith(f"kept at {counted(size, 'worker')}")
            return unpaid if is_said else _keeps(size, sure, cluster, pin)
        workers, standing = counted(size, "worker"), _standing(size, sure, cluster, pin)
        if not had:
            return f"starts with {workers}: {standing}"
        return f"{'grown' if size > had else 'shrunk'} from {had:,} to {workers}: {standing}{self._given_back(job_id)}"

    def _given_back(self, job_id: str) -> str:
        takers = self.draft.reclaimed.get(job_id)
        if not takers:
            return ""
        own = self.draft.cluster(self.draft.view.jobs[job_id])
        return "; " + " and ".join(
            f"{'a higher priority' if cluster == own else f'virtual cluster {cluster}'}"
            f" took cells of {counted(count, 'worker')} back"
            for cluster, count in sorted(takers.items())
        )

    def _why_none(self, job: Job) -> str:
        idle = "" if job.spec.pinned_cell else f"; {self._idle_clause(job)}"
        return f"{self._quota_clause(job)}{idle}{self._given_back(job.spec.job_id)}"

    def _quota_clause(self, job: Job) -> str:
        spec, cluster = job.spec, self.draft.cluster(job)
        where = f"pinned cell {spec.pinned_cell}" if spec.pinned_cell else f"virtual cluster {cluster}"
        if not cluster:
            return f"virtual cluster {spec.virtual_cluster} is there no longer"
        if not spec.is_guaranteed:
            return "it is opportunistic, and has no part in a guarantee"
        if spec.job_id in self.draft.without_guarantee:
            return "it has no part in the guarantee while it backs off"
        uses = self._uses.get((cluster, spec.pinned_cell))
        if not uses and spec.pinned_cell:
            return f"virtual cluster {cluster} has no {where} any longer"
        if not uses:
            return f"virtual cluster {cluster} has no cells of its own"
        if (most := self.guaranteed.too_large.get(spec.job_id)) is not None:
            return (
                f"{where if spec.pinned_cell else f'the whole quota of {where}'} holds {counted(most, 'worker')} of"
                f" {counted(spec.gpus_per_replica, 'GPU')}, it needs {spec.min_replicas} at least"
            )
        lowest = self._lowest_priority.get((cluster, spec.pinned_cell), spec.priority)
        rank = " of higher priority" if lowest > spec.priority else ""
        if spec.pinned_cell:
            (use,) = uses.values()
            doomed = " and is on bad hardware" if use.doomed else ""
            return (
                f"{where} has {use.used_leafs} of its {counted(use.leafs, 'GPU')} in use by its own jobs{rank}{doomed}"
            )
        held = " and ".join(self._use(kind, use) for kind, use in uses.items())
        return f"virtual cluster {cluster} has {held} in use by its own jobs{rank}"

    def _use(self, kind: str, use: QuotaUse) -> str:
        pool = self.draft.view.pool
        name = kind if pool == _DEFAULT_POOL else f"{pool} {kind}"
        cells = name if use.cells == 1 else f"{name}s"
        doomed = f" ({use.doomed} on bad hardware)" if use.doomed else ""
        return f"{use.in_use} of its {use.cells} {cells}{doomed}"

    def _idle_clause(self, job: Job) -> str:
        gpus, least = job.spec.gpus_per_replica, job.spec.min_replicas
        if gpus not in self._idle:
            self._idle[gpus] = idle_workers(self.draft, gpus)
        fit = self._idle[gpus]
        if fit < least:
            return f"idle cells would fit {counted(fit, 'worker')}, it needs {least} at least"
        if job.spec.job_id in self.opportunistic.scattered:
            return f"idle cells would fit {counted(fit, 'worker')}, but not all {least} in one place"
        return f"idle cells would fit {counted(fit, 'worker')}, and {self.policy} gives them to others or to none"

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


# Most jobs keep what they have, decision after decision.
@lru_cache(maxsize=4096)
def _keeps(size: int, sure: int, cluster: str, pin: str) -> str:
    return f"keeps {counted(size, 'worker')}: {_standing(size, sure, cluster, pin)}"


def _standing(size: int, sure: int, cluster: str, pin: str) -> str:
    """Return what guarantees the workers of a job."""
    if not sure:
        return "on idle cells, without a guarantee"
    if sure == size:
        return f"guaranteed by virtual cluster {cluster}{f', in its pinned cell {pin}' if pin else ''}"
    return f"{sure} guaranteed by virtual cluster {cluster}, {size - sure} on idle cells"
