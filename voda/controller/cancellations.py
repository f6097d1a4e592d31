"""The jobs of a pool that end without a plan: canceled ones without workers, those that wait in vain, lost runs.

Rule: pure. The event of a job's end has an id of its own: if an answer is lost, or another leader is as fast, the same
one comes again, and the log takes it once.
"""

import math
from collections.abc import Sequence
from typing import Final

from voda.domain.reasons.holds import LostRun
from voda.events import types as facts
from voda.events.envelope import Event
from voda.projections.cluster.live_cluster import LiveCluster

TOLD_S: Final = 10.0
"""So long a cluster has to say how a job ended whose workers are gone."""


class Cancellations:
    """Looks at the canceled jobs alone: most pools have none at most moments."""

    def __init__(self, pool: str) -> None:
        self._pool = pool
        self._job_ids: set[str] = set()

    def begin(self, cluster: LiveCluster) -> None:
        """Find the canceled jobs anew."""
        self._job_ids = {job_id for job_id, job in cluster.jobs(self._pool).items() if job.is_canceling}

    def see(self, event: Event) -> None:
        """Note an event of the pool."""
        if isinstance(event.data, facts.JobCancelRequested):
            self._job_ids.add(event.data.job_id)

    def ends(self, cluster: LiveCluster) -> Sequence[tuple[facts.AnyFact, str]]:
        """Return, with the ids of their events, the ends of the canceled jobs that have no workers."""
        if not self._job_ids:
            return ()
        idle, jobs = self.idle(cluster), cluster.jobs(self._pool)
        self._job_ids = {job_id for job_id in self._job_ids if job_id in jobs}
        return [(facts.JobCanceled(job_id=job_id), f"canceled-{job_id}") for job_id in idle]

    def requests(self, cluster: LiveCluster) -> Sequence[tuple[facts.AnyFact, str]]:
        """Return, with the ids of their events, the cancellations of jobs whose dependencies can no longer be met."""
        return [
            (facts.JobCancelRequested(job_id=job_id, reason=why), f"unsatisfiable-{job_id}")
            for job_id, why in sorted(cluster.unsatisfiable(self._pool).items())
        ]

    def idle(self, cluster: LiveCluster) -> Sequence[str]:
        """Return the canceled jobs without workers.

        A job in the plan is not among them: its workers may start at this moment, before the log knows.
        """
        if not self._job_ids:
            return ()
        jobs, planned = cluster.jobs(self._pool), cluster.plan(self._pool).placement
        unplanned = (job_id for job_id in sorted(self._job_ids) if job_id in jobs and job_id not in planned)
        return [job_id for job_id in unplanned if not jobs[job_id].workers]


class UnrestartableJobs:
    """Ends jobs that are not restartable and have lost their run, unless their cluster soon says how they ended."""

    def __init__(self, pool: str) -> None:
        self.due_at = math.inf
        """When the next one is to end."""
        self._pool = pool
        self._job_ids: set[str] = set()

    def begin(self, cluster: LiveCluster) -> None:
        """Find the jobs anew."""
        self._job_ids = {job_id for job_id, job in cluster.jobs(self._pool).items() if not job.spec.is_restartable}

    def see(self, event: Event) -> None:
        """Note an event of the pool."""
        if isinstance(event.data, facts.JobSubmitted) and not event.data.spec.is_restartable:
            self._job_ids.add(event.data.spec.job_id)

    def ends(self, cluster: LiveCluster, now: float) -> Sequence[tuple[facts.AnyFact, str]]:
        """Return, with the ids of their events, the ends that are due; a job in the plan is not among them."""
        self.due_at = math.inf
        if not self._job_ids:
            return ()
        jobs, planned = cluster.jobs(self._pool), cluster.plan(self._pool).placement
        self._job_ids = {job_id for job_id in self._job_ids if job_id in jobs}
        lost = {job_id: jobs[job_id] for job_id in sorted(self._job_ids - planned.keys()) if jobs[job_id].has_lost_run}
        due: list[tuple[facts.AnyFact, str]] = []
        for job_id, job in lost.items():
            if job.workers or job.is_canceling:
                continue
            if (ends_at := (job.last_halted_at or 0.0) + TOLD_S) > now:
                self.due_at = min(self.due_at, ends_at)
            else:
                failed = facts.JobFailed(job_id=job_id, reason=LostRun(cause=job.interruption))
                due.append((failed, f"lost-run-{job_id}"))
        return due
