"""One pool led by one replica after another: stopped at any await, and warm when its turn comes."""

import asyncio
from collections.abc import Sequence

import pytest

from tests.builders import a_node, a_spec
from tests.leases import ended
from tests.pool_loops import LogStage, LoopClock
from tests.virtual_time import virtually
from voda.cluster.port import Observed
from voda.controller.pool_loop import PoolLoop
from voda.domain.errors import ClusterUnavailable, Fenced
from voda.domain.plan import Action
from voda.domain.state import linear_speedup
from voda.events.envelope import Event, Fact, Head
from voda.events.types import JobSubmitted, LeaderElected, PlanAdopted, SettingsChanged
from voda.log.memory import MemoryStore
from voda.simulator.cluster import SimulatedCluster
from voda.simulator.workload import SpeedupProfile

PROFILE = SpeedupProfile(epochs=1, work_s=1e9, speedup=linear_speedup(8))
_TURNS_AFTER = 20
"""Turns of the loop, after all workers have started, in which what they did is recorded."""


class SlowStore(MemoryStore):
    """Others get their turn before and after each call, as with a database."""

    async def append(self, stream: str, expected_version: int, facts: Sequence[Fact], *, epoch: int = 0) -> int:
        await asyncio.sleep(0)
        position = await super().append(stream, expected_version, facts, epoch=epoch)
        await asyncio.sleep(0)
        return position

    async def read(self, after: int, limit: int, *, stream: str | None = None) -> Sequence[Event]:
        await asyncio.sleep(0)
        return await super().read(after, limit, stream=stream)

    async def head(self, stream: str) -> Head:
        await asyncio.sleep(0)
        return await super().head(stream)


class SlowCluster(SimulatedCluster):
    """Others get their turn before and after each call; it may be away."""

    is_away = False

    async def observe(self) -> Observed:
        await asyncio.sleep(0)
        if self.is_away:
            raise ClusterUnavailable("the cluster is away")
        return await super().observe()

    async def apply(self, action: Action) -> None:
        await asyncio.sleep(0)
        await super().apply(action)
        await asyncio.sleep(0)


class Stage(LogStage):
    """A log and a cluster with eight GPUs, and three jobs that want them."""

    def __init__(self) -> None:
        self.clock = LoopClock()
        self.store = SlowStore()
        self.cluster = SlowCluster([a_node("n1", gpus=4), a_node("n2", gpus=4)], now=self.clock.now)
        self.loops: list[PoolLoop] = []

    async def begin(self) -> None:
        await self.add(SettingsChanged(pool="default", settings={"ratelimit_s": 0.0}))
        await self.add(SettingsChanged(pool="default", settings={"policy": "elastic-fifo"}))
        for job_id in ("a", "b", "c"):
            spec = a_spec(job_id, min_replicas=1, max_replicas=4, epochs=1)
            self.cluster.admit(spec, PROFILE)
            await self.add(JobSubmitted(spec=spec))

    def one_more(self) -> PoolLoop:
        self.loops.append(self.a_loop(self.cluster))
        return self.loops[-1]

    async def follow(self) -> None:
        async for event in self.store.tail(0):
            for loop in self.loops:
                loop.see(event)

    def busy(self) -> int:
        """Return the number of GPUs at work."""
        return sum(map(len, self.cluster.workers().values()))


async def refuse_disorder(stage: Stage) -> None:
    """Check that the log, the plan and the cluster agree, and that all eight GPUs are at work."""
    live = stage.loops[-1].live
    jobs, plan = live.cluster.jobs("default"), live.cluster.plan("default")
    observed = await stage.cluster.observe()
    assert {job_id: job.workers for job_id, job in jobs.items() if job.workers} == observed.workers
    held = {job_id: sorted(workers.values()) for job_id, workers in observed.workers.items()}
    assert held == {job_id: sorted(nodes) for job_id, nodes in plan.placement.items()}
    assert sum(map(len, held.values())) == 8
    epochs = [event.epoch for event in await stage.store.read(0, 10_000, stream="decisions.default")]
    assert epochs == sorted(epochs)


