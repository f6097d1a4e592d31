"""One pool at work: records what the cluster shows, decides, and makes it so, for as long as it runs.

Rules: level, not edge: whatever wakes the loop, it acts on what the log and the cluster show by then. An error holds
the pool up and shows; only what makes further decisions wrong (a later leader, a damaged log) ends the loop.
"""

import asyncio
import logging
import math
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from voda.clock import Clock
from voda.cluster.port import Cluster, Notice
from voda.controller.controller import Controller
from voda.domain.errors import (
    ClusterUnavailable,
    Fenced,
    InvalidInput,
    LogDamaged,
    LogTooNew,
    NotALog,
    TransientError,
    VodaError,
)
from voda.domain.state import ClusterState
from voda.events.envelope import Event, Fact
from voda.events.types import JobCancelRequested
from voda.metrics import DRIFT_HEALED, LAST_DRIFT, NO_TELEMETRY, Telemetry
from voda.projections.live import Live
from voda.reconcilers.resync import missing_facts
from voda.reconcilers.watcher import Watcher
from voda.reconcilers.workers import WorkerReconciler

_log = logging.getLogger(__name__)

RELIST_S: Final = 30.0
_LOOK_AGAIN_S: Final = 2.0
"""After a look that found something to be doubted."""
_FOLLOW_S: Final = 0.2
_RETRY_S: Final = 1.0
_RETRY_UNFORESEEN_S: Final = 10.0
_LONGEST_ASKED_S: Final = 60.0
"""However long a cluster asks to be left alone."""


