"""What if another policy had decided, from some position of a log on: the recorded input, simulated again.

Rule: up to the position the new log is the old one, byte for byte; from there on only what people and nodes did is
taken from it. Deaths of single workers are not: they happened to workers that need not exist now.
"""

import dataclasses
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from voda.controller.follower import catch_up
from voda.domain.errors import InvalidInput
from voda.domain.node import Node
from voda.domain.state import Settings
from voda.events.envelope import Event, Sealed
from voda.events.types import (
    AnyFact,
    JobCancelRequested,
    JobChanged,
    JobSubmitted,
    NodeChanged,
    NodeJoined,
    NodeLeft,
    PolicyChanged,
    RatelimitChanged,
    WorkerExited,
)
from voda.log.store import EventStore
from voda.placement.registry import placer as known_placer
from voda.policies.registry import policy as known_policy
from voda.projections.history import History
from voda.projections.live_cluster import LiveCluster
from voda.projections.timeline import Timeline
from voda.simulator.engine import Simulation
from voda.simulator.profiles.base import Arrival, Workload
from voda.simulator.run import InitialState, ScheduledFact, SimulationOptions, SimulationRun
from voda.simulator.training import Training
from voda.simulator.whatif.comparison import Cutoff, FoldedRun, WhatIfComparison, compare_runs
from voda.simulator.whatif.hindsight import Hindsight
from voda.simulator.whatif.job_replay import JobReplay
from voda.simulator.whatif.measured_epochs import EpochMeasurements

_PAGE = 5_000


class AlternativePolicy(Struct, frozen=True, kw_only=True):
    """What is decided differently; None = as recorded."""

    policy: str | None = None
    placer: str | None = None


class RecordedLog(Struct, frozen=True, kw_only=True):
    """A log, cut at a position: how things stood there, and what people and nodes did afterwards."""

    position: int
    at: float
    """Of the cut; seconds since the epoch."""
    pool: str
    past: tuple[Sealed, ...]
    settings: Settings
    nodes: tuple[Node, ...]
    strays: tuple[WorkerExited, ...]
    """To be recorded first: workers that outlived their jobs."""
    arrivals: tuple[Arrival, ...]
    scheduled: tuple[ScheduledFact, ...]
    rehearsal: JobReplay
    live: LiveCluster

    def trainings(self) -> tuple[Training, ...]:
        """Return the jobs that were live at the cut, anew for each simulation, which changes them."""
        specs = {job_id: job.spec for job_id, job in self.live.jobs(self.pool).items()}
        return tuple(copy_log(training) for training in self.rehearsal.trainings(specs, self.at))


def copy_log(training: Training) -> Training:
    """Return a training that may be changed without changing this one."""
    return dataclasses.replace(training)


async def record(store: EventStore, position: int, *, pool: str | None = None) -> RecordedLog:
    """Read a whole log for what-if simulations from `position` on.

    Args:
        store: the log.
        position: 0 = from the beginning.
        pool: where the log has more than one.

    Raises:
        InvalidInput: the pool is not in the log, or there are several and none is named.
    """
    watch = EpochMeasurements()
    whole, live = LiveCluster(), LiveCluster()
    tail: list[Event] = []

    def see(event: Event) -> None:
        watch.apply(event)
        if event.position <= position:
            live.apply(event)
        elif isinstance(event.data, _INPUTS):
            tail.append(event)

    await catch_up(store, [whole], after=0, seen=see)
    pool = _pool_of(whole, pool)
    hindsight = Hindsight(watch.jobs, whole.settings(pool))
    rehearsal = JobReplay(hindsight.profile)
    await catch_up(store, [], after=0, until=position, seen=rehearsal.apply)
    at = await _instant(store, position)
    return RecordedLog(
        position=position,
        at=at,
        pool=pool,
        past=await _sealed_until(store, position),
        settings=live.settings(pool),
        nodes=tuple(live.state(pool).nodes.values()),
        strays=tuple(
            WorkerExited(job_id=job_id, workers=workers, cause="finished")
            for job_id, workers in rehearsal.strays().items()
        ),
        arrivals=tuple(_arrivals(tail, pool, at, hindsight)),
        scheduled=tuple(_scheduled(tail, pool, at)),
        rehearsal=rehearsal,
        live=live,
    )


