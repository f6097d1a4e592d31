"""How events change a job: its request, its phase, its charges, and counts of starts, resizes, migrations.

Rule: all events of one instant are one change of the job; every projection of jobs uses these functions.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, assert_never

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from voda.domain.job import (
    DRAINED,
    HALTED,
    PREEMPTED,
    REFUSED,
    Job,
    JobSpec,
    Obstacle,
    Phase,
    SickGpu,
    StartBackoff,
    VainDisplacement,
)
from voda.domain.node import Node
from voda.domain.reasons.outcomes import is_refused
from voda.events import types as facts
from voda.kinds.registry import KINDS
from voda.projections.jobs.failed_sizes import after_change, after_report, before_change
from voda.projections.jobs.requests import requested_job

END_PHASES: Final = {
    facts.JobCompleted: Phase.COMPLETED,
    facts.JobFailed: Phase.FAILED,
    facts.JobCanceled: Phase.CANCELED,
}
JobPatch = (
    facts.JobProgressed
    | facts.WorkerStarted
    | facts.WorkerExited
    | facts.JobStalled
    | facts.WorkerGpuSick
    | facts.JobBackedOff
    | facts.ActionFailed
    | facts.JobRegistered
    | facts.JobChanged
    | facts.JobCancelRequested
    | facts.JobHaltRequested
    | facts.JobResumeRequested
    | facts.JobQueueLevelChanged
)
"""Facts that change a live job and nothing else."""


def changed_job(job: Job, fact: JobPatch, now: float, planned: Sequence[str]) -> Job:
    """Return a live job after a fact about it; the same object where the fact says nothing new.

    `planned` is the node of each of its workers, by the plan in force.
    """
    match fact:
        case facts.JobProgressed():
            return after_report(job, fact.epochs_done)
        case facts.WorkerStarted():
            job = after_change(_start_workers(before_change(job, now), fact.workers, now), planned)
            is_settled = job.has_displaced and len(job.workers) >= len(planned)
            return replace(job, has_displaced=False) if is_settled else job
        case facts.WorkerExited():
            job = job if fact.retry_at is None else replace(job, retry_at=fact.retry_at)
            if fact.is_over_limit:
                job = replace(job, evictions_for_limits=job.evictions_for_limits + 1)
            job = before_change(job, now, cause=fact.cause)
            return after_change(_exit_workers(job, fact.workers, fact.cause, now, planned), planned)
        case facts.JobStalled():
            return replace(job, obstacle=_obstacle(fact, now), done=_still_done(job, fact))
        case facts.WorkerGpuSick():
            sick = {**job.sick_gpus, fact.worker: SickGpu(fact.gpu, fact.reason, now, fact.other)}
            return replace(job, sick_gpus=sick) if fact.reason else _without_sick(job, (fact.worker,))
        case facts.JobBackedOff():
            return replace(job, backoff=_backoff(fact, now))
        case facts.ActionFailed():
            return replace(job, failures=job.failures + 1, last_error=f"{fact.action}: {fact.error}")
        case facts.JobRegistered():
            return replace(job, uid=fact.uid, **({} if fact.uid == job.uid else {"done": (), "done_of": 0}))
        case facts.JobChanged():
            stays = bool(planned or job.workers or job.waits_for or job.first_started_at is not None)
            job = job if fact.gpus_per_replica is None else charge(job, now)
            return requested_job(job, fact, now, stays=stays)
        case facts.JobCancelRequested():
            return replace(job, is_canceling=True, is_killed=job.is_killed or fact.is_kill)
        case facts.JobHaltRequested():
            loss = HALTED if job.workers else job.loss
            return replace(job, halt=fact.reason, loss=loss, backoff=None)
        case facts.JobResumeRequested():
            # While it is still planned, no plan has halted it: its workers stay.
            loss = "" if planned and job.loss == HALTED else job.loss
            return replace(job, halt=None, loss=loss, backoff=None)
        case facts.JobQueueLevelChanged():
            return replace(job, queue_level=fact.queue_level, queued_since=now)
        case _:
            assert_never(fact)


def replanned_job(job: Job, fact: facts.PlanAdopted, *, has_displaced: bool = False) -> Job:
    """Return a live job that a plan places or releases; the very job where nothing changes.

    One from which a drain takes the GPUs is not preempted, nor is one that nodes refuse. `has_displaced`: others leave
    nodes for it by this plan.
    """
    is_placed = job.spec.job_id in fact.placed
    if (displaced := has_displaced or (is_placed and job.has_displaced)) != job.has_displaced:
        job = replace(job, has_displaced=displaced)
    if is_placed:
        return replace(job, loss="") if job.loss in (DRAINED, REFUSED) else job
    reason = fact.reasons.get(job.spec.job_id)
    loss = DRAINED if fact.cause == facts.NodeDrainRequested.TYPE else REFUSED if is_refused(reason) else ""
    return replace(job, loss=loss) if loss and job.workers and not job.loss else job


def refused_job(job: Job, fact: facts.WorkerRefused, nodes: Mapping[str, Node], openings: int) -> Job:
    """Return a live job that a node refuses, or refuses no more; the very job where nothing changes.

    `nodes` are those of its pool, of which so many `openings` are known (`ClusterState.opened`).
    """
    reason = fact.reason if fact.reason is not None or fact.fits is None else job.refusals.get(fact.node)
    if reason is None and fact.node not in job.refusals:
        return job
    refusals = {node: why for node, why in job.refusals.items() if node != fact.node}
    fits = {node: number for node, number in job.fits.items() if node != fact.node}
    if reason is not None:
        refusals[fact.node] = reason
    if reason is not None and fact.fits is not None:
        fits[fact.node] = fact.fits
    job = replace(job, refusals=refusals, fits=fits)
    vain = job.displaced_in_vain
    if fact.reason is None or not (job.has_displaced or vain):
        return job
    refused = {name: nodes[name] for name in refusals if name in nodes}
    if vain is not None:
        refused |= {name: node for name, node in vain.refused.items() if name != fact.node}
    if vain is None or job.has_displaced:
        least = job.spec.min_replicas
        vain = VainDisplacement(node=fact.node, why=fact.reason, openings=openings, refused=refused, least=least)
    return replace(job, has_displaced=False, displaced_in_vain=replace(vain, refused=refused))


def _without_sick(job: Job, workers: Collection[int]) -> Job:
    left = {index: gpu for index, gpu in job.sick_gpus.items() if index not in workers}
    return job if len(left) == len(job.sick_gpus) else replace(job, sick_gpus=left)


def _obstacle(fact: facts.JobStalled, now: float) -> Obstacle | None:
    if fact.reason is None or fact.at_work is None:
        return None
    return Obstacle(fact.reason, now if fact.since is None else fact.since, fact.at_work)


def _still_done(job: Job, fact: facts.JobStalled) -> tuple[int, ...]:
    if fact.run_again is None:
        # Plans of an older voda rest on this.
        return () if fact.reason else job.done
    return tuple(index for index in job.done if index not in fact.run_again)


def _backoff(fact: facts.JobBackedOff, now: float) -> StartBackoff:
    return StartBackoff(
        reason=fact.reason,
        at_work=fact.at_work,
        planned=fact.planned,
        failures=fact.failures,
        retry_at=now + fact.retry_after_s,
        retry_after_s=fact.retry_after_s,
    )


def undisturbed_epoch_s(fact: facts.JobProgressed, now: float, changed_at: float) -> float | None:
    """Return the seconds that a job reports for its last epoch; None where it timed none, or its workers changed then.

    A duration into which a change fell belongs to no size.

    Args:
        fact: the report.
        now: when it was recorded.
        changed_at: when the workers changed last, where that may be within the epoch; -inf = it is not.
    """
    is_disturbed = fact.is_raw and fact.epoch_s is not None and now - changed_at < fact.epoch_s
    return None if is_disturbed else fact.epoch_s


class WorkerChanges(Struct, kw_only=True):
    """The workers of one job, and counts of their changes; changed in place."""

    workers: dict[int, str] = {}
    moving: dict[int, str] = {}
    """Workers under way to another node -> node they left; until they arrive they count as being there."""
    before: dict[int, str] = msgspec.field(default_factory=dict, name="settled")
    """Workers before the changes of the instant `changed_at`."""
    changed_at: float = 0.0
    first_started_at: float | None = None
    starts: int = 0
    resizes: int = 0
    migrations: int = 0
    workers_moved: int = 0
    restarts: int = 0
    was_spanning: bool = False
    planned: int | None = None
    """Workers by the plan in force; None: no plan is known, and every change of their number is a resize."""
    size: int = 0
    """Workers when all that were planned were there last; 0: not since its start."""

    def plan(self, nodes: Collection[str], now: float) -> None:
        """Take over how many workers a plan wants; what was seen before was not done because of it."""
        if now != self.changed_at:
            self.settle()
        self.planned = len(nodes)

    def begin(self, now: float) -> None:
        """Begin a change at `now`: count the changes of the instant before."""
        if now != self.changed_at:
            self.settle()
            self.changed_at = now

    def start(self, workers: Mapping[int, str]) -> None:
        """Add workers that have started; call `begin` first."""
        for index in workers:
            self.moving.pop(index, None)
        self.workers.update(workers)

    def exit(self, gone: Iterable[int], cause: facts.ExitCause) -> None:
        """Remove workers that have exited; call `begin` first."""
        for index in gone:
            node = self.workers.pop(index, None)
            if cause in facts.LASTING_CAUSES:
                # A worker that finishes costs the others no restart.
                self.before.pop(index, None)
            if cause != "migrated":
                self.moving.pop(index, None)
            elif node is not None:
                self.moving[index] = node

    def settle(self) -> None:
        """Count the net change of the last instant."""
        before, after = self.before, self.moving | self.workers
        self._count_resize(len(before), len(after))
        if before == after:
            return
        self.before = after
        if not after:
            return
        self.was_spanning = self.was_spanning or len(set(after.values())) > 1
        if self.first_started_at is None:
            self.first_started_at = self.changed_at
        else:
            self.restarts += 1
        if not before:
            self.starts += 1
            return
        moved = sum(1 for index, node in after.items() if before.get(index, node) != node)
        self.migrations += moved > 0
        self.workers_moved += moved

    def _count_resize(self, before: int, after: int) -> None:
        """Count a resize once: when all workers of the new size are there, however many instants they took."""
        if not after:
            self.size = 0
        elif self.planned is None:
            self.resizes += 0 < before != after
        elif after == self.planned:
            self.resizes += 0 < self.size != after
            self.size = after

    def totals(self) -> "WorkerChanges":
        counted = replace(self)
        counted.settle()
        return counted


def workers_after(job: Job, fact: facts.WorkerStarted | facts.WorkerExited) -> dict[int, str]:
    """Return the workers of a job once some of them have started or exited."""
    if isinstance(fact, facts.WorkerStarted):
        return {**job.workers, **fact.workers}
    return {index: node for index, node in job.workers.items() if index not in fact.workers}


def new_job(spec: JobSpec, now: float) -> Job:
    """Return a job that is submitted now."""
    kind = KINDS.get(spec.kind)
    has_anchor = kind is not None and kind.has_anchor
    waits_for = tuple(dependency for dependency in spec.after if not dependency.is_met)
    return Job(spec=spec, submitted_at=now, counted_at=now, waits_for=waits_for, has_anchor=has_anchor)


def charge(job: Job, now: float) -> Job:
    """Return the job with its totals carried on to `now`, to be taken whenever its number of replicas changes."""
    span_s = now - job.counted_at
    if not job.workers:
        return replace(job, counted_at=now, waiting_s=job.waiting_s + span_s)
    service = job.gpus * span_s
    return replace(
        job,
        counted_at=now,
        running_s=job.running_s + span_s,
        attained_service_gpu_s=job.attained_service_gpu_s + service,
        served_since_start_gpu_s=job.served_since_start_gpu_s + service,
    )


def _start_workers(job: Job, workers: Mapping[int, str], now: float) -> Job:
    done = tuple(index for index in job.done if index not in workers)
    job = replace(charge(_without_sick(job, workers), now), workers={**job.workers, **workers}, last_error="")
    if job.done_of:
        # With all of them at work again, it may be resized again.
        job = replace(job, done=done, done_of=job.done_of if done or len(job.workers) < job.done_of else 0)
    if job.obstacle is not None and job.obstacle.at_work in workers:
        # It had no GPU, or had lost it; what else it may lack is seen anew.
        job = replace(job, obstacle=None)
    if job.phase is Phase.RUNNING:
        # What was lost has come back; a halt goes on.
        return replace(job, loss=HALTED if job.loss == HALTED else "")
    is_first = job.first_started_at is None
    return replace(
        job,
        phase=Phase.RUNNING,
        last_started_at=now,
        interruption="",
        loss="",
        served_since_start_gpu_s=0.0,
        first_started_at=now if is_first else job.first_started_at,
        restarts=job.restarts if is_first else job.restarts + 1,
    )


def _exit_workers(job: Job, gone: Collection[int], cause: facts.ExitCause, now: float, planned: Sequence[str]) -> Job:
    loss = job.loss or _loss(job, cause, planned)
    left = {index: node for index, node in job.workers.items() if index not in gone}
    # A job whose workers all move is on its way, not halted: it keeps its start and its service.
    is_halt = bool(job.workers) and not left and cause != "migrated"
    job = replace(charge(_without_sick(job, gone), now), workers=left, loss=loss)
    if cause in facts.LASTING_CAUSES and (kind := KINDS.get(job.spec.kind)) is not None and kind.has_lasting_success:
        size = len(planned) or job.done_of or 1 + max((*job.workers, *gone), default=0)
        # The plan may have shrunk it just before.
        size = max(size, *(1 + index for index in gone), job.done_of)
        job = replace(job, done=tuple(sorted({*job.done, *gone})), done_of=size)
    if not is_halt:
        return job
    started_at = now if job.last_started_at is None else job.last_started_at
    by = loss or _unforced(job, cause, planned)
    return replace(job, phase=Phase.WAITING, last_halted_at=now, last_run_s=now - started_at, interruption=by, loss="")


def _loss(job: Job, cause: facts.ExitCause, planned: Sequence[str]) -> str:
    """Return the cause if it took workers that the plan wants as they are; empty where the plan changes them."""
    # Where a job is resized as a whole, the workers that its next size has too are seen to go as evicted.
    is_resize = cause == "evicted" and bool(planned) and job.workers != dict(enumerate(planned))
    return "" if is_resize or cause in ("stopped", "migrated", "finished") else cause


def _unforced(job: Job, cause: facts.ExitCause, planned: Sequence[str]) -> str:
    """Return why the last worker left of a job that lost none."""
    if cause == "finished":
        return cause
    if job.is_halted:
        return HALTED
    return "" if planned or job.is_canceling else PREEMPTED
