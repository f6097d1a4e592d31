"""The control loop of one pool: it records what the cluster shows, decides, and carries the plan out.

Rules: level, not edge: whatever wakes the loop, it acts on the present state of log and cluster. An error pauses the
pool and shows in its status; only what makes further decisions wrong (a later leader, a damaged log) ends the loop.
"""

import asyncio
import logging
import math
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice, takewhile
from typing import Final

from msgspec.structs import replace

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
from voda.planner.eligibility import overdue_workers
from voda.projections.live import Live
from voda.reconcilers.resync import Sighting, sightings
from voda.reconcilers.watcher import Watcher
from voda.reconcilers.workers import WorkerReconciler
from voda.work_queue import WorkQueue

_log = logging.getLogger(__name__)

RESYNC_S: Final = 30.0
_CONFIRM_S: Final = 2.0
"""Between two resyncs while a missing fact is unconfirmed."""
_FOLLOW_S: Final = 0.2
_RETRY_S: Final = 1.0
_RETRY_UNEXPECTED_S: Final = 10.0
_LONGEST_REST_S: Final = 0.05
_LONGEST_RETRY_S: Final = 60.0
"""Even where the cluster asks for more."""
_MOST_AT_ONCE: Final = 500
"""Notices that are one append."""


class PoolLoop:
    """Controller, reconciler and watcher of one pool, driven by the log and the cluster."""

    def __init__(
        self,
        *,
        clock: Clock,
        cluster: Cluster,
        controller: Controller,
        watcher: Watcher,
        telemetry: Telemetry = NO_TELEMETRY,
    ) -> None:
        self.is_leading = False
        self.failure = ""
        """Why the pool is paused, one sentence; empty while it works."""
        self.pool = controller.pool
        self._clock = clock
        self._cluster = cluster
        self._controller = controller
        self._reconciler = WorkerReconciler(cluster)
        self._watcher = watcher
        self._telemetry = telemetry
        self._queue = WorkQueue[str](clock)
        """The pool's name, while a step is due."""
        self._notices: deque[Notice] = deque()
        self._unwritten: Sequence[Fact] = ()
        """The facts of the first notices, once an attempt to record them was made."""
        self._is_stale = True
        """Whether the cluster may differ from the plan."""
        self._unconfirmed: Sequence[Sighting] = ()
        """Facts that the last resync found missing for the first time."""
        self._resync_at = math.inf

    @property
    def live(self) -> Live:
        """The state of the log, as far as the controller has read it."""
        return self._controller.live

    def see(self, event: Event) -> None:
        """Wake the loop after an event, whoever appended it."""
        self._is_stale = self._is_stale or event.data.MAKES_CLUSTER_STALE
        self._queue.add(self.pool)

    async def follow(self) -> None:
        """Follow the log until cancelled, so that `run` may begin at once; never call both at a time.

        Raises:
            LogDamaged, LogTooNew, NotALog: the log cannot be read.
        """
        self._queue.add(self.pool)
        while True:
            await self._queue.take()
            await self._retry(self._catch_up)
            # Read in one go what comes within a moment.
            await asyncio.sleep(_FOLLOW_S)

    async def run(self, leader: str, epoch: int | None = None) -> None:
        """Lead the pool in an epoch, None = the next one, until cancelled; may be called again after that.

        Raises:
            Fenced: another leader took over.
            LogDamaged, LogTooNew, NotALog: the log cannot be read.
        """
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._listen())
                await self._retry(lambda: self._begin(leader, epoch))
                self._queue.add(self.pool)
                while True:
                    await self._queue.take()
                    began_at = self._clock.now()
                    due_at = await self._retry(self._step)
                    now = self._clock.now()
                    self._queue.add(self.pool, after_s=due_at - now)
                    # For as long as the step took: the next one answers what comes meanwhile, and others get a turn.
                    await asyncio.sleep(min(now - began_at, _LONGEST_REST_S))
        finally:
            self.is_leading, self.failure = False, ""
            self._report_resync(0)

    async def _listen(self) -> None:
        while True:
            try:
                async for notice in self._cluster.watch():
                    self._notices.append(notice)
                    self._queue.add(self.pool)
            except TransientError as error:
                _log.warning("watch ended pool=%s reason=%s", self.pool, error)
            await asyncio.sleep(_RETRY_S)

    async def _catch_up(self) -> float:
        await self._controller.warm()
        return math.inf

    async def _begin(self, leader: str, epoch: int | None) -> float:
        """Take the lead, and record what the log lacks before the first decision."""
        led = await self._controller.lead(leader, epoch)
        observed = await self._cluster.observe()
        # Earlier notices are part of this observation.
        self._notices.clear()
        self._unwritten = ()
        missing = sightings(await self._state(), observed)
        # The log may know of objects that the cluster's view lacks for a moment: only a second observation cancels.
        cancels = [each for each in missing if isinstance(each.fact, JobCancelRequested)]
        facts = [each.fact for each in missing if each not in cancels]
        await self._watcher.record(facts)
        self.is_leading = True
        # Nothing that a former leadership in this process knew may still hold.
        self._is_stale, self._unconfirmed = True, cancels
        self._resync_at = self._next_resync_at()
        _log.info("leads pool=%s epoch=%d recorded=%d", self.pool, led, len(facts))
        return self._clock.now()

    async def _step(self) -> float:
        """Do one round of the loop, and return when the next one is due if nothing happens."""
        # 1. Record the cluster's notices.
        await self._record()

        # 2. Decide, if a new plan is due.
        decide_at = await self._controller.step()

        # 3. Resync: now and then compare the log with the whole cluster.
        if self._clock.now() >= self._resync_at:
            await self._resync()

        # 4. Reconcile, once: the outcome of an action is a notice, which wakes the loop again.
        if self._is_stale or not self._reconciler.is_settled:
            self._is_stale = False
            await self._reconciler.step(self._state)

        # 5. Sleep until the first of the next decision, the next resync and the next retry of an action.
        return min(decide_at, self._resync_at, self._reconciler.resume_at)

    async def _record(self) -> None:
        """Append the queued notices to the log, many at a time; what fails stays in the queue."""
        while self._notices:
            # If an answer is lost, append the same facts again: the log takes them once.
            facts = self._unwritten = self._unwritten or self._next_facts()
            try:
                await self._watcher.append_all(facts)
            except InvalidInput as error:
                if len(facts) > 1:
                    # Only one of them may be wrong.
                    self._unwritten = facts[:1]
                    continue
                # A later attempt would fail as well; the resync finds what still holds.
                _log.error("not recorded pool=%s fact=%s reason=%s", self.pool, self._notices[0].TYPE, error)
            self._unwritten = ()
            for _ in facts:
                self._notices.popleft()
            self._is_stale = True

    def _next_facts(self) -> Sequence[Fact]:
        """Return the facts of the first notices, up to one that is about the same node or job as one before it.

        What is recorded of a job in one instant counts as one change: a worker that comes back did leave.
        """
        streams: set[str] = set()
        first = takewhile(lambda notice: notice.stream not in streams, islice(self._notices, _MOST_AT_ONCE))
        facts: list[Fact] = []
        for notice in first:
            streams.add(notice.stream)
            facts.append(self._watcher.fact(notice))
        return facts

    async def _resync(self) -> None:
        """Record every fact that two observations in a row show and the log lacks."""
        observed = await self._cluster.observe()
        await self._record()
        missing = sightings(await self._state(), observed)
        unconfirmed = [each for each in missing if each not in self._unconfirmed]
        confirmed = [each.fact for each in missing if each not in unconfirmed]
        if confirmed:
            counts = ",".join(f"{kind}:{n}" for kind, n in Counter(fact.TYPE for fact in confirmed).items())
            _log.warning("resync recorded pool=%s facts=%s", self.pool, counts)
            await self._watcher.record(confirmed)
        self._report_resync(len(confirmed))
        self._unconfirmed = unconfirmed
        self._is_stale = True
        self._resync_at = self._next_resync_at()

    def _next_resync_at(self) -> float:
        return self._clock.now() + (_CONFIRM_S if self._unconfirmed else RESYNC_S)

    def _report_resync(self, facts: int) -> None:
        self._telemetry.count(DRIFT_HEALED, self.pool, by=facts)
        self._telemetry.set(LAST_DRIFT, facts, self.pool)

    async def _state(self) -> ClusterState:
        """Return the state of the log, with the nodes as the cluster shows them, and whatever voda drains."""
        await self._controller.catch_up()
        cluster, now = self._controller.live.cluster, self._clock.now()
        state = cluster.state(self.pool)
        overdue = frozenset(overdue_workers(state, now))
        return replace(state, nodes=cluster.nodes(self.pool), overdue=overdue)

    async def _retry(self, act: Callable[[], Awaitable[float]]) -> float:
        """Repeat until it succeeds: somebody frees the full disk, changes the policy, or deletes the offending job."""
        while True:
            try:
                result = await act()
            except (Fenced, LogDamaged, LogTooNew, NotALog):
                raise
            except Exception as error:  # whatever it is, the API must live on: through it the cause is removed
                # Some of the actions may not have been carried out.
                self._is_stale = True
                await asyncio.sleep(self._pause(error))
            else:
                self.failure = ""
                return result

    def _pause(self, error: Exception) -> float:
        """Say why the pool is paused, and return for how many seconds."""
        before, is_expected = self.failure, isinstance(error, VodaError)
        what = str(error) if is_expected else f"unexpected error {error!r}; the server's log shows where"
        self.failure = f"pool {self.pool}: {what}"
        if self.failure != before:
            _log.warning("paused pool=%s reason=%s", self.pool, what, exc_info=None if is_expected else error)
        retry_after_s = error.retry_after_s if isinstance(error, ClusterUnavailable) else 0.0
        return max(_RETRY_S, min(retry_after_s, _LONGEST_RETRY_S)) if is_expected else _RETRY_UNEXPECTED_S
