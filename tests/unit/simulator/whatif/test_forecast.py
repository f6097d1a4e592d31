"""A forecast is what then happens, if jobs are as fast as they are believed to be and nobody else comes."""

import asyncio
import math
import statistics
from collections.abc import Mapping
from functools import cache

import pytest

from tests.builders import Log, a_node, a_spec
from voda.domain.dependency import Dependency
from voda.domain.gpus import Gpus
from voda.domain.job import JobSpec
from voda.domain.job_array import ArrayTask
from voda.domain.node import Node
from voda.domain.plan import ExpectedTimes
from voda.domain.rng import rng_at
from voda.domain.settings import Settings
from voda.events.types import (
    JobCancelRequested,
    JobCompleted,
    JobProgressed,
    JobSubmitted,
    NodeJoined,
    PlanAdopted,
    SettingsChanged,
    WorkerStarted,
)
from voda.policies import POLICIES
from voda.projections.live import Live
from voda.simulator.engine import Simulation, SimulationOptions
from voda.simulator.whatif.forecast import ForecastBudget, forecast
from voda.simulator.workload import Arrival, Costs, SpeedupProfile, Workload

COST_S = 20.0
MANY = ForecastBudget(events=1_000_000, wall_s=600.0)


@cache
def a_workload(*, epochs: int, jobs: int = 16) -> Workload:
    """Return jobs of one category that scale linearly, as is believed until two sizes were measured."""
    rng, at = rng_at(epochs, "forecast"), 0.0
    arrivals = []
    for number in range(jobs):
        most, count = rng.choice([1, 2, 4]), rng.randint(epochs // 3, epochs)
        profile = SpeedupProfile(
            epochs=count,
            work_s=count * 600.0 / epochs,
            speedup=tuple(float(n) for n in range(most + 1)),
            costs=Costs(start_s=COST_S, resize_s=COST_S, migrate_s=COST_S),
        )
        spec = JobSpec(job_id=f"j{number:02}", category="c", max_replicas=most, epochs=count)
        arrivals.append(Arrival(spec=spec, submitted_s=at, profile=profile))
        at += rng.uniform(0.0, 30.0)
    return Workload(name="test", source="drawn", arrivals=tuple(arrivals), nodes=(Node(name="n1", gpus=Gpus(4)),))


def simulation(workload: Workload, name: str) -> Simulation:
    settings = Settings(policy=name, ratelimit_s=30.0, resize_cost_s=COST_S)
    return Simulation(workload, SimulationOptions(settings=settings))


def what_happens(workload: Workload, name: str, since: float) -> Mapping[str, tuple[float, float]]:
    """Return job -> its first start after an instant, and its end."""

    async def told() -> Mapping[str, tuple[float, float]]:
        run = await simulation(workload, name).run()
        starts: dict[str, float] = {}
        ends: dict[str, float] = {}
        for event in await run.store.read(0, 1_000_000):
            if isinstance(event.data, WorkerStarted) and event.recorded_at > since:
                starts.setdefault(event.data.job_id, event.recorded_at)
            if isinstance(event.data, JobCompleted):
                ends[event.data.job_id] = event.recorded_at
        return {job_id: (starts.get(job_id, math.nan), end) for job_id, end in ends.items()}

    return asyncio.run(told())


def state_at(workload: Workload, name: str, instant: float) -> bytes:
    """Return the live state once everything that was due by then has happened."""

    async def dumped() -> bytes:
        run = await simulation(workload, name).run()
        live = Live()
        for event in await run.store.read(0, 1_000_000):
            if event.recorded_at <= instant:
                live.apply(event)
        return live.dump()

    return asyncio.run(dumped())


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("share", [0.0, 0.4])
@pytest.mark.parametrize("epochs", [12, 100])
def test_forecast_is_what_then_happens(name: str, share: float, epochs: int) -> None:
    # Of a hundred epochs not every report is simulated, and decisions heed how long jobs still need.
    is_exact = epochs == 12 and name != "afs-l"
    tolerance = 1e-6 if is_exact else 0.05
    workload = a_workload(epochs=epochs)
    last = workload.begins_at + workload.arrivals[-1].submitted_s
    end = max(end for _, end in what_happens(workload, name, last).values())
    now = last + share * (end - last) + 1.0
    truth = what_happens(workload, name, now)
    live = Live()
    live.load(state_at(workload, name, now))
    told = asyncio.run(forecast(live, "default", now, budget=MANY))
    assert told
    waiting = sorted((job_id for job_id in told if told[job_id].position), key=lambda one: told[one].position or 0)
    assert [told[job_id].position for job_id in waiting] == list(range(1, len(waiting) + 1))
    assert {job_id for job_id in told if told[job_id].starts_at is not None} == set(waiting)
    ends = {job_id: expected.finishes_at or math.inf for job_id, expected in told.items()}
    errors = [abs(ends[job_id] - truth[job_id][1]) / (truth[job_id][1] - now) for job_id in told]
    if name in ("afs-l", "elastic-value") and not is_exact:
        # They weigh jobs against each other to the last digit: a report less may let two of them trade places.
        assert statistics.fmean(errors) <= (0.1 if name == "afs-l" else 0.6)
    else:
        assert max(errors) <= tolerance
    if is_exact:
        assert waiting == sorted(waiting, key=lambda job_id: truth[job_id][0])
        for job_id in waiting:
            assert told[job_id].starts_at == pytest.approx(truth[job_id][0], abs=0.001)


def a_log(policy_name: str = "elastic-fifo") -> Log:
    """Return a job `a` that holds both GPUs of the cluster, and `b`, which waits."""
    log = Log()
    log.add(NodeJoined(node=a_node("n1", gpus=2)), at=0)
    log.add(SettingsChanged(pool="default", settings={"policy": policy_name, "resize_cost_s": 10.0}), at=0)
    log.add(JobSubmitted(spec=a_spec("a", min_replicas=2, max_replicas=2, epochs=10)), at=0)
    log.add(JobSubmitted(spec=a_spec("b", min_replicas=2, max_replicas=2, epochs=5)), at=1)
    placed = {"a": ("n1", "n1")}
    plan = PlanAdopted(
        pool="default", number=1, based_on=4, policy=policy_name, placer="steady", cause="x", placed=placed
    )
    log.add(plan, at=1)
    log.add(WorkerStarted(job_id="a", workers={0: "n1", 1: "n1"}), at=2)
    return log


def told(log: Log, now: float, budget: ForecastBudget = MANY) -> Mapping[str, ExpectedTimes]:
    live = Live()
    for event in log.events:
        live.apply(event)
    return asyncio.run(forecast(live, "default", now, budget=budget))


def test_forecast_by_hand_when_a_job_has_measured_its_epochs() -> None:
    log = a_log()
    log.add(JobProgressed(job_id="a", epochs_done=1, workers=2), at=112)
    log.add(JobProgressed(job_id="a", epochs_done=2, workers=2, epoch_s=100.0), at=212)
    expected = told(log, 262)
    assert expected["a"].finishes_at == pytest.approx(1012)
    assert expected["b"].position == 1
    assert expected["b"].starts_at == pytest.approx(1012)
    assert expected["b"].finishes_at is None  # a category of its own: nothing is known of its speed


def test_forecast_when_the_length_is_unknown_promises_nothing_to_who_waits_for_it() -> None:
    expected = told(a_log(), 50)
    assert expected == {"a": ExpectedTimes(), "b": ExpectedTimes(position=1)}


def test_forecast_when_a_job_is_canceled_tells_the_start_of_the_next() -> None:
    log = a_log()
    log.add(JobCancelRequested(job_id="a"), at=40)
    expected = told(log, 50)
    assert expected["a"].finishes_at is not None
    assert expected["b"].starts_at is not None
    assert expected["a"].finishes_at <= expected["b"].starts_at < 100


def test_forecast_when_the_budget_is_spent_still_tells_positions() -> None:
    log = a_log()
    log.add(JobProgressed(job_id="a", epochs_done=1, workers=2, epoch_s=100.0), at=112)
    log.add(JobSubmitted(spec=a_spec("c", min_replicas=2, max_replicas=2)), at=113)
    expected = told(log, 150, ForecastBudget(events=0, wall_s=600.0))
    assert expected == {"a": ExpectedTimes(), "b": ExpectedTimes(position=1), "c": ExpectedTimes(position=2)}


@pytest.mark.parametrize("policy", ["elastic-fifo", "tiresias"])
def test_forecast_of_a_job_that_would_take_longer_than_the_calendar_goes_has_no_end_and_that_of_others_has(
    policy: str,
) -> None:
    log = a_log(policy)
    log.add(NodeJoined(node=a_node("n2", gpus=2)), at=3)
    log.add(JobSubmitted(spec=a_spec("c", epochs=1_000_000_000)), at=4)
    log.add(WorkerStarted(job_id="c", workers={0: "n2"}), at=5)
    log.add(JobProgressed(job_id="c", epochs_done=1, workers=1, epoch_s=1e9), at=6)
    # Behind each other, ten who take a hundred thousand years each.
    for number in range(10):
        behind = (Dependency(job_id=f"d{number - 1}"),) if number else ()
        log.add(JobSubmitted(spec=a_spec(f"d{number}", category="c", epochs=3000, after=behind)), at=7)
    log.add(JobProgressed(job_id="a", epochs_done=1, workers=2, epoch_s=100.0), at=112)
    expected = told(log, 150, ForecastBudget(events=5_000, wall_s=600.0))
    assert expected["a"].finishes_at is not None
    assert {each.finishes_at for name, each in expected.items() if name[0] in "cd"} == {None}


def test_forecast_without_nodes_or_jobs_is_made_all_the_same() -> None:
    log = Log()
    assert told(log, 0) == {}
    log.add(JobSubmitted(spec=a_spec("a")), at=0)
    assert told(log, 5) == {"a": ExpectedTimes(position=1)}


def test_forecast_when_endless_jobs_take_turns_comes_to_an_end() -> None:
    log = a_log("tiresias")
    log.add(
        SettingsChanged(
            pool="default", settings={"parameters": {"tiresias": {"demote_gpu_s": 50.0, "promote_knob": 1.0}}}
        ),
        at=3,
    )
    expected = told(log, 50)
    assert expected["a"].finishes_at is expected["b"].finishes_at is None
    assert expected["b"].starts_at is not None


def test_forecast_of_a_job_that_comes_after_another_begins_with_its_end() -> None:
    log = a_log()
    log.add(NodeJoined(node=a_node("n2", gpus=4)), at=3)
    log.add(JobSubmitted(spec=a_spec("z", after=(Dependency(job_id="a"),))), at=4)
    log.add(JobProgressed(job_id="a", epochs_done=1, workers=2), at=112)
    log.add(JobProgressed(job_id="a", epochs_done=2, workers=2, epoch_s=100.0), at=212)
    expected = told(log, 262)
    assert expected["z"].position is None
    assert expected["z"].starts_at == pytest.approx(1012, abs=31)


def test_forecast_of_jobs_held_behind_one_without_a_known_end_comes_to_an_end_and_promises_nothing() -> None:
    log = a_log("tiresias")
    log.add(NodeJoined(node=a_node("n2", gpus=4)), at=3)
    log.add(
        SettingsChanged(
            pool="default", settings={"parameters": {"tiresias": {"demote_gpu_s": 50.0, "promote_knob": 1.0}}}
        ),
        at=3,
    )
    log.add(JobSubmitted(spec=a_spec("y", after=(Dependency(job_id="a"),))), at=4)
    log.add(JobSubmitted(spec=a_spec("z", after=(Dependency(job_id="y"),), epochs=3)), at=4)
    for index in range(3):
        task = ArrayTask(array_id="s-0", name="s", index=index, indices="0-2", at_once=1)
        log.add(JobSubmitted(spec=a_spec(f"s-{index}", array=task)), at=5)
    live = Live()
    for event in log.events:
        live.apply(event)
    expected = asyncio.run(forecast(live, "default", 50, budget=ForecastBudget(events=20_000, wall_s=600.0)))
    assert expected["s-0"].starts_at is not None
    assert {expected[job_id] for job_id in ("y", "z", "s-1", "s-2")} == {ExpectedTimes()}
