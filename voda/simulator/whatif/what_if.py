"""What if another policy had decided from some position of a log on: simulate the recorded input again.

Rule: up to the position the new log equals the old one, byte for byte; from there on only the actions of people and
the changes of nodes come from it. Failures of single workers do not: those workers need not exist in the new run.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import get_args

from msgspec import Struct
from msgspec.structs import asdict, replace

from voda.controller.follower import Foldable, catch_up
from voda.domain.errors import InvalidInput
from voda.domain.node import Node
from voda.domain.settings import SettingValue
from voda.events import types as facts
from voda.events.envelope import Event, Sealed
from voda.log.store import EventStore
from voda.projections.cluster.live_cluster import LiveCluster
from voda.projections.history import History
from voda.projections.timeline import Timeline
from voda.simulator.engine import InitialState, ScheduledFact, Simulation, SimulationOptions, SimulationRun
from voda.simulator.training import Training
from voda.simulator.whatif.comparison import Cutoff, FoldedRun, compare_runs
from voda.simulator.whatif.epoch_times import EpochMeasurements
from voda.simulator.whatif.hindsight import Hindsight
from voda.simulator.whatif.job_replay import JobReplay
from voda.simulator.workload import Arrival, Workload
from voda.wire.what_ifs import ComparisonView

_PAGE = 5_000


class AlternativePolicy(Struct, frozen=True, kw_only=True):
    """What decides instead; None = as recorded."""

    policy: str | None = None
    placer: str | None = None
    fair_share: str | None = None

    def given(self) -> dict[str, SettingValue]:
        """Return the settings that it names."""
        return {name: value for name, value in asdict(self).items() if value is not None}


class RecordedLog(Struct, frozen=True, kw_only=True):
    """A log, cut at a position: the state there, and what people and nodes did afterwards."""

    position: int
    at: float
    """Of the cut; seconds since the epoch."""
    pool: str
    past: tuple[Sealed, ...]
    nodes: tuple[Node, ...]
    outlived_workers: tuple[facts.WorkerExited, ...]
    """Exits of workers that outlived their jobs; the simulation records them first."""
    arrivals: tuple[Arrival, ...]
    scheduled: tuple[ScheduledFact, ...]
    replay: JobReplay
    live: LiveCluster

    def trainings(self) -> tuple[Training, ...]:
        """Return the jobs that were live at the cut, anew for each simulation, which changes them."""
        specs = {job_id: job.spec for job_id, job in self.live.jobs(self.pool).items()}
        return tuple(dataclasses.replace(training) for training in self.replay.trainings(specs, self.at))


async def _read_recording(store: EventStore, position: int, pool: str | None) -> RecordedLog:
    measurements = EpochMeasurements()
    whole, live = LiveCluster(), LiveCluster()
    tail: list[Event] = []

    def divide(event: Event) -> None:
        measurements.apply(event)
        if event.position <= position:
            live.apply(event)
        elif isinstance(event.data, _INPUTS):
            tail.append(event)

    await catch_up(store, [whole], after=0, on_event=divide)
    pool = _pool_of(whole, pool)
    hindsight = Hindsight(measurements.jobs, whole.settings(pool))
    replay = JobReplay(hindsight.profile)
    await catch_up(store, [], after=0, until=position, on_event=replay.apply)
    at = await _instant(store, position)
    return RecordedLog(
        position=position,
        at=at,
        pool=pool,
        past=await _sealed_until(store, position),
        nodes=tuple(live.state(pool).nodes.values()),
        outlived_workers=tuple(
            facts.WorkerExited(job_id=job_id, workers=workers, cause="finished")
            for job_id, workers in replay.outlived_workers().items()
        ),
        arrivals=tuple(_arrivals(tail, pool, at, hindsight)),
        scheduled=tuple(_scheduled(tail, pool, at)),
        replay=replay,
        live=live,
    )


async def _what_if(recording: RecordedLog, choice: AlternativePolicy) -> SimulationRun:
    beginning: list[facts.AnyFact] = [*recording.outlived_workers]
    if choice != AlternativePolicy():
        beginning.append(facts.SettingsChanged(pool=recording.pool, settings=choice.given()))
    initial = InitialState(
        log=recording.past,
        facts=tuple(beginning),
        trainings=recording.trainings(),
        scheduled=tuple(_without_choice(entry, choice) for entry in recording.scheduled),
    )
    workload = Workload(
        name=f"from position {recording.position}",
        source="a recorded log",
        arrivals=recording.arrivals,
        nodes=recording.nodes,
        begins_at=recording.at,
    )
    return await Simulation(workload, SimulationOptions(), initial=initial).run()


class SimulatedInstead(Struct, frozen=True, kw_only=True):
    """What another policy came to."""

    comparison: ComparisonView
    store: EventStore
    """The log of its run."""


async def compare_with(
    store: EventStore, position: int, choice: AlternativePolicy, *, pool: str | None = None
) -> ComparisonView:
    """Compare a log with what would have happened from `position` on, under the recorded policy and under another.

    Raises:
        InvalidInput: unknown policy or placer; the pool is not in the log, or there are several and none is named.
    """
    return (await simulate_instead(store, position, choice, pool=pool)).comparison


async def simulate_instead(
    store: EventStore,
    position: int,
    choice: AlternativePolicy,
    *,
    pool: str | None = None,
    said: Callable[[float, str], None] = lambda _part, _step: None,
) -> SimulatedInstead:
    """Return the comparison of `compare_with` and the run of the other policy.

    `said` is told what share of the work is done, and what comes next; raises what `compare_with` raises.
    """
    said(0.0, "reading the log")
    recording = await _read_recording(store, position, pool)
    said(0.2, "simulating the recorded policy again")
    resimulated = await _what_if(recording, AlternativePolicy())
    said(0.55, "simulating the other policy")
    other = await _what_if(recording, choice)
    said(0.9, "comparing")
    recorded = await _fold(store)
    end, before = LiveCluster(), History()
    folded = await _fold(other.store, end)
    settings = end.settings(recording.pool)
    await catch_up(store, [before], after=0, until=position)
    cut = Cutoff(
        position=position,
        at=recording.at,
        policy=settings.policy,
        placer=settings.placer,
        ended={job.job_id for job in before.finished},
        submitted={*recorded.history.live, *(job.job_id for job in recorded.history.finished)},
    )
    compared = compare_runs(cut, recorded=recorded, resimulated=await _fold(resimulated.store), what_if=folded)
    return SimulatedInstead(comparison=compared, store=other.store)


async def _fold(store: EventStore, *others: Foldable) -> FoldedRun:
    run = FoldedRun(history=History(), timeline=Timeline())
    await catch_up(store, [run.history, run.timeline, *others], after=0)
    return run


_INPUTS = (*get_args(facts.Intent), *get_args(facts.NodeFact))


def _pool_of(whole: LiveCluster, name: str | None) -> str:
    pools = whole.pools()
    if name is None and len(pools) > 1:
        raise InvalidInput(f"the log has the pools {', '.join(pools)}: name one with --pool")
    if name is not None and name not in pools:
        raise InvalidInput(f"pool {name[:80]!r} is not in the log: it has {', '.join(pools) or 'none'}")
    return name or (pools[0] if pools else "default")


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
        if isinstance(event.data, facts.JobSubmitted) and event.data.spec.pool == pool
    ]


def _scheduled(tail: Sequence[Event], pool: str, at: float) -> Sequence[ScheduledFact]:
    return [
        ScheduledFact(at=max(at, event.recorded_at), fact=event.data)
        for event in tail
        if isinstance(event.data, _INPUTS)
        and not isinstance(event.data, facts.JobSubmitted)
        and _is_about(event.data, pool)
        # The controller of the simulation decides anew which jobs wait in vain for others.
        and not (isinstance(event.data, facts.JobCancelRequested) and event.actor.startswith("controller/"))
    ]


def _is_about(fact: facts.AnyFact, pool: str) -> bool:
    match fact:
        case facts.SettingsChanged() | facts.VirtualClustersApplied() | facts.NodeLeft() | facts.NodeRoomChanged():
            return fact.pool == pool
        case facts.NodeJoined() | facts.NodeChanged():
            return fact.node.pool == pool
        case _:
            # Facts about jobs of other pools change nothing in the simulation.
            return True


def _without_choice(entry: ScheduledFact, choice: AlternativePolicy) -> ScheduledFact:
    """Remove from a later change of policy what the choice overrides."""
    fact = entry.fact
    if not isinstance(fact, facts.SettingsChanged):
        return entry
    kept = {name: value for name, value in fact.settings.items() if name not in choice.given()}
    return replace(entry, fact=replace(fact, settings=kept))