async def what_if(recording: RecordedLog, choice: AlternativePolicy) -> SimulationRun:
    """Simulate what would have happened from the cut on.

    Raises:
        InvalidInput: unknown policy or placer.
    """
    differs = choice != AlternativePolicy()
    facts: list[AnyFact] = [*recording.strays]
    if differs:
        facts.append(PolicyChanged(pool=recording.pool, policy=choice.policy, placer=choice.placer))
    chosen = (_chosen(entry, choice) for entry in recording.scheduled)
    opening = InitialState(
        log=recording.past,
        facts=tuple(facts),
        trainings=recording.trainings(),
        scheduled=tuple(entry for entry in chosen if entry is not None),
    )
    workload = Workload(
        name=f"from position {recording.position}",
        source="a recorded log",
        arrivals=recording.arrivals,
        nodes=recording.nodes,
        begins_at=recording.at,
    )
    simulation = Simulation(workload, SimulationOptions(), policies=known_policy, placers=known_placer, initial=opening)
    return await simulation.run()


async def compare_with(
    store: EventStore, position: int, choice: AlternativePolicy, *, pool: str | None = None
) -> WhatIfComparison:
    """Compare a log with what would have happened from `position` on, under the recorded policy and under another.

    Raises:
        InvalidInput: see record and what_if.
    """
    recording = await record(store, position, pool=pool)
    resimulated = await what_if(recording, AlternativePolicy())
    other = await what_if(recording, choice)
    recorded = await _fold(store)
    settings = (await _final(other.store)).settings(recording.pool)
    before = History()
    await catch_up(store, [before], after=0, until=position)
    cut = Cutoff(
        position=position,
        at=recording.at,
        policy=settings.policy,
        placer=settings.placer,
        ended={job.job_id for job in before.finished},
        submitted={*recorded.history.live, *(job.job_id for job in recorded.history.finished)},
    )
    return compare_runs(
        cut, recorded=recorded, resimulated=await _fold(resimulated.store), what_if=await _fold(other.store)
    )


async def _fold(store: EventStore) -> FoldedRun:
    told = FoldedRun(history=History(), timeline=Timeline())
    await catch_up(store, [told.history, told.timeline], after=0)
    return told


async def _final(store: EventStore) -> LiveCluster:
    live = LiveCluster()
    await catch_up(store, [live], after=0)
    return live


_INPUTS = (
    JobSubmitted,
    JobCancelRequested,
    JobChanged,
    PolicyChanged,
    RatelimitChanged,
    NodeJoined,
    NodeChanged,
    NodeLeft,
)


def _pool_of(whole: LiveCluster, asked: str | None) -> str:
    pools = whole.pools()
    if asked is None and len(pools) > 1:
        raise InvalidInput(f"the log has the pools {', '.join(pools)}: name one with --pool")
    if asked is not None and asked not in pools:
        raise InvalidInput(f"pool {asked[:80]!r} is not in the log: it has {', '.join(pools) or 'none'}")
    return asked or (pools[0] if pools else "default")


async def _instant(store: EventStore, position: int) -> float:
    events = await store.read(max(position - 1, 0), 1)
    return events[0].recorded_at if events else 0.0


async def _sealed_until(store: EventStore, position: int) -> tuple[Sealed, ...]:
    """Return the first events of a log, byte for byte."""
    past: list[Sealed] = []
    while len(past) < position:
        past += await store.read_sealed(len(past), min(_PAGE, position - len(past)))
    return tuple(past)


def _arrivals(tail: Sequence[Event], pool: str, at: float, hindsight: Hindsight) -> Sequence[Arrival]:
    return [
        Arrival(
            spec=event.data.spec,
            submitted_s=max(0.0, event.recorded_at - at),
            profile=hindsight.profile(event.data.spec.job_id),
        )
        for event in tail
        if isinstance(event.data, JobSubmitted) and event.data.spec.pool == pool
    ]


def _scheduled(tail: Sequence[Event], pool: str, at: float) -> Sequence[ScheduledFact]:
    return [
        ScheduledFact(at=max(at, event.recorded_at), fact=event.data)
        for event in tail
        if isinstance(event.data, _INPUTS) and not isinstance(event.data, JobSubmitted) and _is_of(event.data, pool)
    ]


def _is_of(fact: AnyFact, pool: str) -> bool:
    match fact:
        case PolicyChanged() | RatelimitChanged() | NodeLeft():
            return fact.pool == pool
        case NodeJoined() | NodeChanged():
            return fact.node.pool == pool
        case _:
            # Facts about jobs of other pools concern nobody in the simulation.
            return True


def _chosen(entry: ScheduledFact, choice: AlternativePolicy) -> ScheduledFact | None:
    """Leave out of later changes of the policy what was chosen otherwise."""
    fact = entry.fact
    if not isinstance(fact, PolicyChanged):
        return entry
    policy = None if choice.policy else fact.policy
    placer = None if choice.placer else fact.placer
    return replace(entry, fact=replace(fact, policy=policy, placer=placer))
