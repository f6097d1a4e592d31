"""The controller: one pool's decisions, one step at a time.

Rules: decide from the log alone; one writer decides (its epoch fences former leaders); at most one plan per
`ratelimit_s`, and the first event after a quiet time is served at once.
"""

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import Final

from voda.clock import Clock, stopwatch
from voda.controller.follower import catch_up, restore
from voda.domain.errors import Fenced, VersionConflict
from voda.domain.plugins import first_known
from voda.domain.state import ClusterState
from voda.events.envelope import ANY_VERSION, Event, Fact
from voda.events.types import (
    AnyFact,
    JobCanceled,
    JobCancelRequested,
    JobPriorityChanged,
    JobProgressed,
    LeaderElected,
)
from voda.log.store import EventStore
from voda.metrics import CONTROLLER_STEP_DURATION, NO_TELEMETRY, REPLAN_DURATION, Telemetry
from voda.placement.base import Placer
from voda.planner.decide import changes, decide
from voda.policies.base import Policy, has_queues
from voda.projections.live import Live

SPEEDUP_CHANGED: Final = "speedup.changed"
"""Cause of a plan that is due because a job's measured speed changed materially; not an event of its own."""


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
        folded: Live | None = None,
    ) -> None:
        """Decide for the pool from now on.

        Args:
            pool: its name.
            store: the log.
            clock: dates the decisions.
            policies: by name.
            placers: by name.
            telemetry: takes how long steps and decisions last.
            folded: the same log as somebody else in this process has folded it; its state at the time is where this
                controller begins, so that several need not each read the log.
        """
        self.live = Live()
        self.pool = pool
        self._store = store
        self._clock = clock
        self._policies = policies
        self._placers = placers
        self._telemetry = telemetry
        self._folded = folded
        self._stream = f"decisions.{pool}"
        self._version = 0
        self._epoch = 0
        self._election: Fact | None = None
        """What begins the epoch; kept, so that it can be recorded again without harm."""
        self._cause: str | None = None
        self._decided_at = -math.inf
        self._canceling: set[str] = set()
        self._requeue_at = -math.inf

    async def lead(self, leader: str, epoch: int | None = None) -> int:
        """Take over the pool's decisions and return the new epoch.

        What was folded of the log before, by `catch_up`, is kept: who followed leads at once.

        Args:
            leader: who leads.
            epoch: to lead in; may be asked for again if the last time something failed. None = the next one.

        Raises:
            Fenced: the pool was led in this epoch by another one, or in a later one.
            VersionConflict: another candidate was faster.
        """
        await self.warm()
        await self._elect(leader, epoch)
        await self.catch_up()
        jobs = self.live.cluster.jobs(self.pool)
        self._canceling = {job_id for job_id, job in jobs.items() if job.is_canceling}
        return self._epoch

    async def _elect(self, leader: str, epoch: int | None) -> None:
        head = await self._store.head(self._stream)
        if epoch is None or epoch != self._epoch:
            if epoch is not None and head.epoch >= epoch:
                raise Fenced(
                    f"pool {self.pool}: epoch {epoch} was given to {leader}, but {head.epoch} was led in before"
                )
            self._epoch = head.epoch + 1 if epoch is None else epoch
            self._election = self._fact(LeaderElected(pool=self.pool, leader=leader))
        assert self._election is not None, "an epoch begins with an election"
        # The same fact again, if the answer was lost: the log takes it once.
        try:
            await self._store.append(self._stream, head.version, [self._election], epoch=self._epoch)
        except VersionConflict:
            self._epoch = 0
            raise
        head = await self._store.head(self._stream)
        if head.epoch != self._epoch:
            raise Fenced(f"pool {self.pool}: epoch {self._epoch} was followed by epoch {head.epoch}")
        self._version = head.version

    async def warm(self) -> None:
        """Catch up without leading; at first from what is folded already, or else from the newest snapshot on."""
        if self.live.position == 0:
            if self._folded is not None and self._folded.position:
                self.live.load(self._folded.dump())
            else:
                await restore(self._store, self.live)
        await self.catch_up()

    async def catch_up(self) -> None:
        """Fold what was appended since the last call, and note what makes a decision due."""
        await catch_up(self._store, [self.live], after=self.live.position, seen=self._note)

    def nudge(self, cause: str) -> None:
        """Make a decision due although no event asks for it, as a periodic tick does."""
        self._cause = self._cause or cause

    async def step(self) -> float:
        """Catch up, decide if a decision is due, and return the instant of the next step without a new event.

        Raises:
            Fenced: another leader took over; this controller must not be used any more.
        """
        laps: list[float] = []
        with stopwatch(laps):
            due_at = await self._step()
        self._telemetry.observe(CONTROLLER_STEP_DURATION, laps[0], self.pool)
        return due_at

    async def _step(self) -> float:
        await self.catch_up()
        await self._cancel_idle()
        cluster = self.live.cluster
        policy = first_known(self._policies, cluster.settings(self.pool).policy, cluster.plan(self.pool).policy)
        await self._requeue(policy)
        if self._cause is not None and self._clock.now() >= self._may_decide_at():
            await self._decide(policy, self._cause)
            await self._requeue(policy)
        due_at = self._may_decide_at() if self._cause is not None else math.inf
        if self._idle():
            due_at = self._clock.now()
        return min(due_at, self._requeue_at)

    async def _decide(self, policy: Policy, cause: str) -> None:
        now = self._clock.now()
        laps: list[float] = []
        # Others get their turn between the parts: with thousands of jobs each takes a while. The state does not
        # change meanwhile, because nobody else moves this controller along the log.
        with stopwatch(laps):
            state = self.live.state(self.pool)
        await asyncio.sleep(0)
        with stopwatch(laps):
            placer = first_known(self._placers, state.settings.placer, state.plan.placer)
            plan = decide(state, policy, placer, now, cause=cause)
        await asyncio.sleep(0)
        with stopwatch(laps):
            fact = changes(state.plan, plan, self.live.cluster.undecided(self.pool))
        self._telemetry.observe(REPLAN_DURATION, sum(laps), self.pool)
        if fact is not None:
            await self._append(fact)
        # Not before: a decision that the store did not take is still due.
        self._cause, self._decided_at = None, now
        if fact is not None:
            await self.catch_up()

    async def _requeue(self, policy: Policy) -> None:
        """Let a policy with queues of its own move jobs between them; each move is an event."""
        if self._clock.now() < self._requeue_at:
            return
        if not has_queues(policy):
            self._requeue_at = math.inf
            return
        moves = policy.requeue(self._state(), self._clock.now())
        based_on = self.live.position
        facts = [
            JobPriorityChanged(pool=self.pool, job_id=job_id, queue_level=level, reason=reason, based_on=based_on)
            for job_id, (level, reason) in sorted(moves.items())
        ]
        if facts:
            await self._append(*facts)
            await self.catch_up()
        self._requeue_at = policy.requeue_due_at(self._state(), self._clock.now())

    async def _cancel_idle(self) -> None:
        """End canceled jobs that hold no workers (any more)."""
        idle = self._idle()
        for job_id in idle:
            # The same event again, if the answer was lost or another leader was as fast: it ends once.
            fact = self._fact(JobCanceled(job_id=job_id), f"canceled-{job_id}")
            await self._store.append(f"job.{job_id}", ANY_VERSION, [fact])
        jobs = self.live.cluster.jobs(self.pool)
        self._canceling = {job_id for job_id in self._canceling if job_id in jobs} - set(idle)
        if idle:
            await self.catch_up()

    def _idle(self) -> Sequence[str]:
        """Return the canceled jobs that hold nothing.

        One that is planned may: its workers may have been started at this moment, and the log not have been told.
        """
        jobs, planned = self.live.cluster.jobs(self.pool), self.live.cluster.plan(self.pool).placement
        held = (job_id for job_id in sorted(self._canceling) if job_id in jobs and job_id not in planned)
        return [job_id for job_id in held if not jobs[job_id].workers]

    def _note(self, event: Event) -> None:
        if event.stream == self._stream and event.epoch == self._epoch:
            # Of an append whose answer was lost, the log is the only one to tell that it was recorded.
            self._version = event.version
        if event.stream == self._stream or self.pool in self.live.cluster.touched:
            self._note_change(event)
        if self._cause is None and self.live.learning.changed_materially():
            self._cause = SPEEDUP_CHANGED

    def _note_change(self, event: Event) -> None:
        if not isinstance(event.data, JobProgressed):
            self._requeue_at = -math.inf
        if event.data.MAKES_PLAN_DUE:
            self._cause = self._cause or event.type
        if isinstance(event.data, JobCancelRequested):
            self._canceling.add(event.data.job_id)

    def _may_decide_at(self) -> float:
        now = self._clock.now()
        # A former leader's clock may have been ahead of this one: a plan of the future holds up nobody.
        decided_at = (self._decided_at, self.live.cluster.plan(self.pool).decided_at)
        last = max((at for at in decided_at if at <= now), default=-math.inf)
        return last + self.live.cluster.settings(self.pool).ratelimit_s

    def _state(self) -> ClusterState:
        return self.live.cluster.state(self.pool)

    async def _append(self, *data: AnyFact) -> None:
        facts = [self._fact(one) for one in data]
        await self._store.append(self._stream, self._version, facts, epoch=self._epoch)
        self._version += len(facts)

    def _fact(self, data: AnyFact, event_id: str = "") -> Fact:
        event_id = event_id or self._clock.new_id()
        return Fact(data=data, event_id=event_id, recorded_at=self._clock.now(), actor=f"controller/{self.pool}")
