"""No thrash: a growth that does not pay for its restart is left out, and what it would have taken from others stays.

A growth is judged by what its job is likely to keep: where starts have lately taken such GPUs after a while, by that
while, at the end of which the job is shrunk again (`Surplus`). Rules: starts, and the shrinks and preemptions that make
room for starts, stand; see docs/adr/0006. Nor does a growth pay by GPUs that a job needs again for the next try of its
program, if it is undone too soon; see docs/adr/0028.
"""

import math
from collections.abc import Iterable, Mapping, Set
from itertools import compress, repeat
from operator import gt, lt, not_
from typing import Final

from voda.domain.gpus import NO_GPUS, Gpus, total
from voda.domain.reasons.outcomes import Keeps, Reason, Resized, Starts
from voda.domain.reasons.policies import GrowthNearRetry, GrowthUnpaid, OthersGrowthUnpaid, ShrinkNeedless
from voda.domain.state import ClusterState, Estimate

_UNKNOWN: Final = Estimate(speedup=())


def without_thrash(
    view: ClusterState, wanted: Mapping[str, int], now: float
) -> tuple[Mapping[str, int], Mapping[str, Reason]]:
    """Return the replicas wanted, less growths that do not pay, and reasons of the jobs that keep what they had.

    Of a growth of which a part pays, the largest such part stays. Only the GPUs of the growths left out are given back:
    to preempted jobs first, then to waiting ones, then to shrunk ones.
    """
    # Nearly no job grows or shrinks.
    sizes = [*map(len, map(view.plan.placement.get, wanted, repeat(())))]
    left_out = _growths_that_do_not_pay(view, wanted, compress(wanted, map(gt, wanted.values(), sizes)), now)
    near_retries = _growths_into_retries(view, wanted, left_out.keys())
    growths: dict[str, tuple[int, GrowthUnpaid | GrowthNearRetry]] = {**left_out, **near_retries}
    if not growths:
        return wanted, {}
    replicas, reasons = dict(wanted), dict[str, Reason]()
    freed = NO_GPUS
    for job_id, (size, cause) in growths.items():
        had = len(view.plan.placement[job_id])
        freed += (wanted[job_id] - size) * view.jobs[job_id].spec.gpus_per_replica
        replicas[job_id] = size
        is_as_before = size == had
        reasons[job_id] = (
            Keeps(workers=size, why=(cause,)) if is_as_before else Resized(had=had, workers=size, why=(cause,))
        )
    served = _served_instead(view, wanted, freed)
    replicas.update(served)
    for job_id, size in served.items():
        outcome = Keeps if job_id in view.plan.placement else Starts
        reasons[job_id] = outcome(workers=size, why=(OthersGrowthUnpaid(),))
        freed -= size * view.jobs[job_id].spec.gpus_per_replica
    undone = _shrinks_undone(view, wanted, compress(wanted, map(lt, wanted.values(), sizes)), freed)
    replicas.update(undone)
    for job_id, size in undone.items():
        had, why = len(view.plan.placement[job_id]), (ShrinkNeedless(to=wanted[job_id]),)
        is_as_before = size == had
        reasons[job_id] = Keeps(workers=size, why=why) if is_as_before else Resized(had=had, workers=size, why=why)
    return replicas, reasons


def _growths_that_do_not_pay(
    view: ClusterState, wanted: Mapping[str, int], larger: Iterable[str], now: float
) -> dict[str, tuple[int, GrowthUnpaid]]:
    """Return job id -> the size that pays, or the one it has, and why it gets no more."""
    in_force = view.plan.placement
    growing = [job_id for job_id in larger if in_force.get(job_id) and _is_settled(view, job_id)]
    if not growing:
        return {}
    jobs, unpaid = view.jobs, dict[str, tuple[int, GrowthUnpaid]]()
    used = view.gpus_of(wanted)
    above = max(0, view.capacity_gpus - used)
    # A start takes free GPUs first, then those of the job that was submitted last.
    for job_id in sorted(growing, key=lambda job_id: (-jobs[job_id].submitted_at, job_id)):
        if (kept := _size_that_pays(view, job_id, wanted[job_id], above, now)) is not None:
            unpaid[job_id] = kept
        above += (wanted[job_id] - len(in_force[job_id])) * jobs[job_id].spec.gpus_per_replica
    return unpaid


