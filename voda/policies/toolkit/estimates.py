"""What a policy may assume of a job: T(n) for every n it can have, and W.

Rule: a lookup never fails; where the estimate is missing or too short, the job is taken to scale linearly.
"""

import math
from collections.abc import Sequence
from functools import lru_cache

from voda.domain.job import Job
from voda.domain.state import ClusterState, linear_speedup

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


def _extended(known: Sequence[float], most: int) -> Sequence[float]:
    """Every replica beyond the last known size is worth what the known ones are worth on average."""
    last = len(known) - 1
    return [*known, *(known[last] * n / last for n in range(last + 1, most + 1))]
