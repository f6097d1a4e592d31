"""What makes a decision due, or something to be recorded, at an instant rather than by an event.

Rules: pure. Each trigger says when it is to be looked at next (`due_at`); events of its pool bring that forward, and
what it found is folded before it says so again. None knows another.
"""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from voda.domain.gpus import total
from voda.domain.state import Surplus
from voda.events import types as facts
from voda.events.envelope import Event
from voda.events.types import AnyFact
from voda.planner.allocation.fair_share import TURNS_IN_A_HALF_LIFE
from voda.planner.eligibility import (
    next_deadline_at,
    next_retry_at,
    overdue_workers,
)
from voda.planner.node_states import grace_ends_at
from voda.planner.registries import Registries
from voda.planner.start_backoff import overdue, overdue_at, retry_at
from voda.policies import Policy, has_queues
from voda.projections.cluster.live_cluster import LiveCluster
from voda.projections.cluster.pool_changes import LivePool
from voda.projections.live import Live

RETRY: Final = "job is tried again"
"""Cause of a plan that is due because a job that was stuck, or whose program failed, is planned as any other again."""
NODE_LOST: Final = "node is silent"
"""Cause of a plan that is due because a node has been silent, or has said too few GPUs, for `node_grace_s`, or a GPU
has been sick for so long.
"""
USERS_TURN: Final = "users take turns"
"""Cause of a plan that is due because users have gone on using GPUs for a while, where they have fair shares."""
SURPLUS_LASTS: Final = "GPUs stay free"
"""Cause of a plan that is due because nobody has started for a while, so that a job may grow by what is free."""
RECLAIM_OVERDUE: Final = "reclaim is overdue"
"""Cause of a plan that is due because a job has not left cells within `reclaim_grace_s`, or has left them late."""


class Due(NamedTuple):
    """What a trigger found."""

    cause: str = ""
    """Why a decision is due; empty: none is."""
    facts: Sequence[AnyFact] = ()
    """To be recorded."""


_LEAST_QUIET_S: Final = 30.0
NOTHING: Final = Due()


class Trigger(Protocol):
    """One reason to look at a pool again."""

    due_at: float
    """When to look; minus infinity: at once; infinite: not without another event."""

    def see(self, event: Event, cluster: LiveCluster, now: float) -> None:
        """Bring the next look forward, after an event that has been folded."""

    def look(self, live: Live, now: float) -> Due:
        """Return what is due now."""

    def arm(self, cluster: LiveCluster, now: float) -> None:
        """Set the next look, once what was found is folded."""


class PolicyQueues:
    """The policy moves jobs between its queues; a move makes a decision due."""

    def __init__(self, pool: str, registries: Registries) -> None:
        self.due_at = -math.inf
        self._pool = pool
        self._registries = registries

    def see(self, event: Event, _cluster: LiveCluster, _now: float) -> None:
        if not isinstance(event.data, facts.JobProgressed):
            self.due_at = -math.inf

    def look(self, live: Live, now: float) -> Due:
        policy = self._policy(live.cluster)
        if not has_queues(policy):
            return NOTHING
        moves = policy.requeue(live.cluster.state(self._pool), now)
        return Due(
            facts=[
                facts.JobQueueLevelChanged(
                    pool=self._pool, job_id=job_id, queue_level=level, reason=reason, based_on=live.position
                )
                for job_id, (level, reason) in sorted(moves.items())
            ]
        )

    def arm(self, cluster: LiveCluster, now: float) -> None:
        policy = self._policy(cluster)
        self.due_at = policy.requeue_due_at(cluster.state(self._pool), now) if has_queues(policy) else math.inf

    def _policy(self, cluster: LiveCluster) -> Policy:
        return self._registries.policy(cluster.settings(self._pool), cluster.plan(self._pool))


class SilentNodes:
    """Workers on a node that has been silent for too long are to move."""

    def __init__(self, pool: str) -> None:
        self.due_at = -math.inf
        self._pool = pool
        self._ends_at = math.inf
        """When the next silent node counts as lost."""

    def see(self, _event: Event, _cluster: LiveCluster, _now: float) -> None:
        self.due_at = -math.inf

    def look(self, _live: Live, now: float) -> Due:
        return Due(NODE_LOST) if now >= self._ends_at else NOTHING

    def arm(self, cluster: LiveCluster, now: float) -> None:
        pool = cluster.pool(self._pool)
        is_any_silent = bool(pool.silent_since) or any(job.sick_gpus for job in pool.jobs.values())
        self.due_at = self._ends_at = grace_ends_at(cluster.state(self._pool), now) if is_any_silent else math.inf


