"""The figures of one run, which the tables compare and `--json` prints; the caller measures the computing time.

Finish-time fairness (how much later a job ended than alone on its fair share of the cluster) is after Mahajan et al.,
"Themis: Fair and Efficient GPU Cluster Scheduling", NSDI 2020, as it is commonly cited (the paper itself was not looked
up): rho = T_shared / T_ideal, where T_ideal is the time on a 1/N share of the cluster, N the average contention during
the job's life. Public plotting code of this field counts a job as unfair above 1.1.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final

import numpy as np
from msgspec import Struct

from voda.projections.history import FinishedJob, History
from voda.projections.timeline import Floats, Steps, Timeline, integral_until
from voda.simulator.workload import Workload

IdealTime = Callable[[str, float], float]
"""(job id, GPUs, not always whole) -> seconds from start to end, alone, at the profile's true speed.

The number of GPUs lies between those of the job's minimum and of its maximum.
"""

UNFAIR_ABOVE: Final = 1.1
"""A job with a larger rho counts as unfair; below are the effects of starts and rounding."""


def fair_shares(jobs: Sequence[FinishedJob], steps: Steps) -> Floats:
    """Return the GPUs due to each job: mean capacity / mean number of live jobs, both over the job's life.

    Waiting jobs count as live, so the shares of all live jobs add up to the cluster at any instant. The share of a job
    that ended the instant it was submitted is infinite.
    """
    lives = np.array([[job.submitted_at for job in jobs], [job.finished_at for job in jobs]])
    (capacity_gpu_s,) = np.diff(integral_until(steps.at_s, steps.capacity, lives), axis=0)
    (live_job_s,) = np.diff(integral_until(steps.at_s, steps.queued + steps.running, lives), axis=0)
    shares = np.full(len(jobs), np.inf)
    np.divide(capacity_gpu_s, live_job_s, out=shares, where=live_job_s > 0)
    return shares


def rhos(jobs: Sequence[FinishedJob], steps: Steps, ideal_s: IdealTime) -> Floats:
    """Return the finish-time fairness rho of each job: JCT / time alone on its fair share.

    1 = as on an own slice of the cluster, below 1 = better off by sharing. The job cannot use a share above its
    maximum, so the share is cut there. On a share below its minimum the job runs at its minimum for that part of the
    time, so the time grows in proportion.
    """
    if not jobs:
        return np.zeros(0)
    shares = fair_shares(jobs, steps).tolist()
    return np.array([_rho(job, share, ideal_s) for job, share in zip(jobs, shares, strict=True)])


def _rho(job: FinishedJob, share: float, ideal_s: IdealTime) -> float:
    if job.jct_s <= 0 or share <= 0:
        return 0.0
    least, most = (float(n * job.gpus_per_replica) for n in (job.min_replicas, job.max_replicas))
    on_share_s = ideal_s(job.job_id, min(max(share, least), most)) * max(1.0, least / share)
    return job.jct_s / on_share_s


class IdealTimes:
    """The ideal times of one workload; an `IdealTime`."""

    def __init__(self, workload: Workload) -> None:
        self._arrivals = {arrival.spec.job_id: arrival for arrival in workload.arrivals}
        self._node_gpus = tuple(sorted((node.gpus for node in workload.nodes), reverse=True))
        self._at_size = lru_cache(maxsize=None)(self._seconds)

    def __call__(self, job_id: str, gpus: float) -> float:
        """Return the seconds from start to end on `gpus` GPUs, its start's cost included.

        Between two whole sizes the speed is interpolated: a share of 2.5 replicas is 2 and 3, half the time each.
        """
        replicas = gpus / self._arrivals[job_id].spec.gpus_per_replica
        below = int(replicas)
        if below == replicas:
            return self._at_size(job_id, below)
        share = replicas - below
        slow = 1.0 / self._at_size(job_id, below) if below else 0.0
        return 1.0 / (slow + share * (1.0 / self._at_size(job_id, below + 1) - slow))

    def _seconds(self, job_id: str, replicas: int) -> float:
        arrival = self._arrivals[job_id]
        profile, per_node = arrival.profile, packed(replicas, arrival.spec.gpus_per_replica, self._node_gpus)
        if not per_node:
            return float("inf")
        return profile.costs.start_s + sum(profile.epoch_s(epoch, per_node) for epoch in range(profile.epochs))


def packed(replicas: int, gpus_per_replica: int, node_gpus: Sequence[int]) -> tuple[int, ...]:
    """Return replicas per node on as few nodes as possible, without those that fit nowhere.

    `node_gpus` are the sizes of the empty nodes, largest first.
    """
    per_node: list[int] = []
    for gpus in node_gpus:
        if replicas > 0 and (fitting := min(replicas, gpus // gpus_per_replica)) > 0:
            per_node.append(fitting)
            replicas -= fitting
    return tuple(per_node)


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
