"""When a decision is due because a job has not left cells in time that a guarantee needs, or has left them late."""

import math
from typing import Final

from voda.planner.eligibility import next_deadline_at, overdue_workers
from voda.projections.live import LiveCluster

RECLAIM_OVERDUE: Final = "reclaim is overdue"
"""Cause of a plan that is due because a job has not left cells within `reclaim_grace_s`, or has left them late."""


class ReclaimWatch:
    """Looks at the workers of one pool that are to leave, when something may have become of them."""

    def __init__(self, pool: str) -> None:
        self.look_at = -math.inf
        """When to look next; until then nothing becomes overdue."""
        self._pool = pool
        self._late: frozenset[str] = frozenset()
        """Jobs that were late at the last look."""

    def cause(self, cluster: LiveCluster, now: float) -> str | None:
        """Return the cause of a decision that is due because other jobs are late than at the last look, else None."""
        if now < self.look_at:
            return None
        before, self._late, self.look_at = self._late, frozenset(), math.inf
        if cluster.cells(self._pool) is not None:
            state = cluster.state(self._pool)
            self._late, self.look_at = frozenset(overdue_workers(state, now)), next_deadline_at(state, now)
        return RECLAIM_OVERDUE if self._late != before else None
