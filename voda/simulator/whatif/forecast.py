"""Expected starts and ends of the live jobs if nobody submits more: the real controller runs on simulated time.

Rules: it reads the live state only, and jobs are as fast as estimated. It states only what it simulated: a job without
a known end, or with one beyond LONGEST_S, runs on, and a job that waits for its GPUs gets no expected start.
"""

import math
from collections.abc import Mapping, Sequence, Set
from typing import Final

from msgspec import Struct

from voda.clock import SystemClock
from voda.controller.follower import catch_up, restore
from voda.domain.job import Job
from voda.domain.plan import ExpectedTimes
from voda.domain.state import ClusterState, Estimate
from voda.events.envelope import Event
from voda.events.types import JobCanceled, JobCompleted, WorkerStarted
from voda.log.store import EventStore
from voda.planner.eligibility import held_jobs
from voda.projections.learning import JobMeasurements
from voda.projections.live import Live
from voda.simulator.engine import LONGEST_S, InitialState, Simulation, SimulationOptions
from voda.simulator.training import Training, exact_end
from voda.simulator.workload import Costs, Workload

_MOST_STEPS: Final = 16
"""Reports of progress that are simulated of one job; more would cost time and change little."""


class ForecastBudget(Struct, frozen=True, kw_only=True):
    """When to stop simulating; what lies beyond has no expected time."""

    events: int = 50_000
    wall_s: float = 2.0


class LearnedProfile(Struct, frozen=True, kw_only=True):
    """A job at its estimated speed; the rest of it, in equal steps."""

    epochs: int
    costs: Costs
    step_s: float
    """On one replica; infinite where nothing is known."""
    estimate: Estimate

    def epoch_s(self, epoch: int, per_node: tuple[int, ...]) -> float:
        return self.seconds(sum(per_node), is_spanning=len(per_node) > 1)

    def seconds(self, workers: int, *, is_spanning: bool) -> float:
        """Return the seconds that a step takes these workers."""
        # For a moment there may be more workers than job.changed leaves it.
        speed = self.estimate.speedup[min(workers, len(self.estimate.speedup) - 1)]
        longer = 1.0 + self.estimate.span_penalty if is_spanning else 1.0
        return self.step_s * (longer / speed if speed > 0 else math.inf)


async def forecast(
    live: Live, pool: str, now: float, *, budget: ForecastBudget | None = None
) -> Mapping[str, ExpectedTimes]:
    """Return the expected times of every live job of a pool, by job id.

    The simulation changes `live`; `now` is not before its last event.
    """
    state = live.state(pool)
    trainings = tuple(
        _training(job, state, live.learning.measurements(job_id), now) for job_id, job in state.jobs.items()
    )
    live.cluster.rebase()
    initial = InitialState(facts=(), state=live.dump(), trainings=trainings)
    starts: dict[str, float] = {}
    ends: dict[str, float] = {}
    if trainings and state.nodes:
        for event in await _simulated(state, now, initial, budget or ForecastBudget()):
            match event.data:
                case WorkerStarted(job_id=job_id):
                    starts.setdefault(job_id, event.recorded_at)
                case JobCompleted(job_id=job_id) | JobCanceled(job_id=job_id):
                    ends[job_id] = event.recorded_at
    return _expected_times(state, starts, ends, now=now)


async def _simulated(state: ClusterState, now: float, initial: InitialState, budget: ForecastBudget) -> Sequence[Event]:
    """Return what happens from now on, until all jobs have ended or the budget is spent."""
    workload = Workload(
        name="forecast", source="the live state", arrivals=(), nodes=tuple(state.nodes.values()), begins_at=now
    )
    simulation = Simulation(workload, SimulationOptions(), initial=initial)
    wall = SystemClock()
    until = wall.now() + budget.wall_s

    endless = {
        job_id
        for job_id, job in state.jobs.items()
        if not job.is_canceling and (job.is_halted or not _ends(state.estimates[job_id]))
    }
    unreached = _held_behind(state, endless, now=now)
    endless |= unreached

    def stop_when(events: int, jobs: Mapping[str, Job]) -> bool:
        if events >= budget.events or wall.now() >= until:
            return True
        # Jobs without a known end may take turns for ever; of them only the starts are of interest.
        return len(jobs) <= len(endless) and all(
            job_id in unreached
            or (
                job_id in endless
                and (job.is_halted or state.jobs[job_id].workers or (job.last_started_at or 0.0) >= now)
            )
            for job_id, job in jobs.items()
        )

    run = await simulation.run(stop_when=stop_when)
    return await run.store.read(0, await run.store.position())


