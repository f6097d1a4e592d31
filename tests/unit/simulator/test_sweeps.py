"""Drawn arrays and chains, simulated whole: bounds and order hold at every event, all ends, and the log verifies."""

from collections.abc import Sequence
from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import a_node, a_spec
from tests.reasons import said
from voda.controller.follower import catch_up
from voda.domain.dependency import Dependency
from voda.domain.job import JobSpec, Phase
from voda.domain.job_array import ArrayTask
from voda.domain.reasons.requests import Requested
from voda.domain.settings import Settings
from voda.domain.state import linear_speedup
from voda.events.envelope import Event
from voda.events.types import (
    JobCanceled,
    JobCancelRequested,
    JobCompleted,
    JobSubmitted,
    NodeJoined,
    SettingsChanged,
    WorkerStarted,
)
from voda.policies import POLICIES
from voda.projections.jobs.registry import JobRegistry
from voda.projections.live import Live
from voda.simulator.engine import InitialState, ScheduledFact, Simulation, SimulationOptions, SimulationRun
from voda.simulator.workload import Arrival, Costs, SpeedupProfile, Workload
from voda.timetravel.verify import verify

NOT_NEEDED: Final = Requested(text="not needed")
AT: Final = 1_609_459_200.0
NODES: Final = (a_node("n1"), a_node("n2"))


def an_array(name: str, tasks: int, at_once: int, after: Sequence[Dependency]) -> list[JobSpec]:
    def task(index: int) -> ArrayTask:
        return ArrayTask(
            array_id=f"{name}-0",
            name=name,
            index=index,
            indices=f"0-{tasks - 1}" if tasks > 1 else "0",
            at_once=at_once,
        )

    return [a_spec(f"{name}-{index}", array=task(index), after=tuple(after), max_replicas=2) for index in range(tasks)]


@st.composite
def drawn_groups(draw: st.DrawFn) -> list[list[JobSpec]]:
    """Return jobs and arrays, each after some of those before it."""
    groups: list[list[JobSpec]] = []
    for number in range(draw(st.integers(1, 6))):
        after = []
        for earlier in draw(st.sets(st.integers(0, number - 1), max_size=3)) if number else ():
            first = groups[earlier][0]
            array = first.array.name if first.array else ""
            after.append(Dependency(job_id=first.job_id, array=array, condition=draw(st.sampled_from(["ok", "any"]))))
        if draw(st.booleans()):
            groups.append(an_array(f"s{number}", draw(st.integers(1, 6)), draw(st.integers(0, 3)), after))
        else:
            groups.append([a_spec(f"j{number}", after=tuple(after), max_replicas=draw(st.integers(1, 3)))])
    return groups


async def simulated(
    groups: Sequence[Sequence[JobSpec]], policy: str, cancels: Sequence[tuple[str, float]] = ()
) -> SimulationRun:
    arrivals = [
        Arrival(
            spec=spec,
            submitted_s=60.0 * number,
            profile=SpeedupProfile(
                epochs=2, work_s=300.0, speedup=linear_speedup(spec.max_replicas), costs=Costs(start_s=5.0)
            ),
        )
        for number, group in enumerate(groups)
        for spec in group
    ]
    initial = InitialState(
        facts=(
            SettingsChanged(pool="default", settings={"policy": policy}),
            SettingsChanged(pool="default", settings={"ratelimit_s": 10.0}),
            *(NodeJoined(node=node) for node in NODES),
        ),
        scheduled=tuple(
            ScheduledFact(at=round(AT + at_s, 6), fact=JobCancelRequested(job_id=job_id, reason=NOT_NEEDED))
            for job_id, at_s in sorted(cancels, key=lambda cancel: cancel[1])
        ),
    )
    workload = Workload(name="drawn", source="hypothesis", arrivals=tuple(arrivals), nodes=NODES, begins_at=AT)
    return await Simulation(workload, SimulationOptions(settings=Settings(policy=policy)), initial=initial).run()


