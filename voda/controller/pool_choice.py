"""Where a job of several pools starts: in the first one whose next plan would give it workers.

1. Each job is decided on in its own pool first. 2. One that waits there is tried in its other pools, in the order in
which it names them, by the decision that each would make if it had been submitted there. 3. The first that would place
it becomes its own. Rule: only the controller of its pool moves a job, and none that a plan has placed.
"""

import math
from typing import Final

from msgspec.structs import replace

from voda.domain.job import Job, Phase
from voda.domain.plan import Placement
from voda.domain.state import ClusterState
from voda.events.envelope import Event
from voda.events.types import JobChanged, JobSubmitted, PlanAdopted, WorkerExited
from voda.planner.registries import Registries
from voda.projections.live import Live

PAUSE_S: Final = 1.0
"""Least time between two looks: each costs a decision for every pool of a job that waits."""
CAUSE: Final = "choice of a pool"


class PoolChoice:
    """Finds jobs of one pool that would start in another."""

    def __init__(self, pool: str, registries: Registries) -> None:
        self.due_at = math.inf
        """When to look next; infinite: nothing has changed since."""
        self._pool = pool
        self._registries = registries
        self._looked_at = -math.inf
        self._may_have_jobs = True
        """Whether there may be jobs of several pools: most pools have none, and then nothing is looked at."""

    def see(self, event: Event, now: float) -> None:
        """Note that something has changed in some pool."""
        fact = event.data
        if isinstance(fact, JobChanged) or (isinstance(fact, JobSubmitted) and fact.spec.pools):
            self._may_have_jobs = True
        if self._may_have_jobs and (fact.MAKES_PLAN_DUE or isinstance(fact, PlanAdopted | WorkerExited)):
            self.due_at = min(self.due_at, max(now, self._looked_at + PAUSE_S))

    def next_move(self, live: Live, now: float) -> JobChanged | None:
        """Return the move of the first job that would start elsewhere; None: there is none, or nothing has changed."""
        if now < self.due_at:
            return None
        self.due_at = math.inf
        placement = live.cluster.plan(self._pool).placement
        jobs = [job for job in live.cluster.jobs(self._pool).values() if job.spec.pools]
        self._may_have_jobs = bool(jobs)
        waiting = [job for job in jobs if _waits(job, placement)]
        if not waiting:
            return None
        self._looked_at = now
        for job in sorted(waiting, key=lambda job: (-job.spec.priority, job.submitted_at, job.spec.job_id)):
            for pool, cluster in job.spec.pools.items():
                guest = replace(job, spec=replace(job.spec, pool=pool, virtual_cluster=cluster))
                if pool != self._pool and self._would_start(live, guest, now):
                    # The other pool decides anew with it: others are tried after that.
                    self.due_at = now + PAUSE_S
                    return JobChanged(job_id=job.spec.job_id, to_pool=pool)
        return None

    def _would_start(self, live: Live, guest: Job, now: float) -> bool:
        state = live.state(guest.spec.pool)
        job_id = guest.spec.job_id
        view = replace(
            state,
            jobs={**state.jobs, job_id: guest},
            estimates={**state.estimates, job_id: live.learning.estimate(guest, state.settings)},
        )
        return job_id in _placement(view, self._registries, now)


def _placement(view: ClusterState, registries: Registries, now: float) -> Placement:
    policy = registries.policy(view.settings, view.plan)
    return registries.decider(view, cause=CAUSE)(view, policy, now).placement


def _waits(job: Job, placement: Placement) -> bool:
    return (
        job.phase is Phase.WAITING
        and job.first_started_at is None
        and job.spec.job_id not in placement
        and not (job.is_canceling or job.is_halted or job.waits_for)
    )