class PoolLoop:
    """Controller, reconciler and watcher of one pool, driven by the log and the cluster."""

    def __init__(  # noqa: PLR0913 - its ports
        self,
        *,
        clock: Clock,
        cluster: Cluster,
        controller: Controller,
        reconciler: WorkerReconciler,
        watcher: Watcher,
        telemetry: Telemetry = NO_TELEMETRY,
    ) -> None:
        self.is_leading = False
        self.trouble = ""
        """Why the pool stands still, one sentence; empty while it does not."""
        self.pool = controller.pool
        self._clock = clock
        self._cluster = cluster
        self._controller = controller
        self._reconciler = reconciler
        self._watcher = watcher
        self._telemetry = telemetry
        self._wake = asyncio.Event()
        self._notices: deque[Notice] = deque()
        self._unwritten: Fact | None = None
        """The first of them, once it was tried to record it."""
        self._is_stale = True
        """Whether the cluster may differ from the plan."""
        self._suspects: tuple[Notice, ...] = ()
        """Facts that the last relist found missing."""
        self._relist_at = math.inf

    @property
    def live(self) -> Live:
        """The log's state as the controller has read it."""
        return self._controller.live

    def see(self, event: Event) -> None:
        """Take note of an event that was appended by anybody."""
        self._is_stale = self._is_stale or event.data.MAKES_CLUSTER_STALE
        self._wake.set()

    async def follow(self) -> None:
        """Stand by until cancelled: keep level with the log, so that `run` may begin at once; never beside it.

        Raises:
            LogDamaged, LogTooNew, NotALog: the log cannot be read.
        """
        while True:
            self._wake.clear()
            await self._again(self._catch_up)
            await self._wake.wait()
            # What comes within a moment is read together.
            await asyncio.sleep(_FOLLOW_S)

    async def run(self, leader: str, epoch: int | None = None) -> None:
        """Lead the pool until cancelled; may be called again after that.

        Args:
            leader: who leads.
            epoch: to lead in; None = the next one.

        Raises:
            Fenced: another leader took over.
            LogDamaged, LogTooNew, NotALog: the log cannot be read.
        """
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._listen())
                await self._again(lambda: self._begin(leader, epoch))
                while True:
                    self._wake.clear()
                    await self._sleep_until(await self._again(self._step))
        finally:
            self.is_leading, self.trouble = False, ""
            self._count_healed(0)

    async def _listen(self) -> None:
        """Take the cluster's notices as they come."""
        while True:
            try:
                async for notice in self._cluster.watch():
                    self._notices.append(notice)
                    self._wake.set()
            except TransientError as error:
                _log.warning("watch broke pool=%s reason=%s", self.pool, error)
            await asyncio.sleep(_RETRY_S)

    async def _catch_up(self) -> float:
        await self._controller.warm()
        return math.inf

    async def _begin(self, leader: str, wanted: int | None) -> float:
        """Take the lead, and bring the log level with what the cluster shows before anything is decided."""
        epoch = await self._controller.lead(leader, wanted)
        observed = await self._cluster.observe()
        # What was told before this look is in it already.
        self._notices.clear()
        self._unwritten = None
        found = missing_facts(await self._state(), observed)
        # The log may know of objects that the cluster's view has not caught up with: only a second look cancels.
        suspects = tuple(fact for fact in found if isinstance(fact, JobCancelRequested))
        facts = [fact for fact in found if fact not in suspects]
        await self._watcher.record(facts)
        self.is_leading = True
        # Of what a former leadership in this process knew, nothing is known to hold.
        self._is_stale, self._suspects = True, suspects
        self._relist_at = self._next_look()
        _log.info("leads pool=%s epoch=%d overlooked=%d", self.pool, epoch, len(facts))
        return self._clock.now()

    async def _step(self) -> float:
        """Record, decide and carry out what is due, and return when to look again if nothing happens."""
        await self._record()
        next_at = await self._controller.step()
        if self._clock.now() >= self._relist_at:
            await self._relist()
        if self._is_stale or not self._reconciler.is_settled:
            self._is_stale = False
            # Once only: what an action comes to is told by the cluster, which wakes the loop again.
            await self._reconciler.step(self._state)
        resume_at = self._reconciler.resume_at()
        return min(next_at, self._relist_at, math.inf if resume_at is None else resume_at)

    async def _record(self) -> None:
        """Write down what the cluster told; what could not be written is told again."""
        while self._notices:
            # The same fact again, if the answer was lost: the log takes it once.
            if self._unwritten is None:
                self._unwritten = self._watcher.fact(self._notices[0])
            try:
                await self._watcher.append(self._unwritten)
            except InvalidInput as error:
                # No later attempt would be taken either; the relist finds what of it still holds.
                _log.error("not recorded pool=%s fact=%s reason=%s", self.pool, self._notices[0].TYPE, error)
            self._unwritten = None
            self._notices.popleft()
            self._is_stale = True

    async def _relist(self) -> None:
        """Heal what notices missed: a fact that two looks in a row find missing is recorded."""
        observed = await self._cluster.observe()
        await self._record()
        found = missing_facts(await self._state(), observed)
        missing = [fact for fact in found if fact in self._suspects]
        if missing:
            kinds = Counter(fact.TYPE for fact in missing)
            _log.warning("healed pool=%s facts=%s", self.pool, ",".join(f"{kind}:{n}" for kind, n in kinds.items()))
            await self._watcher.record(missing)
        self._count_healed(len(missing))
        self._suspects = tuple(fact for fact in found if fact not in missing)
        self._is_stale = True
        self._relist_at = self._next_look()

    def _next_look(self) -> float:
        return self._clock.now() + (_LOOK_AGAIN_S if self._suspects else RELIST_S)

    def _count_healed(self, facts: int) -> None:
        self._telemetry.count(DRIFT_HEALED, self.pool, by=facts)
        self._telemetry.set(LAST_DRIFT, facts, self.pool)

    async def _state(self) -> ClusterState:
        await self._controller.catch_up()
        return self._controller.live.cluster.state(self.pool)

    async def _again(self, act: Callable[[], Awaitable[float]]) -> float:
        """Try until it succeeds: a full disk is freed, a policy is changed, a job that nobody can place is deleted."""
        while True:
            try:
                result = await act()
            except (Fenced, LogDamaged, LogTooNew, NotALog):
                raise
            except Exception as error:  # whatever it is, the API must go on: it is the way out
                # What was begun is not known to be done.
                self._is_stale = True
                await asyncio.sleep(self._stand_still(error))
            else:
                self.trouble = ""
                return result

    def _stand_still(self, error: Exception) -> float:
        """Say why the pool stands still, and return for how long, seconds."""
        before, is_foreseen = self.trouble, isinstance(error, VodaError)
        what = str(error) if is_foreseen else f"{error!r} was not foreseen; the server's log shows where"
        self.trouble = f"pool {self.pool}: {what}"
        if self.trouble != before:
            _log.warning("stands still pool=%s reason=%s", self.pool, what, exc_info=None if is_foreseen else error)
        asked_s = error.retry_after_s if isinstance(error, ClusterUnavailable) else 0.0
        return max(_RETRY_S, min(asked_s, _LONGEST_ASKED_S)) if is_foreseen else _RETRY_UNFORESEEN_S

    async def _sleep_until(self, instant: float) -> None:
        span_s = instant - self._clock.now()
        if span_s <= 0:
            # Others must get their turn even where a step is always due.
            await asyncio.sleep(0)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(span_s if span_s < math.inf else None):
                await self._wake.wait()
