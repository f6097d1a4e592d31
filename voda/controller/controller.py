"""The controller of one pool: it reads the log, decides when a plan is due, and records the plan.

Rules: decide from the log alone; one writer decides (its epoch fences former leaders); a plan that interrupts jobs that
run puts the next one off by `ratelimit_s`, any other by a tenth of it, and the first event after a quiet time is served
at once.
"""

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import Final

from voda.clock import Clock, stopwatch
from voda.controller.follower import catch_up, restore
from voda.controller.pool_choice import PoolChoice
from voda.controller.reclaim_watch import ReclaimWatch
from voda.domain.errors import Fenced, VersionConflict
from voda.domain.gpus import NO_GPUS
from voda.events import types as facts
from voda.events.envelope import ANY_VERSION, Event, Fact
from voda.log.append_plan import Append
from voda.log.store import EventStore
from voda.metrics import CONTROLLER_STEP_DURATION, NO_TELEMETRY, REPLAN_DURATION, Telemetry
from voda.placement import Placer
from voda.planner.decide import interrupts
from voda.planner.done_replicas import has_freed_gpus
from voda.planner.eligibility import begins_backoff, leaves_array, next_retry_at
from voda.planner.node_states import grace_ends_at, has_lost_place
from voda.planner.registries import Registries, redecide
from voda.planner.start_backoff import overdue, overdue_at, retry_at
from voda.policies import Policy, has_queues
from voda.projections.live import Live

