"""Turns the log's facts into messages for a job's owner: what happened, from what to what, and why.

Rule: pure; a fact that changes nothing for the owner has no message, and what is not known (the size before, where the
log is followed from its middle) is left out, never guessed.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from msgspec import Struct

from voda.domain.job import JobSpec
from voda.domain.reasons.outcomes import JobReason, Keeps, Resized, is_refused
from voda.events.envelope import Event
from voda.events.event_text import action_failed_text, backed_off_text, job_change_text, sick_gpu_text
from voda.events.text.failures import failure_text, void_text
from voda.events.text.nodes import refusal_text
from voda.events.text.reasons import unsized_text
from voda.events.text.requests import cancel_request_text, requested_text
from voda.events.text.stalls import stall_text
from voda.events.types import (
    ActionFailed,
    JobBackedOff,
    JobCanceled,
    JobCancelRequested,
    JobChanged,
    JobCompleted,
    JobFailed,
    JobHaltRequested,
    JobRegistered,
    JobResumeRequested,
    JobStalled,
    PlanAdopted,
    WorkerExited,
    WorkerGpuSick,
    WorkerRefused,
    WorkerStarted,
)
from voda.operator.status.kube_events import Reason
from voda.projections.jobs.record import JobRecord

_MOST_MOVES: Final = 4
_LOST: Final = {
    "evicted": ("was evicted", "were evicted"),
    "node_lost": ("was lost with its node", "were lost with their nodes"),
    "failed": ("failed by itself", "failed by themselves"),
    "failed_for_good": ("failed for good", "failed for good"),
}
"""Cause -> what happened to one worker, to several."""


class JobMessage(Struct, frozen=True):
    job_id: str
    reason: Reason
    text: str


class EventMessages:
    """Follows the log, and words what happened to the jobs, whose records have the event at hand folded already."""

    def __init__(self, record: Callable[[str], JobRecord | None]) -> None:
        self._record = record
        self._planned: dict[str, tuple[str, ...]] = {}
        """Live job -> nodes by the plan in force; jobs whose plan is not known are absent."""
        self._workers: dict[str, set[int]] = {}
        self._replaced: dict[str, str] = {}
        """Job whose object is being replaced -> why."""

    def begin(self, live: Iterable[JobRecord]) -> None:
        records = list(live)
        self._planned = {record.spec.job_id: record.planned for record in records}
        self._workers = {record.spec.job_id: set(record.job.workers) for record in records}

    def of(self, event: Event) -> Sequence[JobMessage]:
        """Return what an event means to the jobs it is about; events come in the order of the log."""
        return tuple(self._of(event))

    def _of(self, event: Event) -> Iterator[JobMessage]:
        match event.data:
            case JobRegistered() as fact:
                yield from self._registered(fact)
            case PlanAdopted() as fact:
                yield from self._plan(fact)
            case WorkerStarted() as fact:
                yield from self._started(fact, event.recorded_at)
            case WorkerExited() as fact:
                yield from self._exited(fact)
            case WorkerRefused(job_id=job_id, node=node, reason=reason, fits=fits) if reason is not None:
                can = f"takes {fits} of its workers and no more" if fits else "cannot take its workers"
                yield JobMessage(job_id, "WorkerRefused", f"node {node} {can}: {refusal_text(reason)}")
            case WorkerGpuSick(job_id=job_id) as fact:
                yield JobMessage(job_id, "SickGpu", sick_gpu_text(fact))
            case JobStalled(job_id=job_id, reason=stall) if stall is not None:
                yield JobMessage(job_id, "Stalled", f"gets no further: {stall_text(stall)}")
            case JobBackedOff() as fact:
                yield JobMessage(fact.job_id, "Stuck", backed_off_text(fact))
            case ActionFailed(job_id=job_id) as fact:
                yield JobMessage(job_id, "ActionFailed", action_failed_text(fact, event.recorded_at))
            case JobChanged() as fact:
                yield JobMessage(fact.job_id, "Changed", f"settings changed: {job_change_text(fact)}")
            case JobCancelRequested(job_id=job_id, reason=reason):
                yield JobMessage(job_id, "Canceling", cancel_request_text(reason))
            case JobHaltRequested(job_id=job_id, reason=reason):
                yield JobMessage(job_id, "Halted", requested_text("halted", reason.by, reason.text))
            case JobResumeRequested(job_id=job_id):
                yield JobMessage(job_id, "Changed", "resumed: plans may give it workers again")
            case JobCompleted(job_id=job_id):
                yield self._ended(job_id, "Completed", "completed")
            case JobFailed(job_id=job_id, reason=reason):
                yield self._ended(job_id, "Failed", f"failed{_because(failure_text(reason))}")
            case JobCanceled(job_id=job_id):
                yield self._ended(job_id, "Canceled", "canceled")
            case _:
                return

    def _registered(self, fact: JobRegistered) -> Iterator[JobMessage]:
        record = self._record(fact.job_id)
        if record is None or not fact.uid:
            # Events are about an object that is there.
            self._replaced[fact.job_id] = void_text(fact.reason)
            return
        why = self._replaced.pop(fact.job_id, "")
        if record.job.first_started_at is not None:
            made = "voda made a new object for the job, which goes on from its last checkpoint"
            yield JobMessage(fact.job_id, "Recreated", f"{made}{_because(why)}")
            return
        self._planned.setdefault(fact.job_id, ())
        self._workers.setdefault(fact.job_id, set())
        yield JobMessage(
            fact.job_id, "Queued", f"queued as job {fact.job_id} in pool {record.spec.pool}: {_size(record)}"
        )

    def _plan(self, fact: PlanAdopted) -> Iterator[JobMessage]:
        for job_id, nodes in fact.placed.items():
            before = self._planned.get(job_id)
            self._planned[job_id] = nodes
            if before:
                yield from _replaced(job_id, before, nodes, fact.reasons.get(job_id))
        for job_id in fact.released:
            before = self._planned.get(job_id)
            self._planned[job_id] = ()
            record = self._record(job_id)
            if before and record is not None and record.is_live and not (record.is_canceling or record.is_halted):
                workers = _counted(len(before), "worker")
                why = fact.reasons.get(job_id)
                reason: Reason = "WorkerRefused" if is_refused(why) else "Preempted"
                yield JobMessage(job_id, reason, f"gives up {workers}{_why(why)}")

    def _started(self, fact: WorkerStarted, at: float) -> Iterator[JobMessage]:
        record = self._record(fact.job_id)
        had = self._workers.get(fact.job_id)
        self._workers[fact.job_id] = (had or set()) | set(fact.workers)
        if had or had is None or record is None or not record.is_live:
            return
        is_first = not record.job.restarts and (
            record.job.first_started_at is None or record.job.first_started_at >= at
        )
        reason: Reason = "Started" if is_first else "Resumed"
        come, planned = len(fact.workers), len(self._planned.get(fact.job_id, ()))
        # The others are about to come; how many are meant is what the owner asks first.
        workers = f"{come} of {planned} workers" if come < planned else _counted(come, "worker")
        where = f"{workers} on {_per_node(fact.workers.values())}"
        # A reason for a size says nothing of why the job starts.
        why = "" if isinstance(record.reason, Keeps | Resized) else _why(record.reason)
        yield JobMessage(fact.job_id, reason, f"{reason.lower()} with {where}{why}")

    def _exited(self, fact: WorkerExited) -> Iterator[JobMessage]:
        self._workers.setdefault(fact.job_id, set()).difference_update(fact.workers)
        record = self._record(fact.job_id)
        if (how := _LOST.get(fact.cause)) is None or record is None or not record.is_live:
            return
        code = "" if fact.exit_code is None else f" with exit code {fact.exit_code}"
        lost = how[0] if len(fact.workers) == 1 else how[1]
        yield JobMessage(fact.job_id, "WorkerLost", f"{_which(fact.workers)} {lost}{code}")

    def _ended(self, job_id: str, reason: Reason, message: str) -> JobMessage:
        self._planned.pop(job_id, None)
        self._workers.pop(job_id, None)
        self._replaced.pop(job_id, None)
        return JobMessage(job_id, reason, message)


def _replaced(job_id: str, before: Sequence[str], now: Sequence[str], why: JobReason | None) -> Iterator[JobMessage]:
    if len(before) != len(now):
        yield JobMessage(job_id, "Resized", f"{len(before)} -> {_counted(len(now), 'worker')}{_why(why)}")
        return
    moved: dict[tuple[str, str], list[int]] = {}
    for index, (old, new) in enumerate(zip(before, now, strict=True)):
        if old != new:
            moved.setdefault((old, new), []).append(index)
    moves = [f"{_which(indices)} from {old} to {new}" for (old, new), indices in moved.items()]
    if moves:
        unnamed = sum(map(len, list(moved.values())[_MOST_MOVES:]))
        more = f" and {unnamed} more" if unnamed else ""
        yield JobMessage(job_id, "Migrated", f"moves {', '.join(moves[:_MOST_MOVES])}{more}{_why(why)}")


def _which(indices: Sequence[int]) -> str:
    """Return which workers, by index: `worker 3`, `workers 0, 2`."""
    named = ", ".join(map(str, indices[:_MOST_MOVES])) + (", ..." if len(indices) > _MOST_MOVES else "")
    return f"worker {named}" if len(indices) == 1 else f"workers {named}"


def _size(record: JobRecord) -> str:
    spec: JobSpec = record.spec
    size = f"{spec.min_replicas} to {spec.max_replicas}" if spec.is_elastic else f"{spec.max_replicas}"
    gpus = _counted(spec.gpus_per_replica, "GPU")
    user = f", for user {spec.user}" if spec.user else ""
    return f"{size} workers of {gpus}{user}" if size != "1" else f"1 worker of {gpus}{user}"


def _per_node(nodes: Iterable[str]) -> str:
    named = [f"{node} x{count}" if count > 1 else node for node, count in Counter(nodes).items()]
    more = f" and {len(named) - _MOST_MOVES} more nodes" if len(named) > _MOST_MOVES else ""
    return ", ".join(named[:_MOST_MOVES]) + more


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _because(why: str) -> str:
    return f": {why}" if why else ""


def _why(reason: JobReason | None) -> str:
    return _because(unsized_text(reason))
