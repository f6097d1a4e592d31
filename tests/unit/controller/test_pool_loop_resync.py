"""What the pool loop records in a resync, what it counts, and what it waits to see twice."""

import asyncio
from collections.abc import Mapping

from msgspec.structs import replace

from tests.builders import a_node, a_spec
from tests.leases import ended
from tests.telemetry import RecordingTelemetry
from tests.virtual_time import now_s, virtually
from tests.waiting import until
from voda.cluster.port import Observed
from voda.controller.controller import Controller
from voda.controller.pool_loop import RESYNC_S, PoolLoop
from voda.domain.errors import ClusterUnavailable
from voda.domain.state import linear_speedup
from voda.events.envelope import ANY_VERSION, Fact
from voda.events.types import AnyFact, JobCanceled, JobCancelRequested, JobRegistered, JobSubmitted
from voda.log.memory import MemoryStore
from voda.metrics import LAST_DRIFT
from voda.placement import PLACERS
from voda.policies import POLICIES
from voda.reconcilers.watcher import Watcher
from voda.simulator.cluster import SimulatedCluster
from voda.simulator.workload import SpeedupProfile

PROFILE = SpeedupProfile(epochs=1, work_s=1e9, speedup=linear_speedup(4))


class LoopClock:
    """The loop's own time."""

    def __init__(self) -> None:
        self._ids = 0

    def now(self) -> float:
        return now_s()

    def new_id(self) -> str:
        self._ids += 1
        return f"{self._ids:x}"


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


class Stage:
    """A pool with one job whose object is known as u1."""

    def __init__(self) -> None:
        clock, self.store = LoopClock(), MemoryStore()
        self._clock = clock
        self.cluster = KeepingCluster([a_node("n1")], now=clock.now)
        self.cluster.admit(a_spec("a"), PROFILE)
        self.telemetry = RecordingTelemetry()
        watcher = Watcher(store=self.store, clock=clock)
        self._loop = PoolLoop(
            clock=clock,
            cluster=self.cluster,
            controller=Controller(
                pool="default", store=self.store, clock=clock, policies=POLICIES.choose, placers=PLACERS.choose
            ),
            watcher=watcher,
            telemetry=self.telemetry,
        )

    async def add(self, data: AnyFact) -> None:
        fact = Fact(data=data, event_id=self._clock.new_id(), recorded_at=self._clock.now())
        await self.store.append(data.stream, ANY_VERSION, [fact])

    async def lead(self, *, uid: str = "u1") -> "asyncio.Task[None]":
        await self.add(JobSubmitted(spec=a_spec("a")))
        await self.add(JobRegistered(job_id="a", uid=uid))
        task = asyncio.get_running_loop().create_task(self._loop.run("me"))
        await asyncio.sleep(1.0)
        return task

    async def facts(self, *kinds: type) -> list[AnyFact]:
        return [event.data for event in await self.store.read(0, 10_000) if isinstance(event.data, kinds)]


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
            JobCancelRequested(job_id="a", reason="its MPIJob was deleted"),
            JobCanceled(job_id="a"),
        ]
        assert stage.cluster.workers() == {}
        await ended(leading)

    virtually(play())


def test_job_when_its_former_object_and_then_the_next_one_is_not_seen_once_is_not_canceled() -> None:
    async def play() -> None:
        stage = Stage()
        leading = await stage.lead()
        await stage.add(JobRegistered(job_id="a", uid="", reason="it had ended by itself"))
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