NEW_ESTIMATES: Final = "new estimates"
"""Cause of a plan that is due because the estimate of a job's speed changed materially."""
RETRY: Final = "job is tried again"
"""Cause of a plan that is due because a job that was stuck, or whose program failed, is planned as any other again."""
NODE_LOST: Final = "node is silent"
"""Cause of a plan that is due because a node has been silent, or has said too few GPUs, for `node_grace_s`."""
_LOOKED_AT_ONCE: Final = (
    facts.JobStalled,
    facts.JobBackedOff,
    facts.PlanAdopted,
    facts.SettingsChanged,
    facts.LeaderElected,
)
"""After these a job may have made no use of its GPUs for too long already: all are looked at."""
_CHANGES_RECLAIMS: Final = (
    facts.WorkerStarted,
    facts.WorkerExited,
    facts.PlanAdopted,
    facts.SettingsChanged,
    facts.LeaderElected,
)
"""After these other workers may be late to give cells back than before."""
_LEAST_SHARE: Final = 0.1
"""Of the rate limit: how long a decision that interrupts nobody puts off the next one, for bursts of events."""
_BATCH: Final = 500
"""Jobs whose cancellation is one append."""


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
        self._stream = f"decisions.{pool}"
        self._version = 0
        self._epoch = 0
        self._election: Fact | None = None
        """The fact that begins the epoch; the same one again after a lost answer."""
        self._cause: str | None = None
        self._decided_at = -math.inf
        self._interrupted_at = -math.inf
        """When jobs that ran were last resized, moved or preempted, as far as this leader knows."""
        self._canceling: set[str] = set()
        self._requeue_at = -math.inf
        self._grace_ends_at = math.inf
        """When the next silent node counts as lost."""
        self._reclaims = ReclaimWatch(pool)
        self._pool_choice = PoolChoice(pool, self._registries)
        self._overdue_at = -math.inf
        """When the next job has made no use of its GPUs for too long."""
        self._retry_at = math.inf
        """When the next job is tried again that was stuck, or whose program failed."""

    async def lead(self, leader: str, epoch: int | None = None) -> int:
        """Take over the pool's decisions and return the new epoch.

        A controller that has followed the log by `catch_up` leads at once. After a failure, lead in the same epoch
        again; None = the next one.

        Raises:
            Fenced: another leader has led the pool in this epoch, or in a later one.
            VersionConflict: another candidate was faster.
        """
        await self.warm()
        await self._elect(leader, epoch)
        await self.catch_up()
        jobs = self.live.cluster.jobs(self.pool)
        self._canceling = {job_id for job_id, job in jobs.items() if job.is_canceling}
        # What the last plan of the leader before changed is not known any more.
        self._interrupted_at = self.live.cluster.plan(self.pool).decided_at
        return self._epoch

    async def _elect(self, leader: str, epoch: int | None) -> None:
        head = await self._store.head(self._stream)
        if epoch is None or epoch != self._epoch:
            if epoch is not None and head.epoch >= epoch:
                raise Fenced(
                    f"pool {self.pool}: {leader} was to lead in epoch {epoch}, but epoch {head.epoch} has begun"
                )
            self._epoch = head.epoch + 1 if epoch is None else epoch
            self._election = self._fact(facts.LeaderElected(pool=self.pool, leader=leader))
        assert self._election is not None, "an epoch begins with an election"
        # If an answer is lost, append the same fact again: the log takes it once.
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
        """Catch up without leading, the first time from the initial projection or the newest snapshot."""
        if self.live.position == 0:
            if self._initial is not None and self._initial.position:
                self.live.load(self._initial.dump())
            else:
                await restore(self._store, self.live)
        await self.catch_up()

    async def catch_up(self) -> None:
        """Fold the events since the last call, and find out whether they make a decision due."""
        await catch_up(self._store, [self.live], after=self.live.position, on_event=self._on_event)

    def request_decision(self, cause: str) -> None:
        """Make a decision due without an event, as a periodic tick does."""
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
        # 1. Read the log to its end; that says whether a decision is due, and why.
        await self.catch_up()

        # 2. End canceled jobs whose workers are gone, and cancel the jobs that wait in vain for others: their ends may
        #    leave more jobs to wait in vain.
        await self._cancel_idle()
        while await self._cancel_unsatisfiable():
            await self._cancel_idle()

        # 3. Let the policy move jobs between its queues; a move makes a decision due.
        cluster = self.live.cluster
        policy = self._registries.policy(cluster.settings(self.pool), cluster.plan(self.pool))
        await self._requeue(policy)

        # 4. Workers on a node that has been silent for too long are to move.
        now = self._clock.now()
        if now >= self._grace_ends_at:
            self._cause = self._cause or NODE_LOST
        is_any_silent = bool(cluster.pool(self.pool).silent_since)
        self._grace_ends_at = grace_ends_at(cluster.state(self.pool), now) if is_any_silent else math.inf

        # 5. A job that makes no use of its GPUs lets others go first for a while; one that keeps cells of others for
        #    too long gets none.
        await self._back_off()
        self._cause = self._reclaims.cause(cluster, now) or self._cause

        # 6. Decide, unless it is too early, and record the plan if it changes anything.
        if self._cause is not None and self._clock.now() >= self._may_decide_at():
            await self._decide(self._cause)
            await self._requeue(policy)
            await self._back_off()
            self._cause = self._reclaims.cause(cluster, now) or self._cause

        # 7. A job that would start in another of its pools goes there.
        if (move := self._pool_choice.next_move(self.live, self._clock.now())) is not None:
            await self._append_to_jobs([self._fact(move)])
            await self.catch_up()

        # 8. Return when the next of these is due without a new event.
        due_at = self._may_decide_at() if self._cause is not None else math.inf
        if self._idle():
            due_at = self._clock.now()
        ends_at = min(self._grace_ends_at, self._reclaims.look_at, self._pool_choice.look_at)
        return min(due_at, self._requeue_at, ends_at, self._overdue_at, self._retry_at)

    async def _decide(self, cause: str) -> None:
        now = self._clock.now()
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
            await self._append(fact, at=now)
        # Not before: a decision that the store did not take is still due.
        self._cause, self._decided_at = None, now
        if fact is not None:
            if interrupts(state, fact):
                self._interrupted_at = now
            await self.catch_up()

    async def _back_off(self) -> None:
        """Record which jobs have made no use of their GPUs for too long."""
        now = self._clock.now()
        if now >= self._retry_at:
            self._cause = self._cause or RETRY
        elif now < self._overdue_at:
            return
        state = self.live.cluster.state(self.pool)
        if late := overdue(state, now):
            await self._append(*late)
            await self.catch_up()
            state = self.live.cluster.state(self.pool)
        self._overdue_at = overdue_at(state, now)
        self._retry_at = min(retry_at(state, now), next_retry_at(state, now))

    async def _requeue(self, policy: Policy) -> None:
        if self._clock.now() < self._requeue_at:
            return
        if not has_queues(policy):
            self._requeue_at = math.inf
            return
        moves = policy.requeue(self.live.cluster.state(self.pool), self._clock.now())
        based_on = self.live.position
        records = [
            facts.JobQueueLevelChanged(
                pool=self.pool, job_id=job_id, queue_level=level, reason=reason, based_on=based_on
            )
            for job_id, (level, reason) in sorted(moves.items())
        ]
        if records:
            await self._append(*records)
            await self.catch_up()
        self._requeue_at = policy.requeue_due_at(self.live.cluster.state(self.pool), self._clock.now())

    async def _cancel_unsatisfiable(self) -> bool:
        """Request the cancellation of the jobs whose dependencies can no longer be met; return whether there were any.

        If an answer is lost, or another leader is as fast, the same event comes again: it is recorded once.
        """
        unsatisfiable, before = self.live.cluster.unsatisfiable(self.pool), self.live.position
        if not unsatisfiable:
            return False
        requests = (
            facts.JobCancelRequested(job_id=job_id, reason=why) for job_id, why in sorted(unsatisfiable.items())
        )
        await self._append_to_jobs([self._fact(request, f"unsatisfiable-{request.job_id}") for request in requests])
        await self.catch_up()
        return self.live.position > before

    async def _cancel_idle(self) -> None:
        if not self._canceling:
            return
        idle = self._idle()
        # If an answer is lost, or another leader is as fast, the same event comes again: the job ends once.
        await self._append_to_jobs(
            [self._fact(facts.JobCanceled(job_id=job_id), f"canceled-{job_id}") for job_id in idle]
        )
        jobs = self.live.cluster.jobs(self.pool)
        self._canceling = {job_id for job_id in self._canceling if job_id in jobs} - set(idle)
        if idle:
            await self.catch_up()

    def _idle(self) -> Sequence[str]:
        """Return the canceled jobs without workers.

        A job in the plan is not among them: its workers may start at this moment, before the log knows.
        """
        if not self._canceling:
            return ()
        jobs, planned = self.live.cluster.jobs(self.pool), self.live.cluster.plan(self.pool).placement
        unplanned = (job_id for job_id in sorted(self._canceling) if job_id in jobs and job_id not in planned)
        return [job_id for job_id in unplanned if not jobs[job_id].workers]

    def _on_event(self, event: Event) -> None:
        if event.stream == self._stream and event.epoch == self._epoch:
            # After a lost answer only the log says that the append succeeded.
            self._version = event.version
        self._pool_choice.on_event(event, self._clock.now())
        if event.stream == self._stream or self.pool in self.live.cluster.changed_pools:
            self._on_pool_event(event)
        if self._cause is None and self.live.learning.changed_materially():
            self._cause = NEW_ESTIMATES

    def _on_pool_event(self, event: Event) -> None:
        cluster = self.live.cluster
        if not isinstance(event.data, facts.JobProgressed):
            self._requeue_at = -math.inf
        if isinstance(event.data, _CHANGES_RECLAIMS):
            self._reclaims.look_at = -math.inf
        if isinstance(event.data, _LOOKED_AT_ONCE):
            self._overdue_at = -math.inf
        elif not isinstance(event.data, facts.JobProgressed | facts.JobQueueLevelChanged):
            late_at = self._clock.now() + cluster.settings(self.pool).start_timeout_s
            self._overdue_at = min(self._overdue_at, late_at)
        is_due = event.data.MAKES_PLAN_DUE
        if isinstance(event.data, facts.WorkerExited):
            plan = cluster.plan(self.pool)
            job, nodes = cluster.job(event.data.job_id), cluster.nodes(self.pool)
            gpus = NO_GPUS if job is None else job.spec.gpus_per_replica
            is_due = has_lost_place(event.data, gpus, plan, nodes, cluster.pool(self.pool).held)
            is_due = is_due or leaves_array(event.data.job_id, cluster.jobs(self.pool), plan)
            is_due = is_due or has_freed_gpus(event.data, cluster.jobs(self.pool))
            if event.data.retry_at is not None:
                self._retry_at = min(self._retry_at, event.data.retry_at)
                is_due = is_due or begins_backoff(event.data, cluster.jobs(self.pool))
        if is_due:
            self._cause = self._cause or event.type
        if isinstance(event.data, facts.JobCancelRequested):
            self._canceling.add(event.data.job_id)

    def _may_decide_at(self) -> float:
        now, limit_s = self._clock.now(), self.live.cluster.settings(self.pool).ratelimit_s
        # The clock of a former leader may be ahead of this one: a plan of the future delays nothing.
        due_at = (self._interrupted_at, limit_s), (self._decided_at, _LEAST_SHARE * limit_s)
        return max((at + pause_s for at, pause_s in due_at if at <= now), default=-math.inf)

    async def _append_to_jobs(self, records: Sequence[Fact]) -> None:
        """Append one fact to each of several jobs, many at a time; those of a batch all or none."""
        appends = [Append(fact.data.stream, ANY_VERSION, [fact], 0) for fact in records]
        for begin in range(0, len(appends), _BATCH):
            await self._store.append_all(appends[begin : begin + _BATCH])

    async def _append(self, *data: facts.AnyFact, at: float | None = None) -> None:
        records = [self._fact(one, at=at) for one in data]
        await self._store.append(self._stream, self._version, records, epoch=self._epoch)
        self._version += len(records)

    def _fact(self, data: facts.AnyFact, event_id: str = "", *, at: float | None = None) -> Fact:
        event_id, at = event_id or self._clock.new_id(), self._clock.now() if at is None else at
        return Fact(data=data, event_id=event_id, recorded_at=at, actor=f"controller/{self.pool}")
