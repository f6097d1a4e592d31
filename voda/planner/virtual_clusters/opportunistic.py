"""The opportunistic part of a plan: the pool's policy shares all idle cells, whoever is owed them, among all jobs.

Rules: a job that has its guaranteed workers asks for more, up to one of its sizes; another asks for its minimum as one
gang; one in a pinned cell, or that is not restartable, asks for nothing. Priorities count inside of virtual clusters
only. A growth that does not pay is left out, as in every pool. What finds no cells is offered to others.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from voda.cells.book import CellBook
from voda.changed_keys import other_keys
from voda.domain.gpus import Gpus
from voda.domain.job import Job
from voda.domain.reasons.outcomes import Reason
from voda.domain.state import ClusterState, Estimate
from voda.planner.allocation.priority import allocate
from voda.planner.allocation.resize_cost import without_thrash
from voda.planner.virtual_clusters.cell_draft import CellDraft, PlannedWorker
from voda.planner.virtual_clusters.pool_jobs import Rests
from voda.policies import Policy, gives_as_requested

_MOST_ATTEMPTS: Final = 4
_LAST: Final = -1
"""The priority here of jobs that others go before for a while; that of the others is 0."""


@dataclass
class OpportunisticPart:
    """What the pool's policy said."""

    reasons: dict[str, Reason] = field(default_factory=dict)
    """Of jobs for which a growth does not pay."""
    scattered: dict[str, int] = field(default_factory=dict)
    """Jobs that found no cells for the size that they were to have -> that size."""


def place_opportunistic(draft: CellDraft, policy: Policy, now: float, quotas: Mapping[str, int]) -> OpportunisticPart:
    """Give jobs idle cells, as the policy shares them; `quotas`: job -> workers that its virtual cluster is to serve.

    Workers within the quota that are on idle cells stay there, and no policy shares those cells: the job's own cells
    were left to others for that.
    """
    part, parts, workers = OpportunisticPart(), draft.parts, draft.workers
    # The others have no workers within their quota but guaranteed ones.
    served, uneven = draft.jobs.sure.copy(), other_keys(draft.jobs.sure, quotas)
    for job_id in draft.touched.union([job_id for job_id in uneven if job_id in draft.jobs.lent]):
        lent = draft.view.jobs[job_id].spec.size_within(min(quotas.get(job_id, 0), len(workers.get(job_id, ()))))
        served[job_id] = max(len(parts[job_id][0]), lent)
    caps: dict[str, int] = {}
    for _ in range(_MOST_ATTEMPTS):
        targets, part.reasons = _targets(draft, policy, now, caps, served)
        short = _place(draft, targets)
        if not short:
            break
        caps |= short
        part.scattered |= {job_id: targets[job_id] for job_id in short}
    return part


def _free_leafs(book: CellBook) -> int:
    """Return how many devices of healthy machines nobody has."""
    leafs, cells = len(book.topology.leaf_at), book.topology.machines
    if book.bad_nodes:
        cells = tuple([cell for cell in cells if not book.bad[cell]])
        leafs = sum([len(book.topology.trees.leafs[cell]) for cell in cells])
    return leafs - sum(map(book.guaranteed.__getitem__, cells)) - sum(map(book.opportunistic.__getitem__, cells))


