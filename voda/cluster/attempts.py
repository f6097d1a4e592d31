"""Tries what is desired of the jobs of a cluster that does not go on by itself: this machine's, a simulated one.

Rules: an action that failed is left alone, longer after each failure in a row, unless something else is desired of its
job; each failure is a fact for the log, and no other job waits for it. Actions begin in the order given.
"""

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Final

from voda.backoff import Backoff
from voda.clock import stopwatch
from voda.concurrency import for_each
from voda.domain.errors import ClusterUnavailable, VodaError
from voda.domain.plan import Action
from voda.events.types import ActionFailed
from voda.metrics import ACTION_DURATION, ACTIONS, NO_TELEMETRY, Telemetry

_log = logging.getLogger(__name__)

ANSWER_S: Final = 30.0
"""For one action."""
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 300.0


class Attempts:
    """Carries out actions, and remembers which failed.

    Args:
        act: carries an action out, or raises VodaError.
        tell: is told each failure.
        now: returns the seconds since the epoch.
        pool: of the jobs.
        telemetry: gets the outcome of every action: accepted, failed or timed_out.
        at_once: jobs that are tried at a time.
    """

    def __init__(  # noqa: PLR0913 - its ports, and how it behaves
        self,
        act: Callable[[Action], Awaitable[None]],
        tell: Callable[[ActionFailed], object],
        now: Callable[[], float],
        *,
        pool: str = "",
        telemetry: Telemetry = NO_TELEMETRY,
        at_once: int = 1,
    ) -> None:
        self._act = act
        self._tell = tell
        self._now = now
        self._telemetry = telemetry
        self._pool = pool
        self._at_once = at_once
        self._failed: dict[str, Action] = {}
        """Job of which an action failed -> that action."""
        self._backoff = Backoff(first_s=_FIRST_PAUSE_S, longest_s=_LONGEST_PAUSE_S)

    async def make(self, actions: Sequence[Action]) -> float:
        """See Cluster.set_desired."""
        # What nobody has desired for that long is not tried any more.
        self._backoff.forget_before(self._now() - _LONGEST_PAUSE_S)
        self._failed = {job_id: action for job_id, action in self._failed.items() if self._backoff.due_at(job_id)}
        left = {each.job_id for each in actions if self._is_paused(each)}
        todo = [each for each in actions if each.job_id not in left]
        # Of a job there is at most one action: none waits for another.
        await for_each(todo, self._try, at_once=self._at_once)
        return min(
            (self._backoff.due_at(each.job_id) for each in actions if each.job_id in self._failed), default=math.inf
        )

    def _is_paused(self, action: Action) -> bool:
        job_id = action.job_id
        return self._failed.get(job_id) == action and not self._backoff.is_due(job_id, self._now())

    async def _try(self, action: Action) -> None:
        try:
            with measured(action, self._pool, self._telemetry):
                async with answer_within(ANSWER_S):
                    await self._act(action)
        except VodaError as error:
            asked_s = error.retry_after_s if isinstance(error, ClusterUnavailable) else 0.0
            self._pause(action, str(error), asked_s)
        except Exception as error:  # whatever it is, it concerns one job; the others must not wait for it
            _log.exception("unforeseen action=%s job_id=%s", type(action).__name__, action.job_id)
            self._pause(action, f"{error!r} was not foreseen")
        else:
            self._failed.pop(action.job_id, None)
            self._backoff.reset(action.job_id)

    def _pause(self, action: Action, error: str, asked_s: float = 0.0) -> None:
        job_id, at_least_s = action.job_id, min(asked_s, _LONGEST_PAUSE_S)
        attempt = self._backoff.failed(job_id, self._now(), at_least_s=at_least_s)
        self._failed[job_id] = action
        self._tell(
            ActionFailed(
                job_id=job_id,
                action=type(action).__name__,
                error=error,
                attempt=attempt,
                retry_at=self._backoff.due_at(job_id),
            )
        )


class NoAnswer(ClusterUnavailable):
    """The cluster took too long."""


@asynccontextmanager
async def answer_within(limit_s: float | None) -> AsyncIterator[None]:
    """Bound the time of the block; a TimeoutError of its own passes.

    Raises:
        NoAnswer: it took longer.
    """
    limit = asyncio.timeout(limit_s)
    try:
        async with limit:
            yield
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise NoAnswer(f"no answer within {limit_s:g} s") from error


@contextmanager
def measured(action: Action, pool: str, telemetry: Telemetry) -> Iterator[None]:
    """Count an action that is carried out in the block, by its outcome, and how long that takes."""
    laps: list[float] = []
    outcome = "failed"
    try:
        with stopwatch(laps):
            yield
        outcome = "accepted"
    except NoAnswer:
        outcome = "timed_out"
        raise
    finally:
        labels = pool, type(action).__name__
        telemetry.count(ACTIONS, *labels, outcome)
        telemetry.observe(ACTION_DURATION, laps[0], *labels)
