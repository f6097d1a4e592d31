"""Tiresias' two queues: when a job falls to the lower one, and when it rises again.

Rule: a job's level is in the view; these functions only say which levels are out of date, and when the next will
be. Gu et al., NSDI 2019: discretised two-dimensional LAS, and promotion against starvation.
"""

import math
from collections.abc import Mapping
from typing import Annotated, ClassVar, Final

from msgspec import Meta, Struct

from voda.domain.job import Job
from voda.domain.reasons.outcomes import Demoted, Promoted, QueueReason
from voda.domain.state import ClusterState
from voda.policies.toolkit.parameters import parameters

HIGH: Final = 0
LOW: Final = 1
_TICK_S: Final = 1e-6
"""Clocks move in whole microseconds."""


class QueueThresholds(Struct, frozen=True, kw_only=True):
    """When jobs change their queue."""

    demote_gpu_s: Annotated[
        float,
        Meta(ge=0, le=1e9, description="GPU-seconds since its last start after which a job falls to the lower queue."),
    ] = 3600.0
    promote_knob: Annotated[
        float,
        Meta(ge=0, le=1e6, description="A job without workers rises again after waiting this many times its last run."),
    ] = 8.0


class TwoQueues:
    """What moves the jobs of a policy that has these thresholds among its parameters."""

    name: ClassVar[str]
    parameters: ClassVar[type[QueueThresholds]] = QueueThresholds

    def requeue(self, view: ClusterState, now: float) -> Mapping[str, tuple[int, QueueReason]]:
        thresholds = parameters(view, self.name, self.parameters)
        return {
            job_id: _move(job, thresholds, now)
            for job_id, job in sorted(view.jobs.items())
            if not job.is_canceling and _is_due(job, thresholds, now)
        }

    def requeue_due_at(self, view: ClusterState, now: float) -> float:
        thresholds = parameters(view, self.name, self.parameters)
        jobs = [job for job in view.jobs.values() if not job.is_canceling]
        first_due = min([_due_at(job, thresholds) for job in jobs], default=math.inf)
        if first_due == math.inf:
            return math.inf
        instant = max(_tick_after(now, _TICK_S), _tick_after(first_due, 0.0))
        # The sum above and the predicate round differently, so the predicate has the last word.
        step_s = _TICK_S
        while instant < math.inf and not any(_is_due(job, thresholds, instant) for job in jobs):
            instant = _tick_after(instant, step_s)
            step_s *= 2
        return instant


def _is_due(job: Job, thresholds: QueueThresholds, now: float) -> bool:
    if job.workers:
        return job.queue_level == HIGH and job.service_since_start_by(now) > thresholds.demote_gpu_s
    if job.queue_level == HIGH or job.last_halted_at is None:
        return False
    return now - job.last_halted_at >= thresholds.promote_knob * job.last_run_s


def _due_at(job: Job, thresholds: QueueThresholds) -> float:
    """Return about when the job is due, to within rounding; long ago when it has been for long."""
    if job.workers:
        missing_gpu_s = thresholds.demote_gpu_s - job.served_since_start_gpu_s
        # A part of a GPU is no whole one: its service does not count.
        return job.counted_at + missing_gpu_s / job.gpus if job.gpus and job.queue_level == HIGH else math.inf
    if job.queue_level == HIGH or job.last_halted_at is None:
        return math.inf
    return job.last_halted_at + thresholds.promote_knob * job.last_run_s


def _move(job: Job, thresholds: QueueThresholds, now: float) -> tuple[int, QueueReason]:
    if job.workers:
        served = job.service_since_start_by(now)
        return LOW, Demoted(served_gpu_s=round(served), limit_gpu_s=round(thresholds.demote_gpu_s))
    waited_s = now - (job.last_halted_at or 0.0)
    times, last_run_s = thresholds.promote_knob, round(job.last_run_s)
    return HIGH, Promoted(waited_s=round(waited_s), times=times, last_run_s=last_run_s)


def _tick_after(instant: float, step_s: float) -> float:
    """Return a whole microsecond >= instant + step_s, and > instant where step_s > 0."""
    tick = round(instant + step_s, 6)
    if tick < instant + step_s or (step_s > 0 and tick <= instant):
        tick = max(round(tick + _TICK_S, 6), math.nextafter(tick, math.inf))
    return tick