class Rules:
    """Looks at the state after every event."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._ends: dict[str, bool] = {}
        """Job -> whether it completed."""
        self._specs: dict[str, JobSpec] = {}

    def __call__(self, event: Event) -> None:
        match event.data:
            case JobSubmitted(spec=spec):
                self._specs[spec.job_id] = spec
            case JobCompleted(job_id=job_id) | JobCanceled(job_id=job_id):
                self._ends[job_id] = isinstance(event.data, JobCompleted)
            case WorkerStarted(job_id=job_id):
                self._refuse_early_start(self._specs[job_id])
                self._refuse_crowd(self._specs[job_id])
            case _:
                pass

    def _refuse_early_start(self, spec: JobSpec) -> None:
        for dependency in spec.after:
            others = [job_id for job_id, other in self._specs.items() if self._is_of(other, dependency)]
            assert all(other in self._ends for other in others), (
                f"{spec.job_id} started before {dependency.target} ended"
            )
            if dependency.condition == "ok":
                assert all(self._ends[other] for other in others), f"{spec.job_id} started after a failure"

    def _is_of(self, other: JobSpec, dependency: Dependency) -> bool:
        if dependency.array:
            return other.array is not None and other.array.array_id == dependency.job_id
        return other.job_id == dependency.job_id

    def _refuse_crowd(self, spec: JobSpec) -> None:
        if spec.array is None:
            return
        state = self._live.cluster.state("default")
        tasks = [job for job in (*state.jobs.values(), *state.outlived.values()) if job.spec.array is not None]
        own = [job for job in tasks if job.spec.array is not None and job.spec.array.array_id == spec.array.array_id]
        at_work = sum(bool(job.workers) for job in own)
        assert at_work <= (spec.array.at_once or at_work), f"{at_work} tasks of {spec.array.name} at work"
        if spec.array.at_once:
            # Those that never started have higher indices than any that did.
            fresh = [job.spec.array.index for job in own if job.first_started_at is None and job.spec.array is not None]
            assert spec.array.index < min(fresh, default=1 << 30), f"{spec.job_id} overtook"


@given(
    groups=drawn_groups(),
    policy=st.sampled_from(sorted(POLICIES)),
    cancels=st.lists(st.tuples(st.integers(0, 30), st.floats(0, 2_000)), max_size=3),
)
@settings(max_examples=60)
async def test_drawn_arrays_and_chains_keep_their_bounds_and_order_and_all_end(
    groups: list[list[JobSpec]], policy: str, cancels: list[tuple[int, float]]
) -> None:
    specs = [spec for group in groups for spec in group]
    run = await simulated(groups, policy, [(specs[number % len(specs)].job_id, at_s) for number, at_s in cancels])
    assert run.unfinished == ()
    live, registry = Live(), JobRegistry()
    await catch_up(run.store, [live, registry], after=0, on_event=Rules(live))
    records = registry.jobs()
    assert set(records) == {spec.job_id for spec in specs}
    assert {record.phase for record in records.values()} <= {Phase.COMPLETED, Phase.CANCELED}
    asked = [event.event_id for event in await run.store.read(0, 100_000) if isinstance(event.data, JobCancelRequested)]
    assert len(asked) == len(set(asked))
    # A job is canceled by its user, or because one that it comes after did not complete.
    for spec in specs:
        if records[spec.job_id].phase is Phase.CANCELED and records[spec.job_id].cancel_reason != NOT_NEEDED:
            assert any(dependency.condition == "ok" for dependency in spec.after)
    assert (await verify(run.store)).difference is None


async def test_chain_whose_first_job_is_canceled_is_canceled_to_its_end() -> None:
    specs = [a_spec("j0")] + [a_spec(f"j{n}", after=(Dependency(job_id=f"j{n - 1}"),)) for n in range(1, 5)]
    last = a_spec("last", after=(Dependency(job_id="j4", condition="any"),))
    run = await simulated([[spec] for spec in (*specs, last)], "fifo", [("j0", 100.0)])
    registry = JobRegistry()
    await catch_up(run.store, [registry], after=0)
    records = registry.jobs()
    assert [said(records[spec.job_id].reason) for spec in specs] == [
        "not needed",
        *(f"j{n} was canceled" for n in range(4)),
    ]
    assert records["last"].phase is Phase.COMPLETED
