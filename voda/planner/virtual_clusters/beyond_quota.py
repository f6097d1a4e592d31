"""What jobs may have beyond the workers within their quota, kept from one decision to the next.

Most jobs and estimates are the same objects in the next decision. Rule: what is kept follows from these objects and
nothing else: a decision is the same with it and without it.
"""

from collections.abc import Set
from dataclasses import dataclass, field

from msgspec.structs import replace

from voda.domain.job import Job
from voda.domain.state import Estimate

_KeptJob = tuple[Job, int, int | None, int, Job | None]
_KeptEstimate = tuple[Estimate, int, Estimate]


@dataclass
class KeptBeyondQuota:
    """What the jobs of a pool may have beyond their quota. Threads may share it."""

    _jobs: dict[str, _KeptJob] = field(default_factory=dict)
    _estimates: dict[str, _KeptEstimate] = field(default_factory=dict)

    def job(self, job: Job, served: int, cap: int | None, priority: int) -> Job | None:
        """Return a job as what it may have beyond the workers within its quota; None where that is nothing.

        Args:
            served: its workers within the quota.
            cap: workers that it found cells for; None = it was not short.
            priority: the one that it has there.
        """
        job_id = job.spec.job_id
        last = self._jobs.get(job_id)
        if last is not None and last[0] is job and last[1] == served and last[2] == cap and last[3] == priority:
            return last[4]
        rest = _job_beyond(job, served, cap, priority)
        self._jobs[job_id] = job, served, cap, priority, rest
        return rest

    def estimate(self, job_id: str, estimate: Estimate, served: int) -> Estimate:
        """Return a job's estimate by what workers beyond those within its quota add."""
        last = self._estimates.get(job_id)
        if last is not None and last[0] is estimate and last[1] == served:
            return last[2]
        more = _estimate_beyond(estimate, served)
        self._estimates[job_id] = estimate, served, more
        return more

    def forget_others(self, job_ids: Set[str]) -> None:
        """Keep what is known of these jobs, and not of many more."""
        for job_id in set(self._jobs) - job_ids if len(self._jobs) > len(job_ids) else ():
            self._jobs.pop(job_id, None)
            self._estimates.pop(job_id, None)


def _job_beyond(job: Job, served: int, cap: int | None, priority: int) -> Job | None:
    spec = job.spec
    most = spec.max_replicas if cap is None else min(cap, spec.max_replicas)
    least = 1 if served else spec.min_replicas
    if most - served < least:
        return None
    if not served and most == spec.max_replicas and spec.priority == priority:
        return job
    requested = min(max(spec.requested - served, least), most - served)
    changed = replace(
        spec, min_replicas=least, max_replicas=most - served, requested_replicas=requested, priority=priority
    )
    return replace(job, spec=changed)


def _estimate_beyond(estimate: Estimate, served: int) -> Estimate:
    known = estimate.speedup
    if len(known) <= served:
        return replace(estimate, speedup=())
    first = known[served]
    return replace(estimate, speedup=tuple([value - first for value in known[served:]]))
