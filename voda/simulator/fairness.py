"""Finish-time fairness: how much later a job ended than it would have, alone on its fair share of the cluster.

After Mahajan et al., "Themis: Fair and Efficient GPU Cluster Scheduling", NSDI 2020, as it is commonly cited (the
paper itself was not looked up): rho = T_shared / T_ideal, where T_ideal is the time on a 1/N share of the cluster, N
the average contention during the job's life. Public plotting code of this field counts a job as unfair above 1.1.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final

import numpy as np

from voda.projections.history import FinishedJob
from voda.projections.timeline import Floats, Steps, integral_until
from voda.simulator.workload import Arrival, Workload

IdealTime = Callable[[str, float], float]
"""(job id, GPUs, not always whole) -> seconds from start to end, alone, at the profile's true speed.

The number of GPUs lies between those of the job's minimum and of its maximum.
"""

UNFAIR_ABOVE: Final = 1.1
"""A job with a larger rho counts as unfair; below are the effects of starts and rounding."""


def fair_shares(jobs: Sequence[FinishedJob], steps: Steps) -> Floats:
    """Return the GPUs due to each job: mean capacity / mean number of live jobs, both over the job's life.

    Waiting jobs count as live, so the shares of all live jobs add up to the cluster at any instant.

    Returns:
        Shape (len(jobs),), GPUs; infinite for a job that ended the instant it was submitted.
    """
    lives = np.array([[job.submitted_at for job in jobs], [job.finished_at for job in jobs]])
    (capacity_gpu_s,) = np.diff(integral_until(steps.at_s, steps.capacity, lives), axis=0)
    (live_job_s,) = np.diff(integral_until(steps.at_s, steps.queued + steps.running, lives), axis=0)
    shares = np.full(len(jobs), np.inf)
    np.divide(capacity_gpu_s, live_job_s, out=shares, where=live_job_s > 0)
    return shares


def rhos(jobs: Sequence[FinishedJob], steps: Steps, ideal_s: IdealTime) -> Floats:
    """Return the finish-time fairness rho of each job: JCT / time alone on its fair share.

    The job cannot use a share above its maximum, so the share is cut there. On a share below its minimum the job runs
    at its minimum for that part of the time, so the time grows in proportion.

    Returns:
        Shape (len(jobs),); 1 = as on an own slice of the cluster, below 1 = better off by sharing.
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
        per_node = packed(replicas, arrival.spec.gpus_per_replica, self._node_gpus)
        return _alone_s(arrival, per_node)


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


def _alone_s(arrival: Arrival, per_node: tuple[int, ...]) -> float:
    profile = arrival.profile
    if not per_node:
        return float("inf")
    return profile.costs.start_s + sum(profile.epoch_s(epoch, per_node) for epoch in range(profile.epochs))
