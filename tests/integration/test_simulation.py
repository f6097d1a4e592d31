"""Whole simulations: the invariants that hold at every event, for every policy and placer, whatever fails."""

import math

import pytest

from tests.builders import a_spec
from voda.controller.follower import catch_up
from voda.domain.job import JobSpec, Phase
from voda.domain.settings import Settings
from voda.domain.state import linear_speedup
from voda.events.envelope import Event
from voda.events.types import JobCompleted, PlanAdopted, WorkerStarted
from voda.placement import PLACERS
from voda.planner.plan_changes import interrupts
from voda.policies import POLICIES
from voda.projections.history import History
from voda.projections.live import Live
from voda.simulator.compare import ComparedRun, compare
from voda.simulator.engine import Simulation, SimulationOptions, SimulationRun
from voda.simulator.failures import FailureRates
from voda.simulator.workload import Arrival, SpeedupProfile, Workload
from voda.simulator.workloads.catalogue import load_workload
from voda.simulator.workloads.request import WorkloadOptions, parse_nodes

ROUGH = FailureRates(node_mtbf_s=60_000, node_repair_s=600, worker_mtbf_s=5_000)


def a_workload(seed: int = 1) -> Workload:
    """Return forty drawn jobs that come faster than a mixed cluster can serve them."""
    return load_workload(
        "poisson", nodes=parse_nodes("2x8,3x4,1x2"), seed=seed, options=WorkloadOptions(jobs=40, rate_per_h=60)
    )


async def a_run(
    policy: str, placer: str = "steady", failures: FailureRates | None = None, seed: int = 1
) -> SimulationRun:
    options = SimulationOptions(
        settings=Settings(policy=policy, placer=placer), seed=seed, failures=failures or FailureRates()
    )
    return await Simulation(a_workload(seed), options).run()


class Invariants:
    """Looks at the state after every event of a run."""

    def __init__(self, live: Live) -> None:
        self._live = live

    def __call__(self, event: Event) -> None:
        state = self._live.cluster.state("default")
        held = dict.fromkeys(state.nodes, 0)
        for job in state.jobs.values():
            assert (job.phase is Phase.RUNNING) >= bool(job.workers), f"{event}: workers, but {job.phase}"
            assert job.replicas <= job.spec.max_replicas, f"{event}: above max"
            for node in job.workers.values():
                held[node] += job.spec.gpus_per_replica
        assert all(held[node] <= state.nodes[node].gpus for node in held), f"{event}: GPUs overcommitted"
        if isinstance(event.data, PlanAdopted):
            assert event.data.based_on < event.position
            assert state.plan.number == event.data.number
            for job_id, nodes in event.data.placed.items():
                spec = state.jobs[job_id].spec
                assert spec.min_replicas <= len(nodes) <= spec.max_replicas
                assert job_id in event.data.reasons


@pytest.mark.parametrize("policy", sorted(POLICIES))
@pytest.mark.parametrize("failures", [FailureRates(), ROUGH], ids=["quiet", "rough"])
async def test_every_policy_finishes_every_job_and_never_overcommits(policy: str, failures: FailureRates) -> None:
    run = await a_run(policy, failures=failures)
    live, history = Live(), History()
    await catch_up(run.store, [live, history], after=0, on_event=Invariants(live))
    assert run.unfinished == ()
    assert len(history.finished) == 40
    assert {job.outcome for job in history.finished} == {"completed"}


@pytest.mark.parametrize("placer", sorted(PLACERS))
async def test_every_placer_finishes_every_job_and_never_overcommits(placer: str) -> None:
    run = await a_run("elastic-srjf", placer, ROUGH)
    live = Live()
    await catch_up(run.store, [live], after=0, on_event=Invariants(live))
    assert run.unfinished == ()


async def test_same_seed_gives_the_same_log_byte_for_byte_and_another_seed_another() -> None:
    logs = [
        await (await a_run("elastic-tiresias", failures=ROUGH, seed=seed)).store.read_sealed(0, 100_000)
        for seed in (1, 1, 2)
    ]
    assert logs[0] == logs[1]
    assert logs[0] != logs[2]


@pytest.mark.parametrize("policy", sorted(POLICIES))
@pytest.mark.parametrize(
    "huge", [a_spec("huge", min_replicas=9, max_replicas=9), a_spec("huge", gpus_per_replica=8)], ids=["job", "worker"]
)
async def test_job_too_large_for_the_cluster_is_reported_and_holds_up_nobody(policy: str, huge: JobSpec) -> None:
    profile = SpeedupProfile(epochs=2, work_s=1000.0, speedup=linear_speedup(9))
    specs = [huge, a_spec("small"), a_spec("large", min_replicas=8, max_replicas=8)]
    arrivals = tuple(Arrival(spec=spec, submitted_s=0, profile=profile) for spec in specs)
    workload = Workload(name="w", source="", arrivals=arrivals, nodes=parse_nodes("2x4"))
    run = await Simulation(workload, SimulationOptions(settings=Settings(policy=policy))).run()
    history = History()
    await catch_up(run.store, [history], after=0)
    assert {job.job_id for job in history.finished} == {"small", "large"}
    assert run.unfinished == ("huge",)


async def test_rate_limit_keeps_a_plan_away_from_one_that_interrupted_jobs() -> None:
    run = await a_run("elastic-fifo")
    gaps: dict[bool, list[float]] = {False: [], True: []}
    live, last_at, is_interrupting = Live(), -math.inf, False
    for event in await run.store.read(0, 100_000):
        # What starts on free GPUs alone does not wait.
        if isinstance(event.data, PlanAdopted) and not event.data.only_starts:
            gaps[is_interrupting].append(event.recorded_at - last_at)
            last_at, is_interrupting = event.recorded_at, interrupts(live.cluster.state(event.data.pool), event.data)
        live.apply(event)
    assert min(gaps[True]) >= 30.0
    assert 3.0 <= min(gaps[False]) < 30.0


async def test_compared_runs_face_the_same_jobs_and_the_same_failures() -> None:
    contestants = [ComparedRun(policy=name, placer="steady") for name in ("fifo", "elastic-fifo")]
    outcomes = await compare(a_workload(), contestants, SimulationOptions(failures=ROUGH, seed=3))
    submitted = [sorted((job.job_id, job.submitted_at) for job in outcome.history.finished) for outcome in outcomes]
    assert submitted[0] == submitted[1]
    assert [outcome.result.policy for outcome in outcomes] == ["fifo", "elastic-fifo"]


async def test_elastic_policy_uses_gpus_that_a_rigid_one_leaves_idle() -> None:
    contestants = [ComparedRun(policy=name, placer="steady") for name in ("fifo", "elastic-fifo")]
    rigid, elastic = await compare(load_workload("voda-exp/run_1"), contestants, SimulationOptions())
    assert elastic.result.utilisation > rigid.result.utilisation
    assert elastic.result.avg_queueing_s < rigid.result.avg_queueing_s


async def test_worker_that_died_is_brought_back() -> None:
    run = await a_run("fifo", failures=FailureRates(worker_mtbf_s=500))
    events = await run.store.read(0, 100_000)
    lost = [e for e in events if e.type == "worker.exited" and getattr(e.data, "cause", "") == "failed"]
    assert lost
    for event in lost:
        later = [e.data for e in events[event.position :] if e.stream == event.stream]
        assert isinstance(next(fact for fact in later if isinstance(fact, WorkerStarted | JobCompleted)), WorkerStarted)


async def test_a_run_in_words_is_short_however_many_jobs_it_has() -> None:
    assert len(repr(await a_run("elastic-fifo"))) < 200