def _ends(estimate: Estimate) -> bool:
    """Return whether the job ends within LONGEST_S on some number of workers."""
    return estimate.remaining_s <= LONGEST_S * max(estimate.speedup)


def _held_behind(state: ClusterState, endless: Set[str], *, now: float) -> set[str]:
    """Return the jobs that are held until one of these ends, or until one that is held itself."""
    held = held_jobs(state, now)
    behind: set[str] = set()
    reached: Set[str] = endless
    while reached:
        keys = {key for job_id in reached for key in _keys(state.jobs[job_id])}
        reached = {
            job_id
            for job_id in held.keys() - behind
            if keys.intersection([dependency.key for dependency in state.jobs[job_id].waits_for])
            # Of a bounded array, a task that is held follows one that ends.
            or keys.intersection(_keys(state.jobs[job_id])[1:])
        }
        behind |= reached
    return behind


def _keys(job: Job) -> Sequence[str]:
    """Return the keys of the dependencies that wait for the job: its own, and that of its array."""
    array = job.spec.array
    return [job.spec.job_id] if array is None else [job.spec.job_id, f"array {array.array_id}"]


def _expected_times(
    state: ClusterState, starts: Mapping[str, float], ends: Mapping[str, float], *, now: float
) -> Mapping[str, ExpectedTimes]:
    waiting = [job for job in state.jobs.values() if not job.workers and not job.is_canceling and not job.is_halted]
    held = held_jobs(state, now)
    # A job that is held has a start, but no place in the queue.
    waiting_ids = {job.spec.job_id for job in waiting}
    waiting = [job for job in waiting if job.spec.job_id not in held]
    # Jobs whose start the simulation did not reach follow the others, in the order of submission.
    waiting.sort(key=lambda job: (starts.get(job.spec.job_id, math.inf), *_queue_order(job)))
    position = {job.spec.job_id: place for place, job in enumerate(waiting, start=1)}
    return {
        job_id: ExpectedTimes(
            position=position.get(job_id),
            starts_at=starts.get(job_id) if job_id in waiting_ids else None,
            finishes_at=ends.get(job_id),
        )
        for job_id in state.jobs
    }


def _queue_order(job: Job) -> tuple[int, int, float, str]:
    """Order jobs by their priority and queue, then by submission."""
    return -job.spec.priority, job.queue_level, job.submitted_at, job.spec.job_id


def _training(job: Job, state: ClusterState, own: JobMeasurements | None, now: float) -> Training:
    """Return the job with its progress: its last report, and its work since then."""
    estimate = state.estimates[job.spec.job_id]
    # Of unknown length: one epoch, which never ends.
    left = max(0.0, job.spec.epochs - job.epochs_done) if job.spec.epochs else 1.0
    steps = min(_MOST_STEPS, math.ceil(left))
    restart_s = estimate.resize_cost_s
    profile = LearnedProfile(
        epochs=steps,
        costs=Costs(start_s=restart_s, resize_s=restart_s, migrate_s=restart_s),
        step_s=estimate.remaining_s / steps if steps else 0.0,
        estimate=estimate,
    )
    training = Training(
        job.spec,
        profile,
        exact_end,
        workers=dict(job.workers),
        updated_at=now,
        resumes_at=now,
        training_since=now,
        epochs_before=job.epochs_done,
        epochs_each=left / steps if steps else 1.0,
    )
    if own is not None and math.isfinite(profile.step_s):
        span = own.span
        training.fraction = min(1.0, sum(_share(profile, *piece) for piece in span.work_since_report(now, restart_s)))
        if job.workers and span.changes:
            training.resumes_at = max(now, span.changed_at + restart_s)
    training.respecify(job.spec, now)
    return training


def _share(profile: LearnedProfile, workers: int, is_spanning: bool, seconds: float) -> float:
    if not workers or not seconds or not profile.step_s:
        return 0.0
    return seconds / profile.seconds(workers, is_spanning=is_spanning)


_BUDGET: Final = ForecastBudget(events=500_000, wall_s=20.0)
"""Nobody waits longer for an answer."""


async def expected_start(store: EventStore, job_id: str, position: int, *, pool: str) -> float | None:
    """Return the instant at which the job is expected to have workers again; None where unknown.

    The simulation starts at `position` >= 1 of the log, where the job is live and has no workers.
    """
    live = Live()
    after = await restore(store, live, at_most=position)
    await catch_up(store, [live], after=after, until=position)
    (event,) = await store.read(position - 1, 1)
    expected = await forecast(live, pool, event.recorded_at, budget=_BUDGET)
    return expected[job_id].starts_at if job_id in expected else None
