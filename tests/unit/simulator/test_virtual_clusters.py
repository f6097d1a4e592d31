"""The simulated control plane lends idle cells and takes them back, and its log verifies."""

from msgspec.structs import replace

from tests.builders import a_node, a_spec
from tests.replay.test_golden_plans import rewritten
from voda.domain.cells import CellsSpec, QuotaSpec, VirtualClusterSpec
from voda.domain.state import linear_speedup
from voda.events.envelope import Event
from voda.events.types import AnyFact, NodeJoined, PlanAdopted, SettingsChanged, VirtualClustersApplied
from voda.simulator.engine import InitialState, Simulation, SimulationOptions, SimulationRun
from voda.simulator.workload import Arrival, Costs, SpeedupProfile, Workload
from voda.timetravel.verify import verify

NODES = tuple(a_node(f"n{index}") for index in range(1, 5))
QUOTA = VirtualClusterSpec(virtual_cells=(QuotaSpec(cell_type="node", cell_number=2),))


def arrival(job_id: str, cluster: str, at_s: float, *, least: int, most: int) -> Arrival:
    """Return a job that needs an hour on one worker."""
    spec = a_spec(job_id, virtual_cluster=cluster, min_replicas=least, max_replicas=most)
    profile = SpeedupProfile(epochs=6, work_s=3600.0, speedup=linear_speedup(most), costs=Costs(start_s=5.0))
    return Arrival(spec=spec, submitted_s=at_s, profile=profile)


async def simulated() -> SimulationRun:
    """Return the run of an elastic job that borrows, and of one that has its virtual cluster's cells back."""
    arrivals = (
        arrival("borrower", "vision", 0.0, least=4, most=16),
        arrival("owner", "speech", 100.0, least=8, most=8),
    )
    clusters = CellsSpec(virtual_clusters={"vision": QUOTA, "speech": QUOTA})
    facts: tuple[AnyFact, ...] = (
        SettingsChanged(pool="default", settings={"ratelimit_s": 1.0}),
        *(NodeJoined(node=node) for node in NODES),
        VirtualClustersApplied(pool="default", cells=clusters),
    )
    workload = Workload(name="lending", source="test", arrivals=arrivals, nodes=NODES)
    return await Simulation(workload, SimulationOptions(), initial=InitialState(facts=facts)).run()


async def test_pool_when_simulated_lends_idle_cells_and_takes_them_back() -> None:
    run = await simulated()
    plans = [event.data for event in await run.store.read(0, 10_000) if isinstance(event.data, PlanAdopted)]
    sizes = [
        {job_id: (len(nodes), len(plan.guaranteed.get(job_id, ()))) for job_id, nodes in plan.placed.items()}
        for plan in plans
    ]
    assert not run.unfinished
    assert sizes[0] == {"borrower": (16, 8)}
    assert sizes[1] == {"borrower": (8, 0), "owner": (8, 8)}
    assert plans[1].placed["borrower"] == plans[0].placed["borrower"][:8]
    assert (await verify(run.store)).difference is None


async def test_log_when_the_guarantee_of_a_plan_was_altered_does_not_verify() -> None:
    def weaken(event: Event) -> AnyFact:
        fact = event.data
        return replace(fact, guaranteed={}) if isinstance(fact, PlanAdopted) and fact.number == 1 else fact

    found = await verify(await rewritten((await simulated()).store, weaken))
    assert found.difference is not None
    assert (found.difference.job_id, found.difference.what) == ("borrower", "guarantee")
