"""The worker reconciler carries the plan out, job by job.

Rules: level, not edge: it acts on the present difference. A job whose action failed pauses, longer each time, unless
the plan for it changes; the failure is an event, and no other job waits for it. Actions begin in the order of the
difference, one for each job.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from typing import Final

from voda.backoff import Backoff
from voda.clock import Clock, stopwatch
from voda.cluster.port import Cluster, Observed
from voda.concurrency import gather_all
from voda.domain.errors import ClusterUnavailable, Fenced, VodaError
from voda.domain.plan import Action
from voda.domain.state import ClusterState
from voda.events.types import ActionFailed
from voda.metrics import ACTION_DURATION, ACTIONS, NO_TELEMETRY, Telemetry
from voda.reconcilers.diff import diff
from voda.reconcilers.watcher import Watcher

_log = logging.getLogger(__name__)

_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 300.0


class WorkerReconciler:
    """Applies the difference between plan and cluster to `concurrency` jobs at a time.

    Each call takes at most `timeout_s`. Telemetry gets the outcome of every action: accepted, failed or timed_out.
    """

    def __init__(  # noqa: PLR0913 - its ports, and how it behaves
        self,
        *,
        cluster: Cluster,
        watcher: Watcher,
        clock: Clock,
        timeout_s: float = 30.0,
        telemetry: Telemetry = NO_TELEMETRY,
        concurrency: int = 1,
    ) -> None:
        if concurrency < 1:
            raise ValueError(f"concurrency is {concurrency}, expected 1 or more")
        self._cluster = cluster
        self._watcher = watcher
        self._clock = clock
        self._timeout_s = timeout_s
        self._telemetry = telemetry
        self._pool = ""
        self._concurrency = concurrency
        self.is_settled = False
        """Whether the last step found everything as planned, nothing waiting for GPUs to become free."""
        self._failed: dict[str, Action] = {}
        """Job of which an action failed -> that action."""
        self._backoff = Backoff(first_s=_FIRST_PAUSE_S, longest_s=_LONGEST_PAUSE_S)
        self.resume_at = math.inf
        """Of the jobs that the last step left alone, the earliest instant at which one is tried again; it may have
        passed already: a job that paused during the step must not wait for another event."""

    async def step(self, current: Callable[[], Awaitable[ClusterState]]) -> int:
        """Apply what can be done now, and return the number of actions the cluster accepted.

        `current` reads the log to its end and returns the state. It is called once the cluster is observed, so that
        every job seen at work is in it: one that is not would be stopped for good.

        Raises:
            ClusterUnavailable: the cluster could not be observed; nothing was done.
            Fenced: another one leads; what was to be done is its business.
        """
        self.resume_at = math.inf
        observed = await self._observe()
        state = await current()
        self._pool = state.pool
        actions = diff(state, observed)
        retries = (at for job_id, at in observed.retries.items() if job_id in state.plan.placement)
        self.resume_at = min(retries, default=math.inf)
        planned = sum(map(len, state.plan.placement.values()))
        self.is_settled = not actions and planned == sum(map(len, observed.workers.values()))
        for job_id in self._failed.keys() - {action.job_id for action in actions} - state.jobs.keys():
            self._forget(job_id)
        todo, outcomes = iter(actions), list[bool]()

        async def work() -> None:
            for action in todo:
                if not self._is_paused(action):
                    outcomes.append(await self._try(action))

        # Of a job there is at most one action: none waits for another, nor for one that cannot write to the log.
        await gather_all(work() for _ in range(min(self._concurrency, len(actions))))
        return sum(outcomes)

    def _is_paused(self, action: Action) -> bool:
        job_id = action.job_id
        if self._failed.get(job_id) != action or self._backoff.is_due(job_id, self._clock.now()):
            return False
        self.resume_at = min(self.resume_at, self._backoff.due_at(job_id))
        return True

    def _forget(self, job_id: str) -> None:
        self._failed.pop(job_id, None)
        self._backoff.reset(job_id)

    async def _observe(self) -> Observed:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._cluster.observe()
        except TimeoutError as error:
            raise ClusterUnavailable(f"the cluster did not answer within {self._timeout_s:g} s") from error

    async def _try(self, action: Action) -> bool:
        laps: list[float] = []
        outcome = "failed"
        try:
            with stopwatch(laps):
                async with asyncio.timeout(self._timeout_s):
                    await self._cluster.apply(action)
            outcome = "accepted"
        except Fenced:
            raise
        except (VodaError, TimeoutError) as error:
            if isinstance(error, TimeoutError):
                outcome = "timed_out"
            await self._pause(action, error)
            return False
        except Exception as error:  # whatever it is, it concerns one job; the others must not wait for it
            _log.exception("unforeseen action=%s job_id=%s", type(action).__name__, action.job_id)
            await self._pause(action, RuntimeError(f"{error!r} was not foreseen"))
            return False
        finally:
            labels = self._pool, type(action).__name__
            self._telemetry.count(ACTIONS, *labels, outcome)
            self._telemetry.observe(ACTION_DURATION, laps[0], *labels)
        self._forget(action.job_id)
        return True

    async def _pause(self, action: Action, error: Exception) -> None:
        job_id = action.job_id
        asked_s = min(error.retry_after_s, _LONGEST_PAUSE_S) if isinstance(error, ClusterUnavailable) else 0.0
        attempt = self._backoff.failed(job_id, self._clock.now(), at_least_s=asked_s)
        self._failed[job_id] = action
        self.resume_at = min(self.resume_at, self._backoff.due_at(job_id))
        failed = ActionFailed(
            job_id=job_id,
            action=type(action).__name__,
            error=str(error) or f"no answer within {self._timeout_s:g} s",
            attempt=attempt,
        )
        await self._watcher.record([failed])
