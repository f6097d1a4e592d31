"""The figures of one run, which the tables compare and `--json` prints.

Rule: pure; the caller measures the time that planning took.
"""

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from voda.projections.history import FinishedJob, History
from voda.projections.timeline import Floats, Steps, Timeline
from voda.simulator.fairness import UNFAIR_ABOVE, IdealTime, rhos

_S_PER_H = 3600.0


class Execution(Struct, frozen=True, kw_only=True):
    """What was run, and how long voda itself needed."""

    workload: str
    policy: str
    placer: str
    decisions_s: Sequence[float]
    """Seconds that each decision took, by the wall clock."""
    wall_s: float


class RunResult(Struct, frozen=True, kw_only=True):
    """Figures of one run; field for field what `--json` prints. All are 0 when no job completed.

    Job figures are over the jobs that completed; GPU-hours and utilisation count every job. Percentiles
    interpolate linearly between the two nearest jobs (numpy's default, Hyndman and Fan's type 7).
    """

    workload: str
    policy: str
    placer: str
    jobs: int
    """Jobs that completed."""
    avg_jct_s: float
    p50_jct_s: float
    p90_jct_s: float
    p99_jct_s: float
    makespan_s: float
    """First submission to the last end of any job."""
    avg_queueing_s: float
    """Without workers, whenever in the job's life."""
    restarts_per_job: float
    migrations_per_job: float
    spanning_jobs: int
    """Jobs whose workers ever sat on more than one node."""
    gpu_hours: float
    """Held by jobs, working or not."""
    utilisation: float
    """GPU time held / GPU time there was, from the first submission to the last end; 0 to 1."""
    unfair_share: float
    """Share of the jobs with a rho above `UNFAIR_ABOVE`; 0 to 1."""
    worst_rho: float
    """Largest finish-time fairness; 1 = as on an own slice of the cluster."""
    decision_p95_s: float
    wall_s: float


def measure(history: History, timeline: Timeline, execution: Execution, ideal_s: IdealTime) -> RunResult:
    """Return the figures of one run; history and timeline are of the same log."""
    jobs = [job for job in history.finished if job.outcome == "completed"]
    steps = timeline.steps()
    begin, end = span_of(history)
    jct_s = np.array([job.jct_s for job in jobs])
    p50, p90, p99 = np.percentile(jct_s, (50, 90, 99)).tolist() if jobs else (0.0, 0.0, 0.0)
    rho = rhos(jobs, steps, ideal_s)
    held_gpu_s = integral(steps, steps.gpus_in_use, begin, end)
    # Workers may outlive their jobs: those GPU-hours count, too.
    spent_gpu_s = integral(steps, steps.gpus_in_use, begin, timeline.ends_at)
    there_gpu_s = integral(steps, steps.capacity, begin, end)
    return RunResult(
        workload=execution.workload,
        policy=execution.policy,
        placer=execution.placer,
        jobs=len(jobs),
        avg_jct_s=_mean(jct_s),
        p50_jct_s=p50,
        p90_jct_s=p90,
        p99_jct_s=p99,
        makespan_s=end - begin,
        avg_queueing_s=_mean([job.queueing_s for job in jobs]),
        restarts_per_job=_mean([job.restarts for job in jobs]),
        migrations_per_job=_mean([job.migrations for job in jobs]),
        spanning_jobs=sum(job.was_spanning for job in jobs),
        gpu_hours=spent_gpu_s / _S_PER_H,
        utilisation=held_gpu_s / there_gpu_s if there_gpu_s > 0 else 0.0,
        unfair_share=_mean((rho > UNFAIR_ABOVE).tolist()),
        worst_rho=float(rho.max(initial=0.0)),
        decision_p95_s=float(np.percentile(execution.decisions_s, 95)) if len(execution.decisions_s) else 0.0,
        wall_s=execution.wall_s,
    )


def span_of(history: History) -> tuple[float, float]:
    """Return the instants of the first submission and of the last end; (0, 0) when no job ended."""
    jobs: Sequence[FinishedJob] = tuple(history.finished)
    if not jobs:
        return 0.0, 0.0
    first = min(*(job.submitted_at for job in jobs), *history.live.values(), float("inf"))
    return first, max(job.finished_at for job in jobs)


def integral(steps: Steps, values: Floats, begin: float, end: float) -> float:
    """Integrate one of the step functions from `begin` to `end`; it is 0 before its first step."""
    until = np.append(steps.at_s[1:], end) if len(steps.at_s) else steps.at_s
    spans_s = np.clip(until, begin, end) - np.clip(steps.at_s, begin, end)
    return float(values @ spans_s)


def _mean(values: Sequence[float] | Floats) -> float:
    return float(np.mean(values)) if len(values) else 0.0