def test_pool_when_its_leader_is_stopped_at_any_await_is_brought_in_order_by_the_next() -> None:
    async def play(turns: int) -> bool:
        stage = Stage()
        await stage.begin()
        following = asyncio.get_running_loop().create_task(stage.follow())
        leading = asyncio.get_running_loop().create_task(stage.one_more().run("first", 1))
        for _ in range(turns):
            await asyncio.sleep(0)
        was_done = stage.busy() == 8
        await ended(leading)
        assert not stage.loops[0].is_leading
        next_one = asyncio.get_running_loop().create_task(stage.one_more().run("second", 2))
        await asyncio.sleep(70.0)
        await refuse_disorder(stage)
        await ended(next_one)
        await ended(following)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return was_done

    outcomes: list[bool] = []
    while outcomes[-_TURNS_AFTER:] != [True] * _TURNS_AFTER:
        outcomes.append(virtually(play(len(outcomes))))
    assert outcomes.count(False) > 10, "a leader has more awaits than that"


def test_standby_when_it_followed_leads_without_reading_the_log_again() -> None:
    async def play() -> None:
        stage = Stage()
        await stage.begin()
        leader, standby = stage.one_more(), stage.one_more()
        make = asyncio.get_running_loop().create_task
        following, leading, warming = make(stage.follow()), make(leader.run("first", 1)), make(standby.follow())
        await asyncio.sleep(5.0)
        assert standby.live.position == await stage.store.position()
        assert (standby.is_leading, standby.failure) == (False, "")
        state = standby.live.cluster
        await ended(leading)
        await ended(warming)
        leading = make(standby.run("second", 2))
        await asyncio.sleep(1.0)
        assert standby.is_leading
        assert standby.live.cluster is state
        await refuse_disorder(stage)
        for task in (leading, following):
            await ended(task)

    virtually(play())


def test_loop_when_it_leads_again_after_others_did_goes_on_from_where_they_were() -> None:
    async def play() -> None:
        stage = Stage()
        await stage.begin()
        following = asyncio.get_running_loop().create_task(stage.follow())
        loops = [stage.one_more(), stage.one_more()]
        for epoch in range(1, 7):
            leading = asyncio.get_running_loop().create_task(loops[epoch % 2].run(f"r{epoch % 2}", epoch))
            await asyncio.sleep(3.0)
            assert loops[epoch % 2].is_leading
            await ended(leading)
        elected = [event.epoch for event in await stage.recorded(LeaderElected)]
        assert elected == [1, 2, 3, 4, 5, 6]
        # Nothing had changed, so nothing was planned anew.
        assert len(await stage.recorded(PlanAdopted)) == 1
        await ended(following)

    virtually(play())


def test_loop_when_the_cluster_is_away_at_its_election_keeps_its_epoch() -> None:
    async def play() -> None:
        stage = Stage()
        await stage.begin()
        stage.cluster.is_away = True
        following = asyncio.get_running_loop().create_task(stage.follow())
        loop = stage.one_more()
        leading = asyncio.get_running_loop().create_task(loop.run("first", 5))
        await asyncio.sleep(10.0)
        assert "the cluster is away" in loop.failure
        assert not loop.is_leading
        stage.cluster.is_away = False
        await asyncio.sleep(5.0)
        assert (loop.is_leading, loop.failure) == (True, "")
        assert [event.epoch for event in await stage.recorded(LeaderElected)] == [5]
        await refuse_disorder(stage)
        await ended(leading)
        await ended(following)

    virtually(play())


def test_loop_when_its_epoch_is_not_the_highest_is_fenced() -> None:
    async def play() -> None:
        stage = Stage()
        await stage.begin()
        leading = asyncio.get_running_loop().create_task(stage.one_more().run("first", 5))
        await asyncio.sleep(1.0)
        with pytest.raises(ExceptionGroup) as fenced:
            await stage.one_more().run("second", 5)
        assert fenced.group_contains(Fenced)
        await ended(leading)

    virtually(play())
