"""A job of several pools starts in the first one that has room for it, and stays there."""

from tests.builders import a_node, a_spec
from tests.pool_loops import LogStage
from tests.reasons import said
from voda.clock import VirtualClock
from voda.domain.job import Phase
from voda.events.types import (
    JobChanged,
    JobCompleted,
    JobSubmitted,
    NodeJoined,
    PlanAdopted,
    SettingsChanged,
    WorkerExited,
    WorkerStarted,
)
from voda.log.memory import MemoryStore
from voda.projections.live import Live
from voda.timetravel.job_explanation import LoggedSubmission, decisions_on
from voda.timetravel.verify import verify

POOLS = {"a100": "", "v100": "", "h100": ""}


class Stage(LogStage):
    """A controller for each of three pools; `h100` has no node."""

    clock: VirtualClock

    def __init__(self) -> None:
        self.store, self.clock = MemoryStore(), VirtualClock(1_000.0)
        self.controllers = [self.a_controller(pool=pool) for pool in POOLS]

    async def begin(self) -> None:
        for pool, node in (("a100", "a1"), ("v100", "v1")):
            await self.add(
                NodeJoined(node=a_node(node, pool=pool)), SettingsChanged(pool=pool, settings={"ratelimit_s": 0.0})
            )
            await self.add(JobSubmitted(spec=a_spec(f"fills-{pool}", pool=pool, min_replicas=4, max_replicas=4)))
        for controller in self.controllers:
            await controller.lead("me")
        await self.settle()
        for pool, node in (("a100", "a1"), ("v100", "v1")):
            await self.add(WorkerStarted(job_id=f"fills-{pool}", workers=dict.fromkeys(range(4), node)))

    async def settle(self) -> None:
        for _ in range(6):
            self.clock.move_to(self.clock.now() + 1.0)
            for controller in self.controllers:
                await controller.step()

    async def free(self, pool: str) -> None:
        job_id = f"fills-{pool}"
        await self.add(JobCompleted(job_id=job_id), WorkerExited(job_id=job_id, workers=(0, 1, 2, 3), cause="finished"))
        await self.settle()

    async def moves(self) -> list[tuple[str, str]]:
        data = [event.data for event in await self.store.read(0, 10_000)]
        return [(each.job_id, each.to_pool) for each in data if isinstance(each, JobChanged) and each.to_pool]

    @property
    def live(self) -> Live:
        return self.controllers[0].live

    def pool_of(self, job_id: str) -> str:
        (pool,) = [pool for pool in POOLS if job_id in self.live.cluster.jobs(pool)]
        return pool

    def nodes(self, job_id: str) -> tuple[str, ...]:
        return self.live.cluster.plan(self.pool_of(job_id)).placement.get(job_id, ())


async def a_waiting_job() -> Stage:
    stage = Stage()
    await stage.begin()
    await stage.add(JobSubmitted(spec=a_spec("any", pool="h100", pools=POOLS, min_replicas=2, max_replicas=2)))
    await stage.settle()
    assert (stage.pool_of("any"), await stage.moves()) == ("h100", [])
    return stage


async def test_job_of_several_pools_when_one_has_room_goes_there_and_starts() -> None:
    stage = await a_waiting_job()
    await stage.free("v100")
    assert (stage.pool_of("any"), stage.nodes("any")) == ("v100", ("v1", "v1"))
    assert "any" not in stage.live.cluster.plan("h100").reasons
    assert said(stage.live.cluster.plan("v100").reasons["any"]).startswith("starts with 2 workers")
    assert (await verify(stage.store)).difference is None


async def test_job_of_several_pools_when_it_has_started_stays_whatever_becomes_free() -> None:
    stage = await a_waiting_job()
    await stage.free("v100")
    await stage.add(WorkerStarted(job_id="any", workers=dict.fromkeys(range(2), "v1")))
    await stage.free("a100")
    await stage.add(WorkerExited(job_id="any", workers=(0, 1), cause="node_lost"))
    await stage.settle()
    assert await stage.moves() == [("any", "v100")]
    # Nor does a former leader move it, who does not know that it has started.
    await stage.add(JobChanged(job_id="any", to_pool="a100"))
    await stage.settle()
    assert stage.pool_of("any") == "v100"


async def test_job_of_several_pools_when_others_wait_longer_in_a_pool_does_not_go_before_them() -> None:
    stage = Stage()
    await stage.begin()
    await stage.add(JobSubmitted(spec=a_spec("first", pool="v100", min_replicas=4, max_replicas=4)))
    stage.clock.move_to(1_010.0)
    await stage.add(JobSubmitted(spec=a_spec("any", pool="h100", pools=POOLS, min_replicas=2, max_replicas=2)))
    await stage.settle()
    await stage.free("v100")
    assert (stage.nodes("first"), stage.pool_of("any")) == (("v1",) * 4, "h100")
    await stage.free("a100")
    assert (stage.pool_of("any"), stage.nodes("any")) == ("a100", ("a1", "a1"))


async def test_jobs_of_several_pools_when_there_is_room_for_one_move_one_by_one() -> None:
    stage = Stage()
    await stage.begin()
    for job_id in ("one", "two"):
        await stage.add(JobSubmitted(spec=a_spec(job_id, pool="h100", pools=POOLS, min_replicas=3, max_replicas=3)))
    await stage.free("a100")
    assert (stage.pool_of("one"), stage.nodes("one"), stage.nodes("two")) == ("a100", ("a1",) * 3, ())
    await stage.free("v100")
    assert (stage.pool_of("two"), stage.nodes("two")) == ("v100", ("v1",) * 3)


async def test_explanation_of_a_job_that_has_moved_tells_what_was_decided_in_each_pool() -> None:
    stage = await a_waiting_job()
    await stage.free("v100")
    (submission,) = [
        LoggedSubmission(event.data.spec, event.position)
        for event in await stage.store.read(0, 10_000)
        if isinstance(event.data, JobSubmitted) and event.data.spec.job_id == "any"
    ]
    decisions = await decisions_on(stage.store, submission, until=await stage.store.position())
    assert [(each.after, said(each.reason).partition(":")[0]) for each in decisions] == [
        ((), "waits"),
        (("v1", "v1"), "starts with 2 workers, it is the only job for 4 GPUs"),
    ]


async def test_state_when_a_job_has_moved_is_the_same_from_a_snapshot() -> None:
    stage = await a_waiting_job()
    await stage.free("v100")
    whole, events = Live(), await stage.store.read(0, 10_000)
    dumps = []
    for event in events:
        dumps.append(whole.dump())
        whole.apply(event)
    for start in range(len(events)):
        resumed = Live()
        resumed.load(dumps[start])
        for event in events[start:]:
            resumed.apply(event)
        assert resumed.state_hash() == whole.state_hash()
    assert whole.cluster.jobs("v100")["any"].phase is Phase.WAITING
    plans = [event.data for event in events if isinstance(event.data, PlanAdopted) and "any" in event.data.placed]
    assert [plan.pool for plan in plans] == ["v100"]
