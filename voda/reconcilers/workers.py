"""The worker reconciler computes what is desired of the jobs from log and cluster, and hands it to the cluster.

Rule: level, not edge: it goes by the present difference. The cluster gets there, and owns all retries.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Final

from voda.cluster.port import Cluster, Observed
from voda.domain.errors import ClusterUnavailable
from voda.domain.state import ClusterState
from voda.reconcilers.diff import diff

_LIMIT_S: Final = 30.0


class WorkerReconciler:
    """Hands a cluster the difference between it and the plan."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.is_settled = False
        """Whether the last step found everything as planned, nothing waiting for GPUs to become free."""
        self.resume_at = math.inf
        """The earliest instant at which a job that the last step left alone is tried again; it may have passed already:
        a job that waits must not wait for another event."""

    async def step(self, current: Callable[[], Awaitable[ClusterState]]) -> None:
        """Hand over what can be done now.

        `current` reads the log to its end and returns the state. It is called once the cluster is observed, so that
        every job seen at work is in it: one that is not would be stopped for good.

        Raises:
            ClusterUnavailable: the cluster could not be observed; nothing was done.
        """
        self.resume_at = math.inf
        observed = await self._observe()
        state = await current()
        actions = diff(state, observed)
        planned = sum(map(len, state.plan.placement.values()))
        self.is_settled = not actions and planned == sum(map(len, observed.workers.values()))
        programs = (at for job_id, at in observed.retries.items() if job_id in state.plan.placement)
        self.resume_at = min([await self._cluster.set_desired(actions), *programs])

    async def _observe(self) -> Observed:
        try:
            async with asyncio.timeout(_LIMIT_S):
                return await self._cluster.observe()
        except TimeoutError as error:
            raise ClusterUnavailable(f"the cluster did not answer within {_LIMIT_S:g} s") from error
