"""A reclaim from its plan to its end: what the controller records, wakes for, and does after another one's death."""

from collections.abc import Sequence

import pytest

from tests.builders import a_node, a_spec
from tests.pool_loops import LogStage
from tests.reasons import said
from tests.unit.planner.virtual_clusters.pools import some_cells
from voda.clock import VirtualClock
from voda.events.envelope import ANY_VERSION, Event, Fact
from voda.events.types import (
    JobCanceled,
    JobSubmitted,
    LeaderElected,
    NodeJoined,
    NodeLeft,
    PlanAdopted,
    SettingsChanged,
    VirtualClustersApplied,
    WorkerExited,
    WorkerStarted,
)
from voda.log.memory import MemoryStore
from voda.timetravel.verify import verify

BORROWED = (4, 5, 6, 7)


class Stage(LogStage):
    """A controller of two nodes, one for each virtual cluster; `elastic` of `vision` has both until `gang` comes."""

    clock: VirtualClock

    def __init__(self, store: MemoryStore | None = None, at: float = 1_000.0) -> None:
        self.store = store or MemoryStore()
        self.clock = VirtualClock(at)
        self.controller = self.a_controller()

    async def begin(self) -> None:
        await self.add(
            NodeJoined(node=a_node("n1")),
            NodeJoined(node=a_node("n2")),
            SettingsChanged(pool="default", settings={"ratelimit_s": 0.0}),
            VirtualClustersApplied(pool="default", cells=some_cells({"vision": {"node": 1}, "speech": {"node": 1}})),
        )
        await self.controller.lead("me")
        await self.submit("elastic", "vision", least=2, most=8)
        await self.add(WorkerStarted(job_id="elastic", workers=dict(enumerate(await self.nodes("elastic")))))
        await self.submit("gang", "speech", least=4, most=4)

    async def submit(self, job_id: str, cluster: str, *, least: int, most: int) -> None:
        spec = a_spec(job_id, virtual_cluster=cluster, min_replicas=least, max_replicas=most)
        await self.add(JobSubmitted(spec=spec))
        await self.controller.step()

    async def replay(self, events: Sequence[Event]) -> None:
        """Record the facts of events as they were recorded."""
        for event in events:
            fact = Fact(data=event.data, event_id=f"first-{event.event_id}", recorded_at=event.recorded_at)
            await self.store.append(event.stream, ANY_VERSION, [fact], epoch=event.epoch)

    async def step_at(self, instant: float) -> float:
        self.clock.move_to(instant)
        return await self.controller.step()

    async def nodes(self, job_id: str) -> tuple[str, ...]:
        return self.controller.live.cluster.plan("default").placement.get(job_id, ())

    async def events(self) -> list[Event]:
        return list(await self.store.read(0, 10_000))

    async def last_plan(self) -> PlanAdopted:
        return [event.data for event in await self.events() if isinstance(event.data, PlanAdopted)][-1]


@pytest.fixture
async def stage() -> Stage:
    stage = Stage()
    await stage.begin()
    return stage


async def test_reclaim_when_overdue_halts_the_job_without_another_event(stage: Stage) -> None:
    assert (len(await stage.nodes("elastic")), len(await stage.nodes("gang"))) == (4, 4)
    assert await stage.step_at(1_119.0) == 1_120.0
    assert len(await stage.nodes("elastic")) == 4
    await stage.step_at(1_120.0)
    plan = await stage.last_plan()
    assert (plan.cause, plan.released) == ("reclaim is overdue", ("elastic",))
    assert (
        said(plan.reasons["elastic"]) == "preempted: 4 workers did not leave cells that a guarantee needs within 2m 00s"
    )
    assert len(await stage.nodes("gang")) == 4


async def test_reclaim_when_the_late_job_has_left_lets_it_start_again_in_its_quota(stage: Stage) -> None:
    await stage.step_at(1_120.0)
    await stage.add(WorkerExited(job_id="elastic", workers=BORROWED, cause="stopped"))
    await stage.add(WorkerExited(job_id="elastic", workers=(0, 1, 2, 3), cause="stopped"))
    await stage.step_at(1_130.0)
    assert await stage.nodes("elastic") == ("n1",) * 4
    assert (await verify(stage.store)).difference is None


async def test_reclaim_when_given_back_in_time_halts_nobody(stage: Stage) -> None:
    await stage.add(WorkerExited(job_id="elastic", workers=BORROWED, cause="stopped"))
    await stage.add(WorkerStarted(job_id="gang", workers=dict.fromkeys(range(4), "n2")))
    await stage.step_at(1_300.0)
    assert (len(await stage.nodes("elastic")), len(await stage.nodes("gang"))) == (4, 4)


async def test_reclaim_when_no_guarantee_needs_the_cells_any_more_halts_nobody(stage: Stage) -> None:
    await stage.add(JobCanceled(job_id="gang"))
    await stage.step_at(1_010.0)
    await stage.add(WorkerExited(job_id="elastic", workers=BORROWED[2:], cause="stopped"))
    await stage.step_at(1_300.0)
    assert len(await stage.nodes("elastic")) == 8


async def test_reclaim_when_a_node_is_lost_meanwhile_gives_the_guarantee_what_is_left(stage: Stage) -> None:
    """The gang was to have the lost node; the borrower's guarantee is on the other one, and is not taken."""
    await stage.add(NodeLeft(name="n2"), WorkerExited(job_id="elastic", workers=BORROWED, cause="node_lost"))
    await stage.step_at(1_010.0)
    assert (await stage.nodes("elastic"), await stage.nodes("gang")) == (("n1",) * 4, ())
    await stage.step_at(1_200.0)
    await stage.add(NodeJoined(node=a_node("n3")))
    await stage.step_at(1_300.0)
    assert (await stage.nodes("elastic"), await stage.nodes("gang")) == (("n1",) * 4, ("n3",) * 4)


async def test_reclaim_when_the_leader_dies_after_any_event_comes_to_the_same_end(stage: Stage) -> None:
    await stage.step_at(1_120.0)
    await stage.add(WorkerExited(job_id="elastic", workers=tuple(range(8)), cause="stopped"))
    await stage.step_at(1_121.0)
    await stage.add(WorkerStarted(job_id="gang", workers=dict.fromkeys(range(4), "n2")))
    await stage.add(WorkerStarted(job_id="elastic", workers=dict.fromkeys(range(4), "n1")))
    await stage.step_at(1_130.0)
    events = await stage.events()
    end = stage.controller.live.cluster.state("default")
    for died_after in range(6, len(events)):
        again = Stage(at=events[died_after - 1].recorded_at)
        await again.replay(events[:died_after])
        await again.controller.lead("another")
        await again.controller.step()
        # What the cluster and users did is the same; what the dead leader decided is not known.
        for event in events[died_after:]:
            if not isinstance(event.data, PlanAdopted | LeaderElected):
                await again.step_at(event.recorded_at)
                await again.add(event.data)
        await again.step_at(1_130.0)
        state = again.controller.live.cluster.state("default")
        assert state.plan.placement == end.plan.placement, died_after
        assert (state.plan.guaranteed, state.plan.devices) == (end.plan.guaranteed, end.plan.devices), died_after
        assert (state.jobs["elastic"].workers, state.reclaimed_at) == (end.jobs["elastic"].workers, {}), died_after
        assert (await verify(again.store)).difference is None