def _size_that_pays(
    view: ClusterState, job_id: str, wanted: int, above: int, now: float
) -> tuple[int, GrowthUnpaid] | None:
    """Return the largest size that pays for a job, and why no larger one does; None: the size wanted pays.

    Starts take `above` GPUs before those of the growth, and the newest of these before the others.
    """
    had, spec = len(view.plan.placement[job_id]), view.jobs[job_id].spec
    gpus = spec.gpus_per_replica
    estimate, size, why = view.estimates.get(job_id, _UNKNOWN), wanted, None
    while size > had:
        lasts_s, as_new = view.surplus.lasts_s(above + (wanted - size) * gpus, now)
        if (unpaid := _unpaid(estimate, had, size, lasts_s)) is None:
            break
        why = why or unpaid
        size = max(had, spec.size_within(size - -(-as_new // gpus))) if as_new else had
    return None if why is None else (size, why)


def _unpaid(estimate: Estimate, before: int, after: int, lasts_s: float) -> GrowthUnpaid | None:
    """Return why a growth does not pay; None: it does, or not enough is known."""
    if after >= len(estimate.speedup):
        return None
    cost_s, left_s, ends_s = estimate.resize_cost_s, estimate.time_left_s(before), estimate.time_left_s(after)
    is_kept = not cost_s or cost_s + ends_s <= lasts_s
    if is_kept:
        saved_s = left_s - ends_s if left_s < math.inf else math.inf
    elif lasts_s < math.inf and estimate.speedup[before] > 0:
        # It is shrunk again, at the same cost; what it does meanwhile would take longer at its present size.
        times = estimate.speedup[after] / estimate.speedup[before]
        saved_s, cost_s = lasts_s * (times - 1), cost_s * (times + 1)
    else:
        return None
    if saved_s > cost_s:
        return None
    lasts = None if is_kept else round(lasts_s)
    return GrowthUnpaid(to=after, saved_s=round(max(saved_s, 0.0)), cost_s=round(cost_s), lasts_s=lasts)


def _growths_into_retries(
    view: ClusterState, wanted: Mapping[str, int], left_out: Set[str]
) -> Mapping[str, tuple[int, GrowthNearRetry]]:
    """Return job id -> the size it has, and why it keeps that: a job needs the GPUs again too soon for it to pay."""
    if not view.retries:
        return {}
    in_force, jobs = view.plan.placement, view.jobs

    def grown_gpus(job_id: str) -> Gpus:
        return (wanted[job_id] - len(in_force[job_id])) * jobs[job_id].spec.gpus_per_replica

    used = view.gpus_of(wanted)
    left = view.capacity_gpus - used + total(map(grown_gpus, left_out))
    growing = [job_id for job_id, size in wanted.items() if 0 < len(in_force.get(job_id, ())) < size]
    kept: dict[str, tuple[int, GrowthNearRetry]] = {}
    for job_id in sorted(growing, key=lambda job_id: (-jobs[job_id].submitted_at, job_id)):
        if job_id in left_out or not _is_settled(view, job_id):
            continue
        # It is shrunk again, at the same cost.
        lasts_s = 2 * view.estimates.get(job_id, _UNKNOWN).resize_cost_s
        awaited = [
            each for each in view.retries if each.in_s <= lasts_s and each.priority >= jobs[job_id].spec.priority
        ]
        if left < total(each.gpus for each in awaited):
            retry = GrowthNearRetry(in_s=round(min(each.in_s for each in awaited), 1))
            kept[job_id] = len(in_force[job_id]), retry
            left += grown_gpus(job_id)
    return kept


def _is_settled(view: ClusterState, job_id: str) -> bool:
    """Whether the job runs with its minimum, is to have one of its sizes, and none of its planned nodes is lost."""
    job = view.jobs[job_id]
    planned = view.plan.placement[job_id]
    if len(job.workers) < job.spec.min_replicas or job.spec.size_within(len(planned)) != len(planned):
        return False
    return all(node in view.nodes and view.nodes[node].usable_gpus > 0 for node in planned)


def _served_instead(view: ClusterState, wanted: Mapping[str, int], freed: Gpus) -> Mapping[str, int]:
    """Return job id -> replicas of jobs that were to have none: those in force first, then by submission."""
    in_force = view.plan.placement

    def rank(job_id: str) -> tuple[bool, float, str]:
        return job_id not in in_force, view.jobs[job_id].submitted_at, job_id

    served: dict[str, int] = {}
    for job_id in sorted(compress(wanted, map(not_, wanted.values())), key=rank):
        spec = view.jobs[job_id].spec
        had = max(len(in_force.get(job_id, ())), spec.min_replicas)
        if size := spec.size_within(min(had, freed // spec.gpus_per_replica)):
            served[job_id] = size
            freed -= size * spec.gpus_per_replica
    return served


def _shrinks_undone(
    view: ClusterState, wanted: Mapping[str, int], smaller: Iterable[str], freed: Gpus
) -> Mapping[str, int]:
    """Return job id -> replicas it keeps after all: whole shrinks first, then parts, earlier submission first."""
    shrunk = sorted(
        (job_id for job_id in smaller if 0 < wanted[job_id] < _size_to_keep(view, job_id, wanted[job_id])),
        key=lambda job_id: (view.jobs[job_id].submitted_at, job_id),
    )
    undone: dict[str, int] = {}
    for take_parts in (False, True):
        for job_id in shrunk:
            if job_id in undone:
                continue
            spec, size = view.jobs[job_id].spec, wanted[job_id]
            lacking = _size_to_keep(view, job_id, size) - size
            restored = spec.size_within(size + min(lacking, freed // spec.gpus_per_replica)) - size
            if restored == lacking or (take_parts and restored):
                undone[job_id] = size + restored
                freed -= restored * spec.gpus_per_replica
    return undone


def _size_to_keep(view: ClusterState, job_id: str, size: int) -> int:
    """Return the size in force, or the next lower one at which the job runs, unless it is no slower at the new one."""
    before = view.jobs[job_id].spec.size_within(len(view.plan.placement.get(job_id, ())))
    speedup = view.estimates.get(job_id, _UNKNOWN).speedup
    is_no_slower = before < len(speedup) and speedup[size] >= speedup[before]
    return size if is_no_slower else before
