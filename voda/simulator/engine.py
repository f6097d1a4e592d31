"""A simulation's input and output, and its event loop: the real controller and reconcilers on a virtual clock.

Rule: it connects the ports and moves the clock to the next instant; it decides nothing.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Final

from msgspec import Struct
from msgspec.structs import asdict

from voda.clock import VirtualClock, stopwatch
from voda.controller.controller import Controller
from voda.domain.errors import InvalidInput
from voda.domain.job import Job
from voda.domain.settings import OF_ONE_MACHINE, Settings
from voda.domain.state import ClusterState
from voda.events import types as facts
from voda.events.envelope import ANY_VERSION, Fact, Sealed
from voda.events.types import AnyFact, Intent, NodeFact, NodeJoined, SettingsChanged
from voda.log.append_plan import plan_copy
from voda.log.memory import MemoryStore
from voda.log.store import EventStore, Snapshot
from voda.metrics import REPLAN_DURATION, Histogram, Telemetry
from voda.placement import PLACERS, Placer
from voda.policies import POLICIES, Policy
from voda.projections.live import Live
from voda.reconcilers.watcher import Watcher
from voda.reconcilers.workers import WorkerReconciler
from voda.simulator.cluster import SimulatedCluster
from voda.simulator.failures import Failure, FailureRates, FailureSchedule
from voda.simulator.training import EpochEnd, Training, exact_end
from voda.simulator.workload import Workload

LONGEST_S: Final = 36_500 * 86_400.0
"""Of what is simulated: the epochs and the epoch time that a user reports may make ages, where the calendar ends."""

ProgressCallback = Callable[[int, int], None]
"""(jobs finished, jobs in all) -> nothing."""

StopCondition = Callable[[int, Mapping[str, Job]], bool]
"""(events so far, live jobs) -> whether to stop."""


class SimulationOptions(Struct, frozen=True, kw_only=True):
    settings: Settings = Settings()
    seed: int = 0
    failures: FailureRates = FailureRates()
    tick_s: float = 0.0
    """Decide at whole multiples of this many seconds only; 0 = at every event."""
    end_of: EpochEnd = exact_end


class ScheduledFact(Struct, frozen=True, kw_only=True):
    """An action of people or a change of nodes, whatever the decisions; arrivals come from the workload."""

    at: float
    """Seconds since the epoch."""
    fact: Intent | NodeFact


class InitialState(Struct, frozen=True, kw_only=True):
    """The beginning of a simulation; by default an empty log and idle nodes."""

    facts: tuple[AnyFact, ...]
    log: tuple[Sealed, ...] = ()
    """The log so far, from position 1 on."""
    state: bytes = b""
    """Dump of a rebased `Live` from which the controller begins, instead of a log."""
    trainings: tuple[Training, ...] = ()
    """Jobs of the log, with their progress at the workload's beginning."""
    scheduled: tuple[ScheduledFact, ...] = ()
    """By time."""


class SimulationRun(Struct, frozen=True, kw_only=True):
    workload: Workload
    store: EventStore
    decision_s: Sequence[float]
    """Seconds of wall time that each decision took."""
    wall_s: float
    unfinished: tuple[str, ...]
    """Jobs that could not run to their end on this cluster, or not before the stop."""

    def __repr__(self) -> str:
        # asyncio.run writes down the result of its main task, and that of a trace would be hundreds of megabytes.
        return f"<SimulationRun of {len(self.workload.arrivals)} jobs, {len(self.decision_s)} decisions>"


def opening_facts(pool: str, workload: Workload, options: SimulationOptions) -> list[AnyFact]:
    """Return what the log of a simulation begins with: settings and nodes."""
    settings = {name: value for name, value in asdict(options.settings).items() if name not in OF_ONE_MACHINE}
    facts: list[AnyFact] = [SettingsChanged(pool=pool, settings=settings)]
    facts += [NodeJoined(node=node) for node in workload.nodes]
    return facts


class DecisionTimes(Telemetry):
    def __init__(self) -> None:
        self.seconds: list[float] = []

    def observe(self, histogram: Histogram, seconds: float, *_labels: str) -> None:
        if histogram is REPLAN_DURATION:
            self.seconds.append(seconds)


