"""The worker reconciler: makes the plan so, job by job.

Rules: level, not edge (it acts on the difference it sees now); a job whose action failed is left alone for a
while, longer each time, and the failure is an event; the other jobs do not wait for it.
"""

import asyncio
from typing import Final

from voda.clock import Clock
from voda.cluster.port import Cluster, Observed
from voda.domain.errors import ClusterUnavailable, VodaError
from voda.domain.plan import Action
from voda.domain.state import ClusterState
from voda.events.types import ActionFailed
from voda.reconcilers.diff import diff
from voda.reconcilers.watcher import Watcher

_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 300.0


class WorkerReconciler:
    """Applies the difference between plan and cluster."""

    def __init__(self, *, cluster: Cluster, watcher: Watcher, clock: Clock, timeout_s: float = 30.0) -> None:
        self._cluster = cluster
        self._watcher = watcher
        self._clock = clock
        self._timeout_s = timeout_s
        self.is_settled = False
        """Whether the last step found everything as planned, nothing waiting for GPUs to become free."""
        self._attempts: dict[str, int] = {}
        self._paused_until: dict[str, float] = {}

    async def step(self, state: ClusterState) -> int:
        """Apply what can be done now, and return the number of actions the cluster accepted.

        Raises:
            ClusterUnavailable: the cluster could not be observed; nothing was done.
        """
        observed = await self._observe()
        accepted = 0
        actions = diff(state, observed)
        planned = sum(map(len, state.plan.placement.values()))
        self.is_settled = not actions and planned == sum(map(len, observed.workers.values()))
        for action in actions:
            if self._clock.now() >= self._paused_until.get(action.job_id, 0.0):
                accepted += await self._try(action)
        return accepted

    def resume_at(self) -> float | None:
        """Return the instant at which the first paused job is tried again; None when none is paused."""
        now = self._clock.now()
        return min((until for until in self._paused_until.values() if until > now), default=None)

    async def _observe(self) -> Observed:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._cluster.observe()
        except TimeoutError as error:
            raise ClusterUnavailable(f"the cluster did not answer within {self._timeout_s:g} s") from error

    async def _try(self, action: Action) -> bool:
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._cluster.apply(action)
        except (VodaError, TimeoutError) as error:
            await self._pause(action, error)
            return False
        self._attempts.pop(action.job_id, None)
        self._paused_until.pop(action.job_id, None)
        return True

    async def _pause(self, action: Action, error: Exception) -> None:
        attempt = self._attempts[action.job_id] = self._attempts.get(action.job_id, 0) + 1
        pause_s = min(_FIRST_PAUSE_S * 2 ** min(attempt - 1, 16), _LONGEST_PAUSE_S)
        self._paused_until[action.job_id] = self._clock.now() + pause_s
        failed = ActionFailed(
            job_id=action.job_id,
            action=type(action).__name__,
            error=str(error) or f"no answer within {self._timeout_s:g} s",
            attempt=attempt,
        )
        await self._watcher.record([failed])
