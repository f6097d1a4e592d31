"""The controller of one pool: it reads the log, decides when a plan is due, and records the plan.

A step reads the log to its end, looks at each trigger that is due (`triggers`), and decides if any of them, or an
event, was a cause. Rules: decide from the log alone; one writer decides (its epoch fences former leaders); a plan that
interrupts jobs that run puts the next one off by `ratelimit_s`, any other, and any of a policy that weighs restarts
itself, by a tenth of it, and the first event after a quiet time is served at once. Meanwhile jobs start on what is
free, a second after the decision before at the latest.
"""

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import Final

from voda.clock import Clock, stopwatch
from voda.controller.cancellations import Cancellations, UnrestartableJobs
from voda.controller.decision_stream import DecisionStream
from voda.controller.due_facts import is_due_after
from voda.controller.follower import catch_up, restore
from voda.controller.pool_choice import PoolChoice
from voda.controller.triggers import (
    FairShares,
    LastingSurplus,
    LateReclaims,
    PolicyQueues,
    SilentNodes,
    Trigger,
    UnusedGpus,
)
from voda.events import types as facts
from voda.events.envelope import Event
from voda.log.store import EventStore
from voda.metrics import CONTROLLER_STEP_DURATION, NO_TELEMETRY, REPLAN_DURATION, Telemetry
from voda.placement import Placer
from voda.planner.free_starts import start_on_free
from voda.planner.plan_changes import interrupts
from voda.planner.registries import Registries, redecide
from voda.policies import Policy, weighs_restarts
from voda.projections.live import Live

NEW_ESTIMATES: Final = "new estimates"
"""Cause of a plan that is due because the estimate of a job's speed changed materially."""
_LEAST_SHARE: Final = 0.1
"""Of the rate limit: how long a decision that interrupts nobody, or weighs what that costs, puts off the next one, for
bursts of events."""
_START_PAUSE_S: Final = 1.0
"""The same, of the next one that only starts jobs."""