class Simulation:
    def __init__(
        self,
        workload: Workload,
        options: SimulationOptions,
        *,
        policies: Callable[[str], Policy] = POLICIES.choose,
        placers: Callable[[str], Placer] = PLACERS.choose,
        initial: InitialState | None = None,
    ) -> None:
        pools = {node.pool for node in workload.nodes} | {arrival.spec.pool for arrival in workload.arrivals}
        if len(pools) > 1:
            raise InvalidInput(f"workload {workload.name}: one pool at a time is simulated, got {sorted(pools)}")
        self._workload = workload
        self._options = options
        self._pool = next(iter(pools), "default")
        self._initial = initial or InitialState(facts=tuple(opening_facts(self._pool, workload, options)))
        past = self._initial.log
        # Ids are numbers, and must differ from those in the log.
        self._clock = VirtualClock(workload.begins_at, prefix=f"after-{past[-1].position}-" if past else "")
        self._store = MemoryStore()
        self._cluster = SimulatedCluster(workload.nodes, now=self._clock.now, end_of=options.end_of)
        self._watcher = Watcher(store=self._store, clock=self._clock, actor="cluster")
        self._reconciler = WorkerReconciler(self._cluster)
        self._decisions = DecisionTimes()
        self._controller = Controller(
            pool=self._pool,
            store=self._store,
            clock=self._clock,
            policies=policies,
            placers=placers,
            telemetry=self._decisions,
        )
        self._failures = FailureSchedule(
            [node.name for node in workload.nodes], options.failures, seed=options.seed, begins_at=workload.begins_at
        )
        self._arrived = 0
        self._applied = 0
        self._step_at = math.inf
        self._has_moved = False
        self._reconciled_plan = 0

    async def run(
        self, progress: ProgressCallback | None = None, *, stop_when: StopCondition | None = None
    ) -> SimulationRun:
        """Run the workload to its end, until `stop_when` or for LONGEST_S; return the log and the measurements.

        Raises:
            InvalidInput: unknown policy or placer.
        """
        laps: list[float] = []
        finished = 0
        with stopwatch(laps):
            await self._begin()
            while (now := self._next_at()) <= self._workload.begins_at + LONGEST_S:
                self._clock.move_to(now)
                await self._advance()
                if progress is not None and (count := self._arrived - len(self._live_jobs())) != finished:
                    finished = count
                    progress(finished, len(self._workload.arrivals))
                if stop_when is not None and stop_when(self._controller.live.position, self._live_jobs()):
                    break
        return SimulationRun(
            workload=self._workload,
            store=self._store,
            decision_s=self._decisions.seconds,
            wall_s=laps[0],
            unfinished=tuple(self._live_jobs()),
        )

    async def _begin(self) -> None:
        if self._initial.log:
            await self._store.take_over(plan_copy(self._initial.log), after=0)
        if state := self._initial.state:
            await self._store.snapshots.save(
                Snapshot(name=Live.FORMAT, position=0, state=state, state_hash=sha256(state).hexdigest(), heads={})
            )
        for training in self._initial.trainings:
            self._cluster.resume(training)
        for fact in self._initial.facts:
            await self._append_intent(fact)
        await self._controller.lead("simulator")
        self._step_at = self._clock.now()

    async def _advance(self) -> None:
        """Let everything happen that is due now; then decide and carry out the plan, if a decision is due."""
        self._cluster.advance(self._clock.now())
        for failure in self._failures.due(self._clock.now()):
            self._fail(failure)
        await self._record()
        await self._apply_scheduled_facts()
        await self._submit()
        if self._is_time_to_decide():
            self._step_at = await self._controller.step()
            if self._needs_reconciling():
                await self._reconcile()
                self._step_at = min(self._step_at, self._reconciler.resume_at)

    def _needs_reconciling(self) -> bool:
        """Whether plan or workers changed since the last reconciliation; most epochs change neither."""
        plan = self._controller.live.cluster.plan(self._pool)
        is_changed = self._has_moved or plan.number != self._reconciled_plan or not self._reconciler.is_settled
        self._has_moved, self._reconciled_plan = False, plan.number
        return is_changed

    async def _reconcile(self) -> None:
        is_acting = True
        while is_acting:
            # The step sees what has moved until now; the last one finds nothing to do.
            self._has_moved = False
            await self._reconciler.step(self._current)
            is_acting = await self._record()

    async def _current(self) -> ClusterState:
        await self._controller.catch_up()
        return self._controller.live.cluster.state(self._pool)

    async def _submit(self) -> None:
        while self._arrived < len(self._workload.arrivals) and self._arrival_at() <= self._clock.now():
            arrival = self._workload.arrivals[self._arrived]
            self._cluster.admit(arrival.spec, arrival.profile)
            await self._append_intent(facts.JobSubmitted(spec=arrival.spec))
            self._arrived += 1
            self._step_at = self._clock.now()

    async def _apply_scheduled_facts(self) -> None:
        while self._scheduled_at() <= self._clock.now():
            fact = self._initial.scheduled[self._applied].fact
            self._applied += 1
            self._step_at = self._clock.now()
            if isinstance(fact, facts.NodeFact):
                self._cluster.change_node(fact)
                await self._record()
                continue
            await self._append_intent(fact)
            if isinstance(fact, facts.JobChanged):
                await self._controller.catch_up()
                if (job := self._live_jobs().get(fact.job_id)) is not None:
                    self._cluster.respecify(job.spec)

    async def _record(self) -> bool:
        """Record what the cluster tells, and return whether that is anything."""
        notices = self._cluster.take_notices()
        if await self._watcher.record(notices):
            self._step_at = self._clock.now()
            self._has_moved = self._has_moved or not all(map(_is_expected, notices))
        return bool(notices)

    async def _append_intent(self, data: facts.AnyFact) -> None:
        fact = Fact(data=data, event_id=self._clock.new_id(), recorded_at=self._clock.now(), actor="workload")
        await self._store.append(data.stream, ANY_VERSION, [fact])

    def _fail(self, failure: Failure) -> None:
        match failure.kind:
            case "node_fails":
                self._cluster.set_ready(failure.node, False)
            case "node_repaired":
                self._cluster.set_ready(failure.node, True)
            case "worker_fails":
                running = [(job, index) for job, indices in self._cluster.workers().items() for index in indices]
                if running:
                    self._cluster.fail_worker(*running[int(failure.draw * len(running))])

    def _next_at(self) -> float:
        """Return the next instant at which anything can happen; infinite when nothing can."""
        if self._arrived == len(self._workload.arrivals) and not self._live_jobs():
            return math.inf
        at = min(self._arrival_at(), self._scheduled_at(), self._cluster.next_at(), self._wake_at())
        if at == math.inf and not self._failures.repair_is_due:
            return math.inf
        return max(self._clock.now(), min(at, self._failures.next_at()))

    def _arrival_at(self) -> float:
        if self._arrived == len(self._workload.arrivals):
            return math.inf
        # Rounded like the clock, which would never reach it otherwise.
        return round(self._workload.begins_at + self._workload.arrivals[self._arrived].submitted_s, 6)

    def _scheduled_at(self) -> float:
        if self._applied == len(self._initial.scheduled):
            return math.inf
        return self._initial.scheduled[self._applied].at

    def _wake_at(self) -> float:
        tick_s = self._options.tick_s
        if not tick_s:
            return self._step_at
        if self._step_at == math.inf and not self._cluster.workers():
            return math.inf
        return self._workload.begins_at + tick_s * (math.floor(self._elapsed_s() / tick_s) + 1)

    def _is_time_to_decide(self) -> bool:
        tick_s = self._options.tick_s
        if not tick_s:
            return True
        if self._elapsed_s() % tick_s:
            return False
        self._controller.request_decision("tick")
        return True

    def _elapsed_s(self) -> float:
        return self._clock.now() - self._workload.begins_at

    def _live_jobs(self) -> Mapping[str, Job]:
        return self._controller.live.cluster.jobs(self._pool)


def _is_expected(notice: facts.Observation) -> bool:
    """Whether a notice leaves plan and cluster in agreement: training continues, or a job ends."""
    if isinstance(notice, facts.WorkerExited):
        return notice.cause == "finished"
    return isinstance(notice, facts.JobProgressed | facts.JobCompleted)
