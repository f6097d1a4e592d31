"""The guaranteed part of a plan: each virtual cluster shares its quota among its own jobs by its own policy.

1. The policy says how many workers of each job the quota is for. 2. Workers beyond that lose their guarantee and go on.
3. Workers that run on idle cells have a guarantee where they are, if that can be. 4. The others get quota cells, and
who works there without a guarantee leaves; the minimum of a job is one gang. 5. What found no cells is left to others.
6. A worker that had to leave idle cells gets quota cells, if its virtual cluster has them for it. A pinned cell is
shared like a quota of its own, among the jobs that name it.

Rule: no guaranteed worker gives way but to a higher priority of its own virtual cluster.
"""

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from voda.changed_keys import other_keys
from voda.domain.gpus import Gpus
from voda.domain.job import Job
from voda.planner.allocation.priority import allocate
from voda.planner.feasibility import with_caps, without_jobs
from voda.planner.virtual_clusters.cell_draft import CellDraft
from voda.planner.virtual_clusters.losses import WorkerLosses
from voda.planner.virtual_clusters.pool_jobs import QuotaJobs
from voda.policies import Policy

_MOST_ATTEMPTS: Final = 4


@dataclass
class GuaranteedPart:
    """What the virtual clusters have for their jobs."""

    targets: dict[str, int] = field(default_factory=dict)
    """Job -> workers that its virtual cluster's quota is for."""
    too_large: dict[str, int] = field(default_factory=dict)
    """Jobs of which the whole quota does not hold the minimum -> workers that it holds."""


def place_guaranteed(draft: CellDraft, policy_of: Callable[[str], Policy], now: float) -> GuaranteedPart:
    """Give every virtual cluster's jobs what its quota is for; `policy_of`: virtual cluster -> its policy."""
    part = GuaranteedPart()
    losses = WorkerLosses(draft, part.targets)
    quotas = draft.book.quotas
    for cluster, pin in [*((name, "") for name in quotas.clusters), *quotas.pin_views]:
        of_quota = draft.jobs.by_quota.get((cluster, pin))
        if of_quota is not None and (sure := of_quota.without(draft.without_guarantee)).jobs:
            _Quota(draft, part, losses, sure).serve(policy_of(cluster), now)
    _replace_reclaimed(draft, part, losses)
    _all_or_nothing(draft, part.targets.keys())
    return part


@dataclass
class _Quota:
    """One virtual cluster's quota, or one of its pinned cells, while it is shared."""

    draft: CellDraft
    part: GuaranteedPart
    losses: WorkerLosses
    quota: QuotaJobs

    def serve(self, policy: Policy, now: float) -> None:
        self.part.too_large |= self.quota.too_large
        view = replace(self.draft.view, jobs=self.quota.fitting)
        for _ in range(_MOST_ATTEMPTS):
            view = replace(view, capacity_limit_gpus=Gpus(self._healthy_leafs()))
            short = self._place(allocate(view, policy, now).replicas)
            if not short:
                break
            left_out = {job_id for job_id, size in short.items() if not size}
            view = with_caps(without_jobs(view, left_out), {job_id: size for job_id, size in short.items() if size})

    def _place(self, targets: Mapping[str, int]) -> Mapping[str, int]:
        """Bring the jobs to their targets; return those for which no cells were found -> the size that they have."""
        jobs = self.quota.jobs
        wanted = {**dict.fromkeys(jobs, 0), **targets}
        self.part.targets |= wanted
        parts, short = self.draft.parts, dict[str, int]()

        def rank(job_id: str) -> tuple[int, float, str]:
            return -jobs[job_id].spec.priority, jobs[job_id].submitted_at, job_id

        # Nearly always all jobs have what they are to have; of those that are touched, `sure` knows nothing.
        sure, touched = self.draft.sure, self.draft.touched
        uneven = other_keys(sure, wanted)
        for job_id in sorted(uneven, key=rank):
            for worker in parts[job_id][0][wanted[job_id] :]:
                self.draft.release_guarantee(worker)
        tried = set[str]()
        # One that gets its cells may take those of a lower priority.
        while lacking := [
            job_id
            for job_id in {*uneven, *(touched & wanted.keys())} - tried
            if sure.get(job_id, 0) < wanted[job_id] and len(parts[job_id][0]) < wanted[job_id]
        ]:
            for job_id in sorted(lacking, key=rank):
                tried.add(job_id)
                if not _reach(self.draft, jobs[job_id], wanted[job_id], self.losses):
                    short[job_id] = jobs[job_id].spec.size_within(len(parts[job_id][0]))
        return short

    def _healthy_leafs(self) -> int:
        book = self.draft.book
        if not book.bad_nodes:
            return sum(view.size for view in self.quota.views)
        leafs = book.quotas.trees.leafs
        nodes = (node for view in self.quota.views for node in view.nodes)
        return sum(len(leafs[node]) for node in nodes if not book.is_bad_binding(node))


def _reach(draft: CellDraft, job: Job, target: int, losses: WorkerLosses) -> bool:
    """Give a job guaranteed workers up to the target; return whether it has so many, or as many workers in all."""
    job_id = job.spec.job_id
    if len(draft.guaranteed(job_id)) >= target:
        return True
    for worker in sorted(draft.opportunistic(job_id), key=lambda each: each.index):
        if len(draft.guaranteed(job_id)) >= target or not draft.guarantee(worker):
            break
    # As long as it has its size on idle cells, it need not move: it would restart for nothing.
    if draft.size(job_id) >= target:
        return True
    placed = len(draft.guaranteed(job_id))
    first = max(job.spec.min_replicas - placed, 0)
    if first and draft.place(job, first, is_guaranteed=True, losses=losses) is None:
        return False
    missing = target - placed - first
    if missing and draft.place(job, missing, is_guaranteed=True, losses=losses) is not None:
        missing = 0
    while missing and draft.place(job, 1, is_guaranteed=True, losses=losses) is not None:
        missing -= 1
    _move_from_idle(draft, job_id, target)
    return not missing


def _move_from_idle(draft: CellDraft, job_id: str, target: int) -> None:
    """Let a job that grows leave idle cells for its guaranteed ones: it restarts anyway."""
    surplus = max(0, draft.size(job_id) - target)
    for worker in sorted(draft.opportunistic(job_id), key=lambda each: each.index)[:surplus]:
        draft.drop(worker)


def _replace_reclaimed(draft: CellDraft, part: GuaranteedPart, losses: WorkerLosses) -> None:
    """Give workers that had to leave idle cells those of their own virtual cluster, if it has them for them."""
    tried: set[tuple[str, int]] = set()
    while True:
        lacking = [
            job_id
            for job_id in sorted(draft.reclaimed)
            if draft.size(job_id) < part.targets.get(job_id, 0) and (job_id, draft.size(job_id)) not in tried
        ]
        if not lacking:
            return
        for job_id in lacking:
            tried.add((job_id, draft.size(job_id)))
            _reach(draft, draft.view.jobs[job_id], part.targets[job_id], losses)


def _all_or_nothing(draft: CellDraft, job_ids: Set[str]) -> None:
    """End the guarantee of a part of a size: it would keep cells from a gang that can have them whole."""
    jobs, parts = draft.view.jobs, draft.parts
    for job_id in sorted((draft.jobs.partial | draft.touched) & job_ids):
        sure = parts[job_id][0]
        for worker in sure[jobs[job_id].spec.size_within(len(sure)) :]:
            draft.release_guarantee(worker)