class Controller:
    """Decides for one pool. Not safe for concurrent steps: one leader, one writer."""

    def __init__(  # noqa: PLR0913 - its ports
        self,
        *,
        pool: str,
        store: EventStore,
        clock: Clock,
        policies: Callable[[str], Policy],
        placers: Callable[[str], Placer],
        telemetry: Telemetry = NO_TELEMETRY,
        initial: Live | None = None,
    ) -> None:
        """Begin from the state of `initial`, a projection of the same log that several controllers share."""
        self.live = Live()
        self.pool = pool
        self._store = store
        self._clock = clock
        self._registries = Registries(policies=policies, placers=placers)
        self._telemetry = telemetry
        self._initial = initial
        self._stream = DecisionStream(pool, store, clock)
        self._canceled = Cancellations(pool)
        self._lost_runs = UnrestartableJobs(pool)
        self._triggers: Sequence[Trigger] = (
            PolicyQueues(pool, self._registries),
            SilentNodes(pool),
            UnusedGpus(pool),
            LateReclaims(pool),
            FairShares(pool),
            LastingSurplus(pool),
        )
        self._pool_choice = PoolChoice(pool, self._registries)
        self._cause = ""
        """Why a decision is due; empty: none is."""
        self._may_start = False
        """Whether something has happened since the last decision of any kind."""
        self._started_at = -math.inf
        """When it was."""
        self._decided_at = -math.inf
        self._interrupted_at = -math.inf
        """When jobs that ran were last resized, moved or preempted, as far as this leader knows."""

    async def lead(self, leader: str, epoch: int | None = None) -> int:
        """Take over the pool's decisions and return the new epoch.

        A controller that has followed the log by `catch_up` leads at once. After a failure, lead in the same epoch
        again; None = the next one.

        Raises:
            Fenced: another leader has led the pool in this epoch, or in a later one.
            VersionConflict: another candidate was faster.
        """
        await self.warm()
        await self._stream.elect(leader, epoch)
        await self.catch_up()
        self._canceled.begin(self.live.cluster)
        self._lost_runs.begin(self.live.cluster)
        # What the last plan of the leader before changed is not known any more.
        self._interrupted_at = self.live.cluster.plan(self.pool).decided_at
        return self._stream.epoch

    async def warm(self) -> None:
        """Catch up without leading, the first time from the initial projection or the newest snapshot."""
        if self.live.position == 0:
            if self._initial is not None and self._initial.position:
                self.live.load(self._initial.dump())
            else:
                await restore(self._store, self.live)
        await self.catch_up()

    async def catch_up(self) -> None:
        """Fold the events since the last call, and find out whether they make a decision due."""
        await catch_up(self._store, [self.live], after=self.live.position, on_event=self._see)

    def request_decision(self, cause: str) -> None:
        """Make a decision due, unless one is; without an event, as a periodic tick does."""
        self._cause = self._cause or cause

    async def step(self) -> float:
        """Catch up, decide if a decision is due, and return the instant of the next step without a new event.

        Raises:
            Fenced: another leader took over; do not use this controller any more.
        """
        laps: list[float] = []
        with stopwatch(laps):
            due_at = await self._step()
        self._telemetry.observe(CONTROLLER_STEP_DURATION, laps[0], self.pool)
        return due_at

    async def _step(self) -> float:
        await self.catch_up()
        await self._end_canceled()
        await self._look()
        if self._clock.now() >= self._decide_at():
            await self._decide()
            await self._look()
        elif self._clock.now() >= self._start_at():
            await self._start()
            await self._look()
        await self._choose_pool()
        if self._canceled.idle(self.live.cluster):
            return self._clock.now()
        ends_at = min(self._pool_choice.due_at, self._lost_runs.due_at)
        return min(self._decide_at(), self._start_at(), ends_at, *(trigger.due_at for trigger in self._triggers))

    async def _end_canceled(self) -> None:
        """End canceled jobs, and cancel those that wait in vain for others: their ends may leave more to do so."""
        cluster = self.live.cluster
        await self._record_of_jobs(self._canceled.ends(cluster))
        await self._record_of_jobs(self._lost_runs.ends(cluster, self._clock.now()))
        while requests := self._canceled.requests(cluster):
            if not await self._record_of_jobs(requests):
                return
            await self._record_of_jobs(self._canceled.ends(cluster))

    async def _look(self) -> None:
        """Look at the triggers that are due, in their order."""
        for trigger in self._triggers:
            if (now := self._clock.now()) >= trigger.due_at:
                due = trigger.look(self.live, now)
                self.request_decision(due.cause)
                if due.facts:
                    await self._stream.append(due.facts)
                    await self.catch_up()
                # As of the same instant: what falls due meanwhile is found by the next look.
                trigger.arm(self.live.cluster, now)

    def _decide_at(self) -> float:
        """Return when to decide: once there is a cause, and it is not too early; infinite: there is none."""
        if not self._cause:
            return math.inf
        now, settings = self._clock.now(), self.live.cluster.settings(self.pool)
        limit_s = settings.ratelimit_s
        policy = self._registries.policy(settings, self.live.cluster.plan(self.pool))
        # The clock of a former leader may be ahead of this one: a plan of the future delays nothing.
        pauses = [(self._decided_at, _LEAST_SHARE * limit_s)]
        if not weighs_restarts(policy):
            pauses.append((self._interrupted_at, limit_s))
        return max((at + pause_s for at, pause_s in pauses if at <= now), default=-math.inf)

    def _start_at(self) -> float:
        """Return when to start jobs on free GPUs before the next decision about all; infinite: nothing has happened."""
        if not self._may_start or self._started_at > self._clock.now():
            return math.inf
        return self._started_at + _START_PAUSE_S

    async def _start(self) -> None:
        """Start jobs on what is free, and leave the others to the next decision."""
        now = self._clock.now()
        fact = start_on_free(self.live.state(self.pool), self._registries, now, cause=self._cause)
        if fact is not None:
            await self._stream.append([fact], at=now)
            await self.catch_up()
        self._may_start, self._started_at = False, now

    async def _decide(self) -> None:
        """Make a plan, and record it if it changes anything."""
        now, cause = self._clock.now(), self._cause
        laps: list[float] = []
        # Others get their turn in between: with thousands of jobs each part takes a while. The state does not change
        # meanwhile, because nobody else moves this controller along the log.
        with stopwatch(laps):
            state = self.live.state(self.pool)
        await asyncio.sleep(0)
        with stopwatch(laps):
            fact = redecide(state, self.live.cluster.undecided(self.pool), self._registries, now, cause=cause)
        self._telemetry.observe(REPLAN_DURATION, sum(laps), self.pool)
        if fact is not None:
            # Made again from the log, it is decided at the same instant: time may be all that a job waits for.
            await self._stream.append([fact], at=now)
        # Not before: a decision that the store did not take is still due.
        self._cause, self._decided_at = "", now
        self._may_start, self._started_at = False, now
        if fact is not None:
            if interrupts(state, fact):
                self._interrupted_at = now
            await self.catch_up()

    async def _choose_pool(self) -> None:
        """Move a job that would start in another of its pools there."""
        if (move := self._pool_choice.next_move(self.live, self._clock.now())) is not None:
            await self._record_of_jobs([(move, "")])

    async def _record_of_jobs(self, records: Sequence[tuple[facts.AnyFact, str]]) -> bool:
        """Append facts of jobs, with the ids of their events, and return whether the log had them not yet."""
        if not records:
            return False
        before = self.live.position
        await self._stream.append_to_jobs(records)
        await self.catch_up()
        return self.live.position > before

    def _see(self, event: Event) -> None:
        now, cluster = self._clock.now(), self.live.cluster
        is_own = event.stream == self._stream.name
        if is_own:
            self._stream.see(event)
        self._pool_choice.see(event, now)
        if is_own or self.pool in cluster.changed_pools:
            self._canceled.see(event)
            self._lost_runs.see(event)
            for trigger in self._triggers:
                trigger.see(event, cluster, now)
            if is_due_after(event.data, cluster, self.pool):
                self.request_decision(event.type)
                self._may_start = True
        if not self._cause and self.live.learning.changed_materially():
            self._cause = NEW_ESTIMATES