def idle_workers(draft: CellDraft, gpus: int) -> int:
    """Return how many workers of so many devices the idle cells would fit."""
    book = draft.book
    leafs, guaranteed, opportunistic = book.topology.trees.leafs, book.guaranteed, book.opportunistic
    healthy = [cell for cell in book.topology.machines if not book.bad[cell]]
    return sum([(len(leafs[cell]) - guaranteed[cell] - opportunistic[cell]) // gpus for cell in healthy])


def _targets(
    draft: CellDraft, policy: Policy, now: float, caps: Mapping[str, int], served: Mapping[str, int]
) -> tuple[dict[str, int], dict[str, Reason]]:
    """Return job -> workers in all, and the reasons of those that do not grow because it would not pay."""
    view = draft.view
    more = allocate(_view_of_rest(draft, policy, served, caps), policy, now).replicas
    wanted = dict(served)
    for job_id, size in more.items():
        if size:
            wanted[job_id] += size
    if not view.settings.heeds_resize_cost:
        return wanted, {}
    sizes, reasons = without_thrash(view, wanted, now)
    if not reasons:
        return wanted, {}
    return {job_id: max(size, served.get(job_id, 0)) for job_id, size in sizes.items()}, dict(reasons)


def _view_of_rest(
    draft: CellDraft, policy: Policy, within_quota: Mapping[str, int], caps: Mapping[str, int]
) -> ClusterState:
    """Return the view in which jobs are what they may have beyond the workers within their quota."""
    view, jobs, in_force = draft.view, _rests(draft, policy, within_quota, caps), draft.view.plan.placement
    beyond, gpus = draft.jobs.lent.copy(), draft.jobs.lent_gpus.copy()
    for job_id in draft.touched.union(other_keys(draft.jobs.sure, within_quota)):
        within = within_quota[job_id]
        beyond[job_id] = in_force.get(job_id, ())[within:]
        gpus[job_id] = max(0, draft.size(job_id) - within) * view.jobs[job_id].spec.gpus_per_replica
    placement = {job_id: nodes for job_id, nodes in beyond.items() if nodes and job_id in jobs}
    return replace(
        view,
        jobs=jobs,
        estimates=_EstimatesBeyond(view.estimates, within_quota),
        plan=replace(view.plan, placement=placement),
        settings=replace(view.settings, heeds_resize_cost=False),
        capacity_limit_gpus=Gpus(_free_leafs(draft.book) + sum(gpus.values())),
    )


def _rests(
    draft: CellDraft, policy: Policy, within_quota: Mapping[str, int], caps: Mapping[str, int]
) -> Mapping[str, Job]:
    """Return jobs as what they may have beyond the workers within their quota, without those that may have nothing.

    What the last decision found of a job holds as long as nothing has changed of what it was found from.
    """
    if draft.jobs.rests.is_rigid != (is_rigid := gives_as_requested(policy)):
        draft.jobs.rests = Rests(is_rigid=is_rigid)
    rests, last, jobs = draft.jobs.rests, draft.without_guarantee, draft.view.jobs
    stale = (
        rests.stale | {*other_keys(rests.served, within_quota)} | rests.caps.keys() | caps.keys() | rests.last ^ last
    )
    for job_id in stale:
        rests.jobs.pop(job_id, None)
        served = within_quota.get(job_id)
        if served is None or (is_rigid and served >= jobs[job_id].spec.requested):
            continue
        rest = _job_beyond(jobs[job_id], served, caps.get(job_id), _LAST if job_id in last else 0)
        if rest is not None:
            rests.jobs[job_id] = rest
    rests.served, rests.caps, rests.last, rests.stale = within_quota, dict(caps), last, set()
    return rests.jobs


def _job_beyond(job: Job, served: int, cap: int | None, priority: int) -> Job | None:
    """Return a job as what it may have beyond the workers within its quota; None where that is nothing.

    Args:
        served: its workers within the quota.
        cap: workers that it found cells for; None = it was not short.
        priority: the one that it has there.
    """
    spec = job.spec
    if spec.pinned_cell or not spec.is_restartable:
        return None
    most = spec.max_replicas if cap is None else spec.size_within(cap)
    least = spec.size_above(served) - served
    if not 0 < least <= most - served:
        return None
    if not served and most == spec.max_replicas and spec.priority == priority:
        return job
    requested = min(max(spec.requested - served, least), most - served)
    changed = replace(
        spec,
        min_replicas=least,
        max_replicas=most - served,
        requested_replicas=requested,
        sizes=None if spec.sizes is None else spec.sizes.beyond(served),
        priority=priority,
    )
    return replace(job, spec=changed)


class _EstimatesBeyond(Mapping[str, Estimate]):
    """Estimates of what workers beyond those within a quota add, made when a policy asks for them."""

    def __init__(self, estimates: Mapping[str, Estimate], within_quota: Mapping[str, int]) -> None:
        self._estimates = estimates
        self._within_quota = within_quota

    def __getitem__(self, job_id: str) -> Estimate:
        estimate, served = self._estimates[job_id], self._within_quota.get(job_id, 0)
        known = estimate.speedup[served:] if served else ()
        return replace(estimate, speedup=tuple([value - known[0] for value in known])) if served else estimate

    def __iter__(self) -> Iterator[str]:
        return iter(self._estimates)

    def __len__(self) -> int:
        return len(self._estimates)


def _place(draft: CellDraft, targets: Mapping[str, int]) -> dict[str, int]:
    """Bring the jobs to their targets; return those for which no cells were found -> the size that they have."""
    jobs = draft.view.jobs
    uneven = draft.touched.union(other_keys(draft.jobs.sizes, targets))
    changed = sorted([job_id for job_id in uneven if targets[job_id] != draft.size(job_id)])
    for job_id in changed:
        for worker in _to_go(draft, job_id, targets[job_id]):
            draft.drop(worker)
    growing = [jobs[job_id] for job_id in changed if targets[job_id] > draft.size(job_id)]
    # Those that go on come first: they lost workers, or grow.
    growing.sort(key=lambda job: (not draft.size(job.spec.job_id), job.submitted_at, job.spec.job_id))
    short: dict[str, int] = {}
    for job in growing:
        if not _grow(draft, job, targets[job.spec.job_id]):
            short[job.spec.job_id] = draft.size(job.spec.job_id)
    return short


def _to_go(draft: CellDraft, job_id: str, target: int) -> list[PlannedWorker]:
    """Return the workers on idle cells that a job has too many, those of the highest indices."""
    idle = sorted(draft.opportunistic(job_id), key=lambda each: each.index, reverse=True)
    return idle[: max(0, draft.size(job_id) - target)]


def _grow(draft: CellDraft, job: Job, target: int) -> bool:
    """Give a job idle cells up to its target; return whether it has so many. It has one of its sizes, or nothing."""
    job_id = job.spec.job_id
    while draft.size(job_id) < target and draft.restore(job) is not None:
        pass
    lacking = job.spec.min_replicas - draft.size(job_id)
    if lacking > 0 and draft.place(job, lacking, is_guaranteed=False) is None:
        for worker in list(draft.workers.get(job_id, ())):
            draft.drop(worker)
        return False
    missing = target - draft.size(job_id)
    if missing > 0 and draft.place(job, missing, is_guaranteed=False) is not None:
        return True
    while missing > 0 and draft.place(job, 1, is_guaranteed=False) is not None:
        missing -= 1
    for worker in _to_go(draft, job_id, job.spec.size_within(draft.size(job_id))):
        draft.drop(worker)
    return missing <= 0
