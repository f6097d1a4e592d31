"""What the pool loop records in a resync, what it counts, and what it waits to see twice."""

import asyncio
from collections.abc import Mapping

from msgspec.structs import replace

from tests.builders import a_node, a_spec
from tests.leases import ended
from tests.pool_loops import LogStage, LoopClock
from tests.telemetry import RecordingTelemetry
from tests.virtual_time import now_s, virtually
from tests.waiting import until
from voda.cluster.port import Observed
from voda.controller.pool_loop import RESYNC_S
from voda.domain.errors import ClusterUnavailable
from voda.domain.reasons.failures import FirstIsDone
from voda.domain.reasons.requests import ObjectGone
from voda.domain.state import linear_speedup
from voda.events.types import AnyFact, JobCanceled, JobCancelRequested, JobRegistered, JobSubmitted
from voda.log.memory import MemoryStore
from voda.metrics import LAST_DRIFT
from voda.simulator.cluster import SimulatedCluster
from voda.simulator.workload import SpeedupProfile

PROFILE = SpeedupProfile(epochs=1, work_s=1e9, speedup=linear_speedup(4))


class KeepingCluster(SimulatedCluster):
    """Keeps an object of each job, of which nobody is told; it may be busy."""

    objects: Mapping[str, str] = {}
    busy_until_s = 0.0
    looks: int = 0

    async def observe(self) -> Observed:
        self.looks += 1
        if now_s() < self.busy_until_s:
            raise ClusterUnavailable("too many requests", retry_after_s=20.0)
        return replace(await super().observe(), objects=self.objects)


class Stage(LogStage):
    """A pool with one job whose object is known as u1."""

    def __init__(self) -> None:
        self.clock, self.store = LoopClock(), MemoryStore()
        self.cluster = KeepingCluster([a_node("n1")], now=self.clock.now)
        self.cluster.admit(a_spec("a"), PROFILE)
        self.telemetry = RecordingTelemetry()
        self._loop = self.a_loop(self.cluster, telemetry=self.telemetry)

    async def lead(self, *, uid: str = "u1") -> "asyncio.Task[None]":
        await self.add(JobSubmitted(spec=a_spec("a")))
        await self.add(JobRegistered(job_id="a", uid=uid))
        task = asyncio.get_running_loop().create_task(self._loop.run("me"))
        await asyncio.sleep(1.0)
        return task

    async def facts(self, *kinds: type) -> list[AnyFact]:
        return [event.data for event in await self.recorded(*kinds)]


def test_job_when_its_object_is_not_seen_at_an_election_but_soon_after_is_not_canceled() -> None:
    async def play() -> None:
        stage = Stage()
        leading = await stage.lead()
        stage.cluster.objects = {"a": "u1"}
        await asyncio.sleep(3 * RESYNC_S)
        assert await stage.facts(JobCancelRequested) == []
        assert set(stage.cluster.workers()) == {"a"}
        await ended(leading)

    virtually(play())


def test_job_when_its_object_is_gone_at_two_looks_is_canceled_and_ended() -> None:
    async def play() -> None:
        stage = Stage()
        leading = await stage.lead()
        await asyncio.sleep(2 * RESYNC_S)
        assert await stage.facts(JobCancelRequested, JobCanceled) == [
            JobCancelRequested(job_id="a", reason=ObjectGone(object="MPIJob")),
            JobCanceled(job_id="a"),
        ]
        assert stage.cluster.workers() == {}
        await ended(leading)

    virtually(play())


def test_job_when_its_former_object_and_then_the_next_one_is_not_seen_once_is_not_canceled() -> None:
    async def play() -> None:
        stage = Stage()
        leading = await stage.lead()
        await stage.add(JobRegistered(job_id="a", uid="", reason=FirstIsDone()))
        await stage.add(JobRegistered(job_id="a", uid="u2", kind="MPIJob"))
        looks = stage.cluster.looks
        await until(lambda: stage.cluster.looks > looks)
        stage.cluster.objects = {"a": "u2"}
        await asyncio.sleep(3 * RESYNC_S)
        assert await stage.facts(JobCancelRequested) == []
        assert set(stage.cluster.workers()) == {"a"}
        await ended(leading)

    virtually(play())


def test_relist_when_it_heals_the_log_tells_how_much_and_nothing_once_it_leads_no_more() -> None:
    async def play() -> None:
        stage = Stage()
        leading = await stage.lead(uid="")
        stage.cluster.objects = {"a": "u1"}
        await asyncio.sleep(2.5 * RESYNC_S)
        assert await stage.facts(JobRegistered) == [
            JobRegistered(job_id="a", uid=""),
            JobRegistered(job_id="a", uid="u1", kind="MPIJob"),
        ]
        assert stage.telemetry.settings(LAST_DRIFT) == [0, 1, 0]
        await ended(leading)
        assert stage.telemetry.settings(LAST_DRIFT) == [0, 1, 0, 0]

    virtually(play())


def test_pool_when_its_cluster_asks_for_patience_leaves_it_alone_that_long() -> None:
    async def play() -> None:
        stage = Stage()
        stage.cluster.busy_until_s = now_s() + 50.0
        leading = await stage.lead()
        await asyncio.sleep(48.0)
        assert stage.cluster.looks == 3
        await ended(leading)

    virtually(play())
