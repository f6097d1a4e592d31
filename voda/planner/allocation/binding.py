"""What binds a job, as the whole pool has it: a policy sees a part of the jobs, and its own order. Pure.

1. A job with as many workers as it may have has no fewer or more for any order: that is its maximum.
2. A job that is alone in a part of the jobs is not the only one where others are live.
3. A job that loses all its workers is told which jobs get its GPUs.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TypeGuard

from msgspec.structs import replace

from voda.domain.gpus import Gpus, total
from voda.domain.job import Job
from voda.domain.plan import Placement
from voda.domain.reasons.outcomes import Cause, Preempted, Preemptor, Reason, Resized, Starts
from voda.domain.reasons.policies import AtMaximum, HigherPriority, InOrder, PolicyCause, UserTurns
from voda.domain.state import ClusterState

_MOST_PREEMPTORS = 2


class BindingReasons(Mapping[str, Reason]):
    """The reasons of a plan with what binds each job, made when it is asked for: of most nobody does."""

    def __init__(self, view: ClusterState, reasons: Mapping[str, Reason], placement: Placement) -> None:
        self._view, self._reasons, self._placement = view, reasons, placement

    def __getitem__(self, job_id: str) -> Reason:
        reason = self._reasons[job_id]
        if isinstance(reason, Preempted):
            by, more = _preemptors(self._view, self._placement, job_id)
            return replace(reason, by=by, more=more) if by else reason
        if not isinstance(reason, Starts | Resized):
            return reason
        why = _why(reason, self._view.jobs[job_id])
        if self._has_others and any(map(_says_only_job, why)):
            why = tuple([replace(cause, is_alone=False) if _says_only_job(cause) else cause for cause in why])
        return reason if why == reason.why else replace(reason, why=why)

    @cached_property
    def _has_others(self) -> bool:
        return sum(not (job.is_canceling or job.is_halted) for job in self._view.jobs.values()) > 1

    def __contains__(self, job_id: object) -> bool:
        return job_id in self._reasons

    def __iter__(self) -> Iterator[str]:
        return iter(self._reasons)

    def __len__(self) -> int:
        return len(self._reasons)


def _why(reason: Starts | Resized, job: Job) -> tuple[Cause, ...]:
    """Return the causes, where the job has its maximum that in place of how others come before or after it."""
    most, is_set = job.spec.max_replicas, job.maximum is not None
    if reason.workers != most or not (is_set or job.spec.is_elastic):
        return reason.why
    others = [cause for cause in reason.why if not isinstance(cause, PolicyCause | HigherPriority | UserTurns)]
    if not is_set and len(others) == len(reason.why):
        # As requested, or by its guarantee.
        return reason.why
    maximum = job.maximum if job.maximum is not None else AtMaximum(workers=most)
    return (maximum, *others)


def _says_only_job(cause: Cause) -> TypeGuard[InOrder]:
    return isinstance(cause, InOrder) and cause.running + cause.others == 1


def _preemptors(view: ClusterState, placement: Placement, job_id: str) -> tuple[tuple[Preemptor, ...], int]:
    """Return the jobs that get the most GPUs where the job had its own, and how many there are more.

    None of them preempts it while they get no more there than was free.
    """
    before = view.plan.placement
    left = {node for node in before.get(job_id, ()) if node in view.nodes}
    if not left:
        return (), 0
    free = total(view.nodes[node].own_gpus for node in left)
    gained: dict[str, Gpus] = {}
    for other, nodes in before.items():
        # What halted ones leave is free.
        if (job := view.jobs.get(other)) is not None and not (job.is_halted or job.is_canceling):
            free -= sum(node in left for node in nodes) * job.spec.gpus_per_replica
    for other, nodes in placement.items():
        if (had := before.get(other)) == nodes or left.isdisjoint(nodes):
            continue
        come = Counter(node for node in nodes if node in left)
        come.subtract(node for node in had or () if node in left)
        workers = sum(count for count in come.values() if count > 0)
        if gpus := workers * view.jobs[other].spec.gpus_per_replica:
            gained[other] = gpus
    if total(gained.values()) <= free:
        return (), 0
    ranked = sorted(gained, key=lambda other: (-gained[other], other))
    named = [Preemptor(job_id=other, user=view.jobs[other].spec.user) for other in ranked[:_MOST_PREEMPTORS]]
    return tuple(named), len(ranked) - len(named)
