"""What a policy may assume of a job: T(n) for every n it can have, and W.

Rule: a lookup never fails; where the estimate is missing or too short, the job is taken to scale linearly.
"""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

from voda.domain.job import Job
from voda.domain.state import ClusterState, linear_speedup

_NEW_S: Final = 60.0
"""Seconds of service that a job without any counts as."""
_linear = lru_cache(maxsize=1024)(linear_speedup)


def speedup(view: ClusterState, job: Job) -> Sequence[float]:
    """Return T(n), the speedup on n replicas relative to one; shape at least (max_replicas + 1,), T(0) = 0."""
    most = job.spec.max_replicas
    estimate = view.estimates.get(job.spec.job_id)
    if estimate is None or len(estimate.speedup) < 2:
        return _linear(most)
    known = estimate.speedup
    return known if len(known) > most else _extended(known, most)


def remaining_s(view: ClusterState, job: Job) -> float:
    """Return W, the seconds left on one replica; infinite when unknown."""
    estimate = view.estimates.get(job.spec.job_id)
    return math.inf if estimate is None else estimate.remaining_s


def expected_remaining_s(view: ClusterState, now: float) -> Mapping[str, float]:
    """Return W of every job of the view, finite also where it is unknown.

    A job of unknown work is expected to need what the longest-served live job of its kind will need, and that one as
    much again as it has had, in powers of two, so that nobody takes turns.
    """
    most: dict[tuple[str, str], float] = {}
    for job in view.jobs.values():
        kind = kind_of(view, job)
        most[kind] = max(most.get(kind, _NEW_S), _served_s(job, now))
    expected: dict[str, float] = {}
    for job_id, job in view.jobs.items():
        left_s = remaining_s(view, job)
        expected[job_id] = left_s if left_s < math.inf else _by_age(job, most[kind_of(view, job)], now)
    return expected


def kind_of(view: ClusterState, job: Job) -> tuple[str, str]:
    """Return (user, category) of the jobs that tell how long one of unknown work takes.

    Anybody may use a category's name: others' jobs count where the settings say that users trust each other.
    """
    return "" if view.settings.share_measurements else job.spec.user, job.spec.history_category


def _by_age(job: Job, served: float, now: float) -> float:
    return served - _served_s(job, now) + 2.0 ** math.floor(math.log2(served))


def _served_s(job: Job, now: float) -> float:
    """Return the seconds that its replicas have had, together."""
    return max(0.0, job.service_by(now)) / max(1, job.spec.gpus_per_replica)


def _extended(known: Sequence[float], most: int) -> Sequence[float]:
    """Every replica beyond the last known size is worth what the known ones are worth on average."""
    last = len(known) - 1
    return [*known, *(known[last] * n / last for n in range(last + 1, most + 1))]