class UnusedGpus:
    """A job that makes no use of its GPUs lets others go first for a while, and is tried again then."""

    _LOOKED_AT_ONCE: Final = (
        facts.JobStalled,
        facts.JobBackedOff,
        facts.PlanAdopted,
        facts.SettingsChanged,
        facts.LeaderElected,
    )
    """After these a job may have made no use of its GPUs for too long already."""

    def __init__(self, pool: str) -> None:
        self.due_at = -math.inf
        self._pool = pool
        self._retry_at = math.inf
        """When the next job is tried again that was stuck, or whose program failed."""

    def see(self, event: Event, cluster: LiveCluster, now: float) -> None:
        fact = event.data
        if isinstance(fact, self._LOOKED_AT_ONCE):
            self.due_at = -math.inf
        elif not isinstance(fact, facts.JobProgressed | facts.JobQueueLevelChanged):
            self.due_at = min(self.due_at, now + cluster.settings(self._pool).start_timeout_s)
        if isinstance(fact, facts.WorkerExited) and fact.retry_at is not None:
            self._retry_at = min(self._retry_at, fact.retry_at)
            self.due_at = min(self.due_at, self._retry_at)

    def look(self, live: Live, now: float) -> Due:
        cause = RETRY if now >= self._retry_at else ""
        return Due(cause, overdue(live.cluster.state(self._pool), now))

    def arm(self, cluster: LiveCluster, now: float) -> None:
        state = cluster.state(self._pool)
        self._retry_at = min(retry_at(state, now), next_retry_at(state, now))
        self.due_at = min(overdue_at(state, now), self._retry_at)


class LateReclaims:
    """A job that keeps cells of others for too long gets none; one that has left them late gets some again."""

    _CHANGES: Final = (
        facts.WorkerStarted,
        facts.WorkerExited,
        facts.PlanAdopted,
        facts.SettingsChanged,
        facts.LeaderElected,
    )
    """After these other workers may be late than before."""

    def __init__(self, pool: str) -> None:
        self.due_at = -math.inf
        self._pool = pool
        self._late: frozenset[str] = frozenset()
        """Jobs that were late at the last look."""

    def see(self, event: Event, _cluster: LiveCluster, _now: float) -> None:
        if isinstance(event.data, self._CHANGES):
            self.due_at = -math.inf

    def look(self, live: Live, now: float) -> Due:
        before, cluster = self._late, live.cluster
        has_some = self._has_deadlines(cluster)
        self._late = frozenset(overdue_workers(cluster.state(self._pool), now)) if has_some else frozenset()
        return Due(RECLAIM_OVERDUE) if self._late != before else NOTHING

    def arm(self, cluster: LiveCluster, now: float) -> None:
        has_some = self._has_deadlines(cluster)
        self.due_at = next_deadline_at(cluster.state(self._pool), now) if has_some else math.inf

    def _has_deadlines(self, cluster: LiveCluster) -> bool:
        return cluster.cells(self._pool) is not None and bool(cluster.pool(self._pool).reclaimed_at)


class FairShares:
    """Where users have fair shares, turns change as time goes by."""

    _CHANGES: Final = (facts.JobSubmitted, facts.WorkerStarted, facts.SettingsChanged, facts.LeaderElected)
    """After these users may begin to take turns."""

    def __init__(self, pool: str) -> None:
        self.due_at = -math.inf
        self._pool = pool
        self._turn_at = math.inf

    def see(self, event: Event, _cluster: LiveCluster, _now: float) -> None:
        if isinstance(event.data, self._CHANGES):
            self.due_at = -math.inf

    def look(self, _live: Live, now: float) -> Due:
        return Due(USERS_TURN) if now >= self._turn_at else NOTHING

    def arm(self, cluster: LiveCluster, now: float) -> None:
        settings, jobs = cluster.settings(self._pool), cluster.jobs(self._pool).values()
        # Where nobody has a GPU, time changes nothing.
        is_on = bool(settings.fair_share) and any(job.workers for job in jobs)
        if not (is_on and len({job.spec.user for job in jobs}) > 1):
            self._turn_at = math.inf
        elif not now < self._turn_at < math.inf:
            self._turn_at = now + settings.fair_share_half_life_s / TURNS_IN_A_HALF_LIFE
        self.due_at = self._turn_at


class LastingSurplus:
    """A job grows by GPUs that are free for longer than such GPUs were of late: another event need not come."""

    _CHANGES: Final = (facts.PlanAdopted, facts.SettingsChanged, facts.LeaderElected)

    def __init__(self, pool: str) -> None:
        self.due_at = -math.inf
        self._pool = pool

    def see(self, event: Event, _cluster: LiveCluster, _now: float) -> None:
        if isinstance(event.data, self._CHANGES):
            self.due_at = -math.inf

    def look(self, _live: Live, now: float) -> Due:
        return Due(SURPLUS_LASTS) if -math.inf < self.due_at <= now else NOTHING

    def arm(self, cluster: LiveCluster, now: float) -> None:
        pool = cluster.pool(self._pool)
        self.due_at = (
            longer_at(pool.surplus.surplus, now) if pool.settings.heeds_resize_cost and _may_grow(pool) else math.inf
        )


def longer_at(surplus: Surplus, now: float) -> float:
    """Return the next instant at which nobody has started for twice as long as at the one before; infinite: none."""
    quiet_s = max(surplus.lasted_s, _LEAST_QUIET_S)
    while surplus.taken_at + quiet_s <= now:
        quiet_s *= 2
    return surplus.taken_at + quiet_s


def _may_grow(pool: LivePool) -> bool:
    """Return whether the plan leaves GPUs free that a job may grow by."""
    jobs, free = pool.jobs, int(total(node.usable_gpus for node in pool.nodes.values()))
    least = free + 1
    for job_id, nodes in pool.plan.placement.items():
        if (job := jobs.get(job_id)) is not None:
            free -= len(nodes) * job.spec.gpus_per_replica
            if len(nodes) < job.spec.max_replicas:
                least = min(least, job.spec.gpus_per_replica)
    return 0 < least <= free
